"""Settles a dispute: which side is nearer to the result in float64?

A compiled result outside the tolerance need not be wrong; fused code often keeps more
digits than eager. So a disputed leaf is held against a float64 run of the eager code.
The compiled side is acquitted if its error is at most ``k`` times that of eager, beyond
two units of the precision of each element itself: for the root mean square error, and,
twice as much, for the greatest. PyTorch's own benchmarks judge accuracy so, with k = 2
and 3 for 16-bit types (``torch._dynamo.utils.same``). Two things are ours. The greatest
error is bounded, since one wrong element in a million hardly moves a mean. And elements
are judged among others of their magnitude, since a mask of -1e9, or one loud channel,
would buy freedom for all the rest. (Kinds with few elements are judged with their neighbours,
and eager may have been lucky there: the errors of a handful scatter.) A compiled leaf that
agrees with float64 within the tolerance of its dtype is right, also where eager is not: where it
overflowed on the way, or where its rounding decided a softmax.

Where a function jumps (the derivative of ``relu`` at 0, an ``argmax``), rounding alone
decides on which side a value falls. So how far runs in float64 from inputs moved by a unit
of their precision differ is no error: an element may be off by twice that much more. What stands
on a jump by itself, as a mask of ones does, is not moved (``isolation.widening``, ``jumps``);
nor is an input of 16 bits by more than a unit of float32, where eager's error shows that a float32
leaf of it has all its digits: it is exact. Where all elements share the error of one sum in which
most digits cancelled, as a one-pass variance, eager's may be small by luck: further runs move what
sums are made of, and what they make (``rounded_operators``).
Where the call makes products in a narrower type, further runs move the factors of these and
nothing else: they count for elements of which eager's own error shows that such products are
in them, and for those that jump. Many jumps hide what is done to all elements alike, so the
projection of the compiled leaf on the exact one must be that of rounding as well. A whole
number, such as an index, is right if it is that of the float64 run; where products are narrow,
also if one of those runs has it and no more of them are others than in one such run.

Before all that stands ``precision``: differences of some units are no dispute.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pytest_compileguard.parity.at_large import (
    OWN_UNITS,
    UNITS_AT_LARGE,
    are_as_large,
    by_luck,
    kinds,
    rms,
    within_at_large,
)
from pytest_compileguard.parity.jumps import reach, steady
from pytest_compileguard.parity.precision import (
    NARROW,
    PRECISIONS,
    TF32_EPSILON,
    TF32_TYPES,
    is_inexact,
    is_narrow,
    is_uneven,
    same_specials,
    usual_size,
    wide,
)
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
_PLAINLY_COARSER = 64.0
"""Units of the dtype beyond which eager's error is that of a narrower type: six times what sums of
float32 were seen to differ by."""
_COARSE = 4.0
"""Size of the unit of such a type, as a multiple of eager's root mean square error."""
_COARSEST = 2.0**-7
"""The greatest such unit: that of bfloat16."""
_CUT_OFF = 8.0
"""Units that cutting off, which has one sign, makes of all elements behind several products."""


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
    if not is_inexact(expected) or not is_wide or reference.shape != expected.shape:
        return False
    dtype, limits = expected.dtype, torch.finfo(expected.dtype)
    actual, expected = wide(actual), wide(expected)
    # Near the end of the range, rounding may lead beyond it.
    inside = reference.isfinite() & (reference.abs() <= limits.max)
    inside &= actual.isfinite() | (reference.abs() <= limits.max / 2)
    # Where eager overflowed on the way, code that keeps more digits may not.
    lost = inside & ~expected.isfinite()
    right = ~inside & _is_right_at_the_end(actual, reference, dtype)
    if not bool(inside.any()) or not _agree_elsewhere(actual, expected, inside, lost, right):
        return False
    exact = reference[inside]
    if _is_near(actual[inside], exact, dtype):
        return True  # right, whatever eager makes of it
    eager_error, usable = (expected[inside] - exact).abs(), ~lost[inside]
    unit = limits.eps
    if tf32 or coarse:
        unit = _unit(rms(eager_error[usable]), rms(exact[usable].abs()), limits.eps)
    slack = OWN_UNITS * unit * exact.abs()
    if tf32 and dtype in TF32_TYPES:
        usual = 0.0 if is_uneven(exact) else usual_size(exact) or 0.0
        slack = torch.maximum(slack, OWN_UNITS * TF32_EPSILON * exact.abs().clamp(min=usual))
    furthest = torch.zeros_like(slack)
    for other in moved:
        furthest = torch.maximum(furthest, reach(other[inside], exact))
    slack = torch.maximum(slack, 2 * furthest)
    error = (actual[inside] - exact).abs()
    narrow = dtype in NARROW or unit > limits.eps
    k = _K_16_BIT if narrow else _K
    if not _within(k, (error - slack).clamp(min=0), eager_error, exact.abs(), usable):
        return False
    if not narrow:
        return True  # two units of float32 hide little
    runs = [other[inside] for other in moved]
    cut = tf32 and dtype in TF32_TYPES
    bias = _CUT_OFF * TF32_EPSILON if cut else UNITS_AT_LARGE * unit
    alike = are_as_large(actual[inside], expected[inside], exact, runs, bias)
    sizes = exact.abs().clamp(min=limits.tiny)
    judged = usable & steady(exact, runs, unit * sizes, error)
    among = error[judged], eager_error[judged], sizes[judged]
    return alike and (cut or within_at_large(k, *among, unit, furthest[judged]))


