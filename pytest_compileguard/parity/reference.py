"""Settles a dispute: which side is nearer to the result in float64?

A compiled result outside the tolerance need not be wrong; fused code often keeps more
digits than eager. So a disputed leaf is held against a float64 run of the eager code.
The compiled side is acquitted if its error is at most ``k`` times that of eager, beyond
two units of the precision of each element itself: for the root mean square error, and,
twice as much, for the greatest. PyTorch's own benchmarks judge accuracy so, with k = 2
and 3 for 16-bit types (``torch._dynamo.utils.same``). Two things are ours. The greatest
error is bounded, since one wrong element in a million hardly moves a mean. And elements
are judged among others of their magnitude, since a mask of -1e9, or one loud channel,
would buy freedom for all the rest. (Kinds with few elements are judged with their neighbours:
the errors of a handful scatter.) A compiled leaf that agrees with float64 within the
tolerance of its dtype is right, also where eager is not: where it overflowed on the way, or
where its rounding decided a softmax.

Where a function jumps (the derivative of ``relu`` at 0, an ``argmax``), rounding alone
decides on which side a value falls. So what two runs in float64 from inputs moved by a unit
of their precision differ by is no error: an element may be off by twice that much more.
Where the call makes products in a narrower type, their factors move by a unit of that one: as
far as eager's own error shows that such products are in an element, or that it jumps. A whole
number, such as an index, is right if it is that of one of these runs.

Before all that, a difference of a small multiple of the precision of the dtype, relative to
the leaf's usual magnitude, is no dispute: another order of summation explains it. Sums of
some hundred float32 terms were seen to differ by up to ten units. A leaf in which many elements
are far smaller than that, as behind a mask, is disputed nevertheless. Calls that have no
reference, since they draw random numbers or fail in float64, have only this; theirs is the
precision of the coarsest type that their graphs compute in. Where a project
allows TF32 on its GPU, float32 counts as a type of that precision (2**-10): kernels of
Triton cut off the digits that those of cuBLAS round. What eager computed in fewer digits for
another reason, such as autocast, its own error tells.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pytest_compileguard.parity.at_large import (
    OWN_UNITS,
    UNITS_AT_LARGE,
    kinds,
    rms,
    within_at_large,
)
from pytest_compileguard.parity.comparison import pieces
from pytest_compileguard.parity.jumps import steady
from pytest_compileguard.parity.tolerance import Tolerance

_K = 2.0
"""How many times eager's error compiled's may be: that of PyTorch's benchmarks (``same``)."""
_K_16_BIT = 3.0
"""The same for types of 16 bits, as there."""
_USABLE = 0.1
"""Error relative to the size beyond which eager itself went another way, and is no yardstick."""
_FAR = 4.0
"""Times nearer from which on chance, or a reference that went another way, is no explanation."""
_NOTHING = 1e-9
"""Size relative to eager's error below which a result ought to be zero: all of it is noise."""
TF32_EPSILON = 2.0**-10
"""Unit of TF32, which keeps ten bits."""
_PLAINLY_COARSER = 64.0
"""Units of the dtype beyond which eager's error is that of a narrower type: six times what sums of
float32 were seen to differ by."""
_COARSE = 4.0
"""Size of the unit of such a type, as a multiple of eager's root mean square error."""
_COARSEST = 2.0**-7
"""The greatest such unit: that of bfloat16."""
_TF32_TYPES = (torch.float32, torch.complex64)
_NARROW = (torch.float16, torch.bfloat16)
_FAR_LOUDER = 100.0
"""Times the median from which on an element, such as a mask, sets no scale for the rest."""
_FAR_SMALLER = 64.0
"""Times that an element is smaller than the usual one, so that its rounding is another."""
_MANY_SMALL = 0.05
"""Share of such elements: of evenly distributed numbers, one in sixty is as small as that."""
_MOST_ASKED = 2**20
"""Elements that are asked for the usual size: more cost time and tell the same."""
_PRECISIONS = 32.0
"""Units of the dtype that another order of summation explains: three times what was seen."""
_PRECISIONS_16_BIT = 2.0
"""The same for types of 16 bits, whose sums are made in float32 and rounded once."""


