"""Settles a dispute: which side is nearer to the result in float64?

A compiled result outside the tolerance need not be wrong; fused code often keeps more
digits than eager. So a disputed leaf is held against a float64 run of the eager code.
The compiled side is acquitted if its error is at most ``k`` times that of eager, plus a
floor of a few units of the dtype's precision, both for the root mean square error and
for the greatest error. PyTorch's own benchmarks judge accuracy so, with k = 2 and 3 for
16-bit types (``torch._dynamo.utils.same``); the bound on the greatest error is ours, since
one wrong element in a million hardly moves a mean.

Where a function jumps (the derivative of ``relu`` at 0, an ``argmax``), rounding alone
decides on which side a value falls. So what two runs in float64 from inputs moved by a unit
of their precision differ by is no error: an element may be off by twice that much more.

Some calls have no such reference: those that draw random numbers, or that fail in float64.
There a leaf is acquitted only if its error is a small multiple of the precision of its
dtype, relative to the leaf as a whole: what another order of summation can explain.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_K = 2.0
_K_16_BIT = 3.0
_FLOOR_RMS = 4.0
_FLOOR_GREATEST = 16.0
# Farther than this from float64, eager itself went another way and can't be a yardstick.
_USABLE = 0.1


_PRECISIONS = 64.0
_PRECISIONS_16_BIT = 4.0


def within_precision(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether the two differ by no more than rounding explains. Both have one shape."""
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        return False
    finite = expected.isfinite()
    if not _same_specials(actual, expected) or not bool(finite.any()):
        return False
    wide = torch.complex128 if expected.dtype.is_complex else torch.float64
    exact = expected[finite].to(wide)
    gap = (actual[finite].to(wide) - exact).abs()
    narrow = expected.dtype in (torch.float16, torch.bfloat16)
    factor = _PRECISIONS_16_BIT if narrow else _PRECISIONS
    return float(gap.max()) <= factor * torch.finfo(expected.dtype).eps * _rms(exact.abs())


def acquits(
    actual: torch.Tensor,
    expected: torch.Tensor,
    reference: torch.Tensor,
    moved: Sequence[torch.Tensor] = (),
) -> bool:
    """Whether the compiled leaf is about as near to ``reference`` as the eager one is.

    All have one shape; ``reference`` and ``moved``, the same run from inputs that rounding
    moved, are float64 or complex128.
    """
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        return False
    if reference.dtype not in (torch.float64, torch.complex128):
        return False
    if reference.shape != expected.shape or not _same_specials(actual, expected):
        return False
    finite = reference.isfinite() & expected.isfinite()
    if not bool(finite.any()):
        return False
    exact = reference[finite]
    error = (actual[finite].to(exact.dtype) - exact).abs()
    eager_error = (expected[finite].to(exact.dtype) - exact).abs()
    if _rms(eager_error) > _USABLE * _rms(exact.abs()):
        return False
    epsilon = torch.finfo(expected.dtype).eps
    k = _K_16_BIT if expected.dtype in (torch.float16, torch.bfloat16) else _K
    rms_bound = k * _rms(eager_error) + _FLOOR_RMS * epsilon * _rms(exact.abs())
    greatest = float(exact.abs().max())
    greatest_bound = 2 * k * float(eager_error.max()) + _FLOOR_GREATEST * epsilon * greatest
    slack = torch.zeros_like(error)
    for other in moved:
        slack = torch.maximum(slack, 2 * (other[finite] - exact).abs())
    within = bool((error <= greatest_bound + slack).all())
    return within and _rms((error - slack).clamp(min=0)) <= rms_bound


def _same_specials(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """NaN and infinities must stand where eager has them; float64 may be finite there."""
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    return bool((same | (actual.isfinite() & expected.isfinite())).all())


def _rms(values: torch.Tensor) -> float:
    return float(values.to(torch.float64).square().mean().sqrt())