def is_no_rounding(actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether eager is as near to ``reference`` as its dtype can be, and compiled far from it."""
    if not is_inexact(expected) or reference.shape != expected.shape:
        return False
    errors = [(wide(side) - reference).abs() for side in (actual, expected)]
    if not all(bool(error.isfinite().all()) for error in errors) or not expected.numel():
        return False
    unit = torch.finfo(expected.dtype).eps * float(reference.abs().max())
    own, other = (float(error.max()) for error in errors)
    return other <= PRECISIONS * unit and own > _PLAINLY_COARSER * max(other, unit)


def is_coarse(expected: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether a leaf is of 16 bits, or eager's error that of a type narrower than its own.

    What never passed such a type, as a loss in float32, is held to its own digits.
    """
    if is_narrow(expected):
        return True
    if not is_inexact(expected) or reference.shape != expected.shape:
        return False
    known = reference.isfinite() & expected.isfinite()
    error, size = (wide(expected) - reference).abs()[known], reference.abs()[known]
    epsilon = torch.finfo(expected.dtype).eps
    return _unit(rms(error), rms(size), epsilon) > epsilon


def _unit(eager_error: float, size: float, epsilon: float) -> float:
    """The precision that a leaf was computed in: that of its dtype, or what eager shows.

    Under autocast, or in TF32, numbers of 32 bits come from operations that keep 7 or 10 of
    them; on which side such an operation rounds, a last bit of its input decides.
    """
    shown = eager_error / size if size else 0.0
    return min(_COARSE * shown, _COARSEST) if shown > _PLAINLY_COARSER * epsilon else epsilon


def _is_right_at_the_end(
    actual: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Where what is infinite, or beyond the range, agrees with float64, whatever eager has."""
    rtol, atol = Tolerance(None, None).for_dtype(dtype)
    sizes = reference.abs()
    overflown = sizes >= (1 - rtol) * torch.finfo(dtype).max
    infinite = actual.isinf() & overflown & (actual.sgn() == reference.sgn())
    near = (actual - reference).abs() <= atol + rtol * sizes
    return reference.isfinite() & (infinite | near)


def _agree_elsewhere(
    actual: torch.Tensor,
    expected: torch.Tensor,
    inside: torch.Tensor,
    lost: torch.Tensor,
    right: torch.Tensor,
) -> bool:
    """Whether the sides are equal where float64 tells nothing: beyond the range of the dtype."""
    if not same_specials(actual[~lost & ~right], expected[~lost & ~right]):
        return False
    outside = ~inside & ~right & expected.isfinite()
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
        luck = by_luck(eager_error[scale], sizes[scale])
        for errors, times, measure in ((error[near], k, rms), (error[part], 2 * k, _greatest)):
            # Luck makes what is seen here smaller than it usually is, but than among all at most.
            seen, usual = measure(eager_error[scale]), measure(eager_error[usable])
            if measure(errors) > times * min(luck * seen, max(seen, usual)):
                return False
    return True


def _greatest(values: torch.Tensor) -> float:
    return float(values.max())


def _is_near(actual: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether all elements agree with float64 as far as the dtype's tolerance asks."""
    rtol, atol = Tolerance(None, None).for_dtype(dtype)
    return bool(((actual - exact).abs() <= atol + rtol * exact.abs()).all())
