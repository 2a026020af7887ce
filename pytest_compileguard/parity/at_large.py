"""Judges the errors of many elements together: what is done to all alike is no rounding.

Two units of a 16-bit type are 1.6 % of an element, within which a factor of 1.02 hides. But
rounding errors scatter: the root mean square of many is 0.3 of a unit for each time that they
were rounded, and that of eager is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

OWN_UNITS = 2.0
"""Units of the precision of an element that are no error: one rounding of each side."""
UNITS_AT_LARGE = 0.5
"""The same for the root mean square of many: rounding once makes 0.3 of a unit at most, and what
is done to all elements alike, such as a factor of 1.02, can't pass for it."""
_OCTAVES = 3
"""Powers of two that one magnitude spans: elements in it differ by less than a digit."""
_NEIGHBOURS = 2
"""Magnitudes to either side that an element is judged with where its own has few."""
_MANY = 256
"""Elements from which on a magnitude is judged alone: their mean error then scatters by 5 %."""
_FEW = 32
"""Elements below which even neighbours say too little: their mean error scatters by an eighth."""


def within_at_large(
    k: float, error: torch.Tensor, eager_error: torch.Tensor, sizes: torch.Tensor, unit: float
) -> bool:
    """Whether the errors of all elements together are those of rounding.

    The fewer there are, the further one rounding may lead: a single one has its own units.
    """
    if not error.numel():
        return True
    for _, near in kinds(sizes):
        units = max(UNITS_AT_LARGE, OWN_UNITS / math.sqrt(int(near.sum())))
        allowed = k * rms(eager_error[near]) + units * unit * rms(sizes[near])
        if rms(error[near]) > allowed:
            return False
    return True


def kinds(sizes: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Groups of elements of one magnitude, and those with which they are judged.

    The errors of a handful scatter: few elements are judged with their neighbours, and where
    these are few as well, with all others.
    """
    everything = torch.ones_like(sizes, dtype=torch.bool)
    logarithm = torch.log2(sizes.clamp(min=torch.finfo(torch.float64).tiny))
    group = torch.floor(logarithm / _OCTAVES).to(torch.int64)
    for number in torch.unique(group):
        part = group == number
        near = part if int(part.sum()) >= _MANY else (group - number).abs() <= _NEIGHBOURS
        yield part, near if int(near.sum()) >= _FEW else everything


def rms(values: torch.Tensor) -> float:
    """Root mean square of sizes."""
    if not values.numel():
        return 0.0
    greatest = float(values.max())
    if greatest == 0 or not math.isfinite(greatest):
        return greatest
    # Scaled, so that squares of huge values stay finite.
    return greatest * float((values / greatest).square().mean().sqrt())
