"""Where a function jumps, rounding decides on which side of it a value falls.

What jumps is seen in runs from inputs that rounding moved. They try some ways to round, and neither
side need be one of them: where many elements jump, some do in neither run but in one of the sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from pytest_compileguard.parity.at_large import rms
from pytest_compileguard.parity.precision import NARROW, is_inexact

_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_STEADY = 8.0
"""Units that a result moves with its inputs where nothing jumps: beyond, its own error decides."""
_FAR_OFF = 0.05
"""Share of its size by which a run is off that went another way."""
_UNTOUCHED = 64.0
"""Times that eager, which rounds less than a run moves, is nearer at the least where it did not."""


def telling(
    moved: Sequence[torch.Tensor], expected: torch.Tensor, exact: torch.Tensor
) -> list[torch.Tensor]:
    """Leave of moved runs none where what moves them can't be rounding.

    Eager rounds too. Where half of the runs are far off and it is not, values stand on a jump by
    themselves, as a third that is compared with a third: nothing moves them but the run. Of two
    runs that move in opposite ways, one passes such a jump. In 16 bits jumps are many, and eager
    may be where it is by chance.
    """
    judged = is_inexact(expected) and expected.dtype not in NARROW
    if not moved or not judged or expected.shape != exact.shape:
        return list(moved)
    known = expected.isfinite() & exact.isfinite()
    size = rms(exact[known].abs())
    if not size:
        return list(moved)
    runs = [(run - exact)[known].abs() for run in moved]
    off = sorted(rms(run.nan_to_num(nan=math.inf, posinf=math.inf)) for run in runs)
    typical = off[len(off) // 2]
    own = rms((expected - exact)[known].abs())
    untouched = typical > _FAR_OFF * size and own * _UNTOUCHED < typical
    return [] if untouched else list(moved)


def reach(run: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """How far a moved run is off; nothing where it left what is defined, which excuses nothing."""
    gap = (run - exact).abs()
    return torch.where(gap.isfinite(), gap, 0.0)


def steady(
    exact: torch.Tensor, moved: Sequence[torch.Tensor], units: torch.Tensor, error: torch.Tensor
) -> torch.Tensor:
    """Where a result moves with its inputs, and does not jump.

    All have one shape; ``units`` are those of the precision of each element, ``error`` how far the
    compiled side is off. As many elements as were seen to jump may have jumped unseen: the worst.
    """
    found = torch.ones_like(units, dtype=torch.bool)
    for other in moved:
        found &= (other - exact).abs() <= _STEADY * units
    among, seen = error[found], int((~found).sum())
    if seen >= among.numel():
        return torch.zeros_like(found)
    return found & (error <= among.kthvalue(among.numel() - seen).values) if seen else found


def jumps_alone(
    exact: torch.Tensor, moved: Sequence[torch.Tensor], epsilon: float
) -> list[torch.Tensor]:
    """Leave of moved runs only what jumps: what one of them moves, and another leaves in place.

    ``epsilon`` is the unit of the elements' own precision. Whatever is smooth moves in each run.
    """
    stays = torch.zeros_like(exact, dtype=torch.bool)
    for other in moved:
        stays |= (other - exact).abs() <= _STEADY * epsilon * exact.abs()
    return [torch.where(stays, other, exact) for other in moved]


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether rounding changes a number only where it jumps: an index, a count, a truth value."""
    return tensor.dtype in _WHOLE


def is_among(
    actual: torch.Tensor,
    expected: torch.Tensor,
    exact: torch.Tensor,
    moved: Sequence[torch.Tensor] = (),
) -> bool:
    """Whether each whole number is that of eager, of the float64 run, or of one that moved.

    As many may be others than in float64 as in the run that is furthest from it.
    """
    if exact.shape != expected.shape:
        return False
    found, most = (actual == expected) | (actual == exact), 0
    for run in moved:
        found |= actual == run
        most = max(most, int((run != exact).sum()))
    others = int(((actual != exact) & (actual != expected)).sum())
    return bool(found.all()) and others <= most
