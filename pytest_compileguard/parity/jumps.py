"""Where a function jumps, rounding decides on which side of it a value falls.

What jumps is seen in runs from inputs that rounding moved. They try some ways to round, and neither
side need be one of them: where many elements jump, some do in neither run but in one of the sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from pytest_compileguard.parity.at_large import rms
from pytest_compileguard.parity.precision import NARROW, is_inexact, wide

_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_STEADY = 8.0
"""Units that a result moves with its inputs where nothing jumps: beyond, its own error decides."""
_FAR_OFF = 0.05
"""Share of its size by which a run is off that went another way."""
_FAR_OFF_SINGLE = 0.005
"""The same of a few numbers: a step of some per cent in a loss, where nothing averages."""
_MOST = 0.5
"""The same of each element's own size, in the root mean square: as if a quarter of them jumped."""
_SINGLE = 4
"""Numbers that are a few."""
_QUIET = 1e-6
"""Share of the usual size below which a number ought to be 0, and its own size says nothing."""
_UNTOUCHED = 64.0
"""Times that eager, which rounds less than a run moves, is nearer at the least where it did not."""


def telling(
    moved: Sequence[torch.Tensor], expected: torch.Tensor, exact: torch.Tensor
) -> list[torch.Tensor]:
    """Leave of moved runs none where what moves them can't be rounding.

    Eager rounds too. Where half of the runs jump far and it does not, or one jumps as a whole,
    values stand on a jump by themselves, as a third that is compared with a third: nothing moves
    them but the run. In 16 bits jumps are many, and eager may be where it is by chance. ``moved``
    are pairs that move in opposite ways.
    """
    judged = is_inexact(expected) and expected.dtype not in NARROW
    if not moved or not judged or expected.shape != exact.shape:
        return list(moved)
    known = expected.isfinite() & exact.isfinite()
    sizes = exact[known].abs()
    usual = rms(sizes)
    if not usual:
        return list(moved)
    each = sizes.clamp(min=_QUIET * usual)
    jumps = [jump[known] for pair in _pairs(moved) for jump in _jumps(pair, exact)]
    own = (wide(expected) - exact)[known].abs()

    def of_all(gaps: torch.Tensor) -> float:
        return rms(gaps.nan_to_num(nan=math.inf, posinf=math.inf)) / usual

    def of_each(gaps: torch.Tensor) -> float:
        """What a loud row is makes the jumps of all others no smaller."""
        return rms((gaps / each).nan_to_num(nan=1.0).clamp(max=1.0))

    def are_far(share: Callable[[torch.Tensor], float], middle: float) -> bool:
        found = sorted(map(share, jumps))
        typical, furthest = found[len(found) // 2], found[-1]
        far = max(typical if typical > middle else 0.0, furthest if furthest > _MOST else 0.0)
        return far > 0 and share(own) * _UNTOUCHED < far

    far_off = _FAR_OFF if sizes.numel() > _SINGLE else _FAR_OFF_SINGLE
    return [] if are_far(of_all, far_off) or are_far(of_each, _MOST) else list(moved)


def _pairs(moved: Sequence[torch.Tensor]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The runs of each seed; each with itself where some of them could not be made."""
    whole = len(moved) % 2 == 0
    return zip(moved[::2], moved[1::2], strict=True) if whole else zip(moved, moved, strict=True)


def _jumps(pair: tuple[torch.Tensor, torch.Tensor], exact: torch.Tensor) -> Iterator[torch.Tensor]:
    """How far each of two runs jumps: what is smooth moves as far in both, and cancels."""
    both = (pair[0] + pair[1] - 2 * exact).abs()
    return (torch.minimum((run - exact).abs(), both) for run in pair)


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
