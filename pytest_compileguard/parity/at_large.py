"""Judges the errors of many elements together: what is done to all alike is no rounding.

Two units of a 16-bit type are 1.6 % of an element, within which a factor of 1.02 hides. But
rounding errors scatter: the root mean square of many is 0.3 of a unit for each time that they
were rounded, and that of eager is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

OWN_UNITS = 2.0
"""Units of the precision of an element that are no error: one rounding of each side."""
UNITS_AT_LARGE = 0.5
"""The same for the root mean square of many: rounding once makes 0.3 of a unit at most, and what
is done to all elements alike, such as a factor of 1.02, can't pass for it."""
_DEVIATIONS = 1.5
"""Times that what rounding makes of all together may exceed what runs make whose factors move by a
whole unit, three times what rounding to the nearest moves them by."""
_OCTAVES = 3
"""Powers of two that one magnitude spans: elements in it differ by less than a digit."""
_NEIGHBOURS = 2
"""Magnitudes to either side that an element is judged with where its own has few."""
_MANY = 256
"""Elements from which on a magnitude is judged alone: their mean error then scatters by 5 %."""
_FEW = 32
"""Elements below which eager's error among them may be small by chance."""
_MOST_BY_LUCK = 0.1
"""Share of the size of numbers that chance may explain."""
_LUCK = 100.0
"""Times that the error of one element may by chance be smaller than it usually is."""


def within_at_large(
    k: float,
    error: torch.Tensor,
    eager_error: torch.Tensor,
    sizes: torch.Tensor,
    unit: float,
    moved: torch.Tensor,
) -> bool:
    """Whether the errors of all elements together are those of rounding.

    The fewer there are, the further one rounding may lead: a single one has its own units, or what
    runs that rounding ``moved`` differ by, where digits cancel.
    """
    if not error.numel():
        return True
    for _, near in kinds(sizes):
        size = unit * rms(sizes[near])
        alone = max(OWN_UNITS * size, rms(moved[near])) / math.sqrt(int(near.sum()))
        allowed = k * rms(eager_error[near]) + max(UNITS_AT_LARGE * size, alone)
        if rms(error[near]) > allowed:
            return False
    return True


def kinds(sizes: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Groups of elements of one magnitude, and those with which they are judged.

    The errors of a handful scatter: few elements are judged with their neighbours. What is 0 has
    no magnitude; what rounding makes of it is seen among all.
    """
    none = sizes == 0
    logarithm = torch.log2(torch.where(none, 1.0, sizes))
    group = torch.floor(logarithm / _OCTAVES).to(torch.int64)
    for number in torch.unique(group[~none]):
        part = (group == number) & ~none
        close = ((group - number).abs() <= _NEIGHBOURS) & ~none
        yield part, part if int(part.sum()) >= _MANY else close
    if bool(none.any()):
        yield none, none if int(none.sum()) >= _MANY else torch.ones_like(none)


def by_luck(errors: torch.Tensor, sizes: torch.Tensor) -> float:
    """Times that the errors of a few elements may be smaller by chance than they usually are.

    So few in a thousand of so many normally distributed numbers are that small together: one is a
    hundred times smaller, eight are five times. Chance excuses no more than a tenth of the numbers.
    """
    noise, count = rms(errors), max(errors.numel(), 1)
    if count >= _FEW or not noise:
        return 1.0
    most = _MOST_BY_LUCK * rms(sizes) / noise
    return max(1.0, min(1 + _LUCK / (count * math.sqrt(count)), most))


def rms(values: torch.Tensor) -> float:
    """Root mean square of sizes."""
    if not values.numel():
        return 0.0
    greatest = float(values.max())
    if greatest == 0 or not math.isfinite(greatest):
        return greatest
    # Scaled, so that squares of huge values stay finite.
    return greatest * float((values / greatest).square().mean().sqrt())


def are_as_large(
    actual: torch.Tensor,
    expected: torch.Tensor,
    exact: torch.Tensor,
    moved: Sequence[torch.Tensor],
    bias: float,
) -> bool:
    """Whether all elements together are no larger or smaller than rounding makes them.

    What jumps hides a factor in each element, but not in their projection on what is exact: there
    the jumps of many cancel, and runs that rounding moved tell how far. ``bias`` is what may be
    done to all alike.
    """
    if not moved:
        return True
    usable = expected.isfinite()
    bias = max(bias, OWN_UNITS * bias / UNITS_AT_LARGE / math.sqrt(exact.numel()))
    off = math.sqrt(sum(_off(run, exact) ** 2 for run in moved) / len(moved))
    own = _off(expected[usable], exact[usable])
    return _off(actual, exact) <= bias + own + _DEVIATIONS * off


def _off(values: torch.Tensor, exact: torch.Tensor) -> float:
    """By how much the projection of numbers on exact ones differs from 1."""
    defined = values.isfinite()
    values, exact = values[defined], exact[defined]
    square = exact.abs().square().sum() if exact.numel() else 0.0
    return abs(float((values * exact.conj()).sum().abs() / square) - 1) if square else 0.0