def within_precision(
    actual: torch.Tensor, expected: torch.Tensor, *, tf32: bool = False, epsilon: float = 0.0
) -> bool:
    """Whether the two differ by no more than rounding explains. Both have one shape.

    With ``tf32``, float32 numbers passed through operations that keep ten bits of them; with
    ``epsilon``, through a type of this unit, as under autocast.
    """
    if not _is_inexact(expected):
        return False
    if tf32 and expected.dtype in _TF32_TYPES:
        epsilon = max(epsilon, TF32_EPSILON)
    own = torch.finfo(expected.dtype).eps
    epsilon, narrow = max(epsilon, own), epsilon > own or _is_narrow(expected)
    usual = usual_size(expected)
    if usual is None:
        return False
    unit = epsilon * (_PRECISIONS_16_BIT if narrow else _PRECISIONS)
    return all(_differ_by(a, e, unit, usual) for a, e in pieces(actual, expected))


def is_off_at_large(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether all elements of 16 bits together differ by more than one rounding of each."""
    if not _is_narrow(expected):
        return False
    square, scale = 0.0, 0.0
    for a, e in pieces(actual, expected):
        finite = e.isfinite()
        square += float((_wide(a) - _wide(e))[finite].square().sum())
        scale += float(_wide(e)[finite].square().sum())
    unit = torch.finfo(expected.dtype).eps
    return square > (UNITS_AT_LARGE * unit) ** 2 * scale


def usual_size(tensor: torch.Tensor) -> float | None:
    """The magnitude that most elements have; of a large leaf a million of them are asked."""
    flat = tensor.reshape(-1)
    sizes = _wide(flat[:: max(1, len(flat) // _MOST_ASKED)]).abs()
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
    sizes = _wide(flat[:: max(1, len(flat) // _MOST_ASKED)]).abs()
    small = (sizes > 0) & (sizes < usual / _FAR_SMALLER)
    return float(small.double().mean()) > _MANY_SMALL


def _differ_by(actual: torch.Tensor, expected: torch.Tensor, unit: float, usual: float) -> bool:
    actual, expected = _wide(actual), _wide(expected)
    if not _same_specials(actual, expected):
        return False
    finite = expected.isfinite()
    gap = (actual - expected).abs()[finite]
    return bool((gap <= unit * expected.abs()[finite].clamp(min=usual)).all())


def acquits(
    actual: torch.Tensor,
    expected: torch.Tensor,
    reference: torch.Tensor,
    moved: Sequence[torch.Tensor] = (),
    *,
    tf32: bool = False,
    coarse: bool = False,
) -> bool:
    """Whether the compiled leaf is about as near to ``reference`` as the eager one is.

    All have one shape; ``reference`` and ``moved``, the same run from inputs that rounding
    moved, are float64 or complex128. With ``tf32``, products keep ten bits of float32 numbers;
    where one side cuts off what the other rounds, all terms of a sum err in one direction.
    ``coarse`` says that the call is known to compute in fewer digits than the leaf has.
    """
    is_wide = reference.dtype in (torch.float64, torch.complex128)
    if not _is_inexact(expected) or not is_wide or reference.shape != expected.shape:
        return False
    dtype, limits = expected.dtype, torch.finfo(expected.dtype)
    actual, expected = _wide(actual), _wide(expected)
    inside = reference.isfinite() & (reference.abs() <= limits.max / 2)
    # Where eager overflowed on the way, code that keeps more digits may not.
    lost = inside & ~expected.isfinite()
    if not bool(inside.any()) or not _agree_elsewhere(actual, expected, inside, lost):
        return False
    exact = reference[inside]
    if _is_near(actual[inside], exact, dtype):
        return True  # right, whatever eager makes of it
    eager_error, usable = (expected[inside] - exact).abs(), ~lost[inside]
    unit = limits.eps
    if tf32 or coarse:
        unit = _unit(rms(eager_error[usable]), rms(exact[usable].abs()), limits.eps)
    slack = OWN_UNITS * unit * exact.abs()
    if tf32 and dtype in _TF32_TYPES:
        usual = 0.0 if is_uneven(exact) else usual_size(exact) or 0.0
        slack = torch.maximum(slack, OWN_UNITS * TF32_EPSILON * exact.abs().clamp(min=usual))
    for other in moved:
        slack = torch.maximum(slack, 2 * (other[inside] - exact).abs())
    error = (actual[inside] - exact).abs()
    narrow = dtype in _NARROW or unit > limits.eps
    k = _K_16_BIT if narrow else _K
    if not _within(k, (error - slack).clamp(min=0), eager_error, exact.abs(), usable):
        return False
    # Two units of float32 hide little, and what TF32 cuts off has one sign.
    if not narrow or (tf32 and dtype in _TF32_TYPES):
        return True
    sizes = exact.abs().clamp(min=limits.tiny)
    judged = usable & steady(exact, [other[inside] for other in moved], unit * sizes, error)
    return within_at_large(k, error[judged], eager_error[judged], sizes[judged], unit)


def is_no_rounding(actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether eager is as near to ``reference`` as its dtype can be, and compiled far from it."""
    if not _is_inexact(expected) or reference.shape != expected.shape:
        return False
    errors = [(_wide(side) - reference).abs() for side in (actual, expected)]
    if not all(bool(error.isfinite().all()) for error in errors) or not expected.numel():
        return False
    unit = torch.finfo(expected.dtype).eps * float(reference.abs().max())
    own, other = (float(error.max()) for error in errors)
    return other <= _PRECISIONS * unit and own > _PLAINLY_COARSER * max(other, unit)


def is_coarse(expected: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether eager's error is that of a narrower type, so that values were rounded to one.

    What never passed it, such as a loss in float32, is held to its own digits. Whole numbers are
    right or wrong, and tell nothing.
    """
    if not _is_inexact(expected) or _is_narrow(expected):
        return True
    if reference.shape != expected.shape:
        return False
    known = reference.isfinite() & expected.isfinite()
    error, size = (_wide(expected) - reference).abs()[known], reference.abs()[known]
    epsilon = torch.finfo(expected.dtype).eps
    return _unit(rms(error), rms(size), epsilon) > epsilon


def _unit(eager_error: float, size: float, epsilon: float) -> float:
    """The precision that a leaf was computed in: that of its dtype, or what eager shows.

    Under autocast, or in TF32, numbers of 32 bits come from operations that keep 7 or 10 of
    them; on which side such an operation rounds, a last bit of its input decides.
    """
    shown = eager_error / size if size else 0.0
    return min(_COARSE * shown, _COARSEST) if shown > _PLAINLY_COARSER * epsilon else epsilon


def _agree_elsewhere(
    actual: torch.Tensor, expected: torch.Tensor, inside: torch.Tensor, lost: torch.Tensor
) -> bool:
    """Whether the sides are equal where float64 tells nothing: beyond the range of the dtype."""
    if not _same_specials(actual[~lost], expected[~lost]):
        return False
    outside = ~inside & expected.isfinite()
    return bool(actual[lost].isfinite().all() and (actual == expected)[outside].all())


def _within(
    k: float,
    error: torch.Tensor,
    eager_error: torch.Tensor,
    sizes: torch.Tensor,
    usable: torch.Tensor,
) -> bool:
    """Whether the errors are at most ``k`` times those of eager, where these are usable."""
    if not bool(usable.any()):
        return False
    noise, size = rms(eager_error[usable]), rms(sizes[usable])
    if size <= _NOTHING * noise:  # what ought to be zero is noise on both sides
        return rms(error) <= k * noise and float(error.max()) <= 2 * k * float(eager_error.max())
    if noise > _USABLE * size:
        # No yardstick for what is off by as much; but what is far nearer to float64 is right.
        greatest = float(eager_error[usable].max())
        return _FAR * rms(error) <= noise and _FAR * float(error.max()) <= greatest
    for part, near in kinds(sizes):
        scale = near & usable if bool((near & usable).any()) else usable
        if rms(error[near]) > k * rms(eager_error[scale]):
            return False
        if float(error[part].max()) > 2 * k * float(eager_error[scale].max()):
            return False
    return True


def _is_near(actual: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether all elements agree with float64 as far as the dtype's tolerance asks."""
    rtol, atol = Tolerance(None, None).for_dtype(dtype)
    return bool(((actual - exact).abs() <= atol + rtol * exact.abs()).all())


def _same_specials(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """NaN and infinities must stand where eager has them; float64 may be finite there."""
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    return bool((same | (actual.isfinite() & expected.isfinite())).all())


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _is_narrow(tensor: torch.Tensor) -> bool:
    return tensor.dtype in _NARROW


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.dtype.is_complex else torch.float64)
