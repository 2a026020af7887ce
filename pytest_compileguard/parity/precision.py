"""Differences that rounding explains without a reference: some units of the usual magnitude.

Another order of summation explains a small multiple of the precision of the dtype. Sums of some
hundred float32 terms were seen to differ by up to ten units. A leaf in which many elements are far
smaller than the usual one, as behind a mask, is disputed nevertheless. Calls that have no
reference, since they draw random numbers or fail in float64, have only this; theirs is the
precision of the coarsest type that their graphs compute in. Where a project allows TF32 on its
GPU, float32 counts as a type of that precision (2**-10): kernels of Triton cut off the digits that
those of cuBLAS round. What eager computed in fewer digits for another reason, such as autocast,
its own error tells.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from pytest_compileguard.parity.at_large import UNITS_AT_LARGE, rms
from pytest_compileguard.parity.comparison import pieces


class Narrow(NamedTuple):
    """What is known of types of 16 bits in a call."""

    epsilon: float = 0.0
    """Unit of the coarsest of them that it computes in; 0 if there is none."""
    made: bool = False
    """Whether operators make numbers of them, and not only the inputs are such."""


NOT_NARROW = Narrow()

TF32_EPSILON = 2.0**-10
"""Unit of TF32, which keeps ten bits."""
TF32_TYPES = (torch.float32, torch.complex64)
NARROW = (torch.float16, torch.bfloat16)
PRECISIONS = 32.0
"""Units of the dtype that another order of summation explains: three times what was seen."""
_FAR_LOUDER = 100.0
"""Times the median from which on an element, such as a mask, sets no scale for the rest."""
_FAR_SMALLER = 64.0
"""Times that an element is smaller than the usual one, so that its rounding is another."""
_MANY_SMALL = 0.05
"""Share of such elements: of evenly distributed numbers, one in sixty is as small as that."""
_MOST_ASKED = 2**20
"""Elements that are asked for the usual size: more cost time and tell the same."""
_PRECISIONS_16_BIT = 2.0
"""The same for types of 16 bits, whose sums are made in float32 and rounded once."""


def within_precision(
    actual: torch.Tensor, expected: torch.Tensor, *, tf32: bool = False, epsilon: float = 0.0
) -> bool:
    """Whether the two differ by no more than rounding explains. Both have one shape.

    With ``tf32``, float32 numbers passed through operations that keep ten bits of them; with
    ``epsilon``, through a type of this unit, as under autocast.
    """
    if not is_inexact(expected):
        return False
    if tf32 and expected.dtype in TF32_TYPES:
        epsilon = max(epsilon, TF32_EPSILON)
    own = torch.finfo(expected.dtype).eps
    epsilon, narrow = max(epsilon, own), epsilon > own or is_narrow(expected)
    usual = usual_size(expected)
    if usual is None:
        return False
    unit = epsilon * (_PRECISIONS_16_BIT if narrow else PRECISIONS)
    return all(_differ_by(a, e, unit, usual) for a, e in pieces(actual, expected))


def is_off_at_large(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether all elements of 16 bits together differ by more than one rounding of each."""
    if not is_narrow(expected):
        return False
    square, scale = 0.0, 0.0
    for a, e in pieces(actual, expected):
        finite = e.isfinite()
        square += float((wide(a) - wide(e))[finite].square().sum())
        scale += float(wide(e)[finite].square().sum())
    unit = torch.finfo(expected.dtype).eps
    return square > (UNITS_AT_LARGE * unit) ** 2 * scale


def usual_size(tensor: torch.Tensor) -> float | None:
    """The magnitude that most elements have; of a large leaf a million of them are asked."""
    flat = tensor.reshape(-1)
    sizes = wide(flat[:: max(1, len(flat) // _MOST_ASKED)]).abs()
    sizes = sizes[sizes.isfinite()]
    if not sizes.numel():
        return None
    if not bool(sizes.any()):
        return 0.0
    # What is far louder than most, such as a mask, sets no scale for the rest.
    return rms(sizes[sizes <= _FAR_LOUDER * sizes[sizes > 0].median()])


def is_uneven(tensor: torch.Tensor) -> bool:
    """Whether what most elements hold says nothing of many others, far smaller ones.

    Behind a mask, or beside a column of large numbers, rounding explains less than among these.
    """
    usual = usual_size(tensor)
    if not usual:
        return False
    flat = tensor.reshape(-1)
    sizes = wide(flat[:: max(1, len(flat) // _MOST_ASKED)]).abs()
    small = (sizes > 0) & (sizes < usual / _FAR_SMALLER)
    return float(small.double().mean()) > _MANY_SMALL


def _differ_by(actual: torch.Tensor, expected: torch.Tensor, unit: float, usual: float) -> bool:
    actual, expected = wide(actual), wide(expected)
    if not same_specials(actual, expected):
        return False
    finite = expected.isfinite()
    gap = (actual - expected).abs()[finite]
    return bool((gap <= unit * expected.abs()[finite].clamp(min=usual)).all())


def same_specials(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """NaN and infinities must stand where eager has them; float64 may be finite there."""
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    return bool((same | (actual.isfinite() & expected.isfinite())).all())


def is_inexact(tensor: torch.Tensor) -> bool:
    """Whether its numbers are rounded."""
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def is_narrow(tensor: torch.Tensor) -> bool:
    """Whether its numbers are real ones of 16 bits."""
    return tensor.dtype in NARROW


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Give its numbers in the type that references have."""
    return tensor.to(torch.complex128 if tensor.dtype.is_complex else torch.float64)
