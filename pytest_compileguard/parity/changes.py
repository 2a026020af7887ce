"""Finds wrong updates that are small beside the values they are applied to.

A tolerance is one of values. With a tiny learning rate, or in a slow average, a parameter of 1 is
changed by 1e-6, and any change at all is within the tolerance. So what a call makes of a value
that was there before is compared as a change too, after less before, where the tolerance would
excuse most of it. The float64 run, which starts from the same values, judges as it does of quiet
numbers: eager's changes must be near it, and most of compiled's are not.

A change is told only from the rounding of the value that carries it, in steps of the precision of
its dtype: 6 steps can be told from nothing, and are wrong if off by 4. Less is left alone. For
types of 16 bits nothing is left to be judged: their tolerance is hardly more than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from pytest_compileguard.isolation.storages import is_plain
from pytest_compileguard.parity.comparison import gap_dtype, pieces
from pytest_compileguard.parity.quiet import MOST, OTHER, PART_OF_LEAF, USABLE, holds_atol
from pytest_compileguard.parity.tolerance import Tolerance

_CLEAR_STEPS = 6.0
"""Rounding steps of its value from which on a change can be judged: one rounding is half a step."""
_WRONG_STEPS = 4.0
"""By so many steps a wrong change is off at least: few optimizers round thrice."""
_SOUND_STEPS = 2.0
"""By so many steps eager may be off: half as many, so that no noise decides who is right."""
_SOUND = 0.1
"""Relative difference up to which eager's change agrees with float64, for the same reason."""


class Change(NamedTuple):
    """What both sides made of a tensor; all have one shape."""

    actual: torch.Tensor
    expected: torch.Tensor
    before: torch.Tensor

    def is_judged(self, tolerance: Tolerance) -> bool:
        """Whether it can be judged as a change: numbers that are rounded, in plain tensors."""
        same = self.before.dtype == self.expected.dtype and self.before.shape == self.expected.shape
        return holds_atol(self.expected, tolerance) and same and all(map(is_plain, self))


class _Part(NamedTuple):
    """One piece of a change, in the widest type."""

    actual: torch.Tensor
    expected: torch.Tensor
    before: torch.Tensor
    step: torch.Tensor
    """A step of rounding of the value."""
    small: torch.Tensor
    """Where the change is more than rounding, and the tolerance excuses much of it."""


def change_is_hidden(change: Change, tolerance: Tolerance) -> bool:
    """Whether most of the small changes are other ones than eager's."""
    if not change.is_judged(tolerance):
        return False
    count, large, off = 0, 0, 0
    for part in _parts(change, tolerance):
        size, gap = (part.expected - part.before).abs(), (part.actual - part.expected).abs()
        count += int(part.small.count_nonzero())
        large += int(((size >= _CLEAR_STEPS * part.step) & ~part.small).count_nonzero())
        off += int((_is_off(gap, size, part.step) & part.small).count_nonzero())
    return count > PART_OF_LEAF * (count + large) and off > MOST * count


def change_is_wrong(
    change: Change, reference: torch.Tensor, moved: Sequence[torch.Tensor], tolerance: Tolerance
) -> bool:
    """Whether most of compiled's small changes are off from float64, and few of eager's."""
    if any(not is_plain(run) or run.shape != change.before.shape for run in (reference, *moved)):
        return False
    count, off, eager_off = 0, 0, 0
    runs = [pieces(run, change.before) for run in (reference, *moved)]
    for part, (exact, _), *others in zip(_parts(change, tolerance), *runs, strict=True):
        size, error = (exact - part.before).abs(), (part.actual - exact).abs()
        for other, _ in others:
            # These runs start from values that are off by a step themselves.
            error = error - 2 * ((other - exact).abs() - part.step).clamp(min=0)
        own = (part.expected - exact).abs()
        sound = own <= torch.maximum(_SOUND * size, _SOUND_STEPS * part.step)
        count += int(part.small.count_nonzero())
        off += int((_is_off(error, size, part.step) & part.small).count_nonzero())
        eager_off += int((~sound & part.small).count_nonzero())
    return eager_off <= USABLE * count and off > MOST * count


def small_changes(change: Change, tolerance: Tolerance) -> tuple[torch.Tensor, torch.Tensor]:
    """Both sides' changes, where they are small; eager's in place of all others."""
    own, eager = [], []
    for part in _parts(change, tolerance, whole=True):
        eager.append(part.expected - part.before)
        own.append(torch.where(part.small, part.actual - part.before, eager[-1]))
    return own[0], eager[0]


def _is_off(error: torch.Tensor, size: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    return error > torch.maximum(OTHER * size, _WRONG_STEPS * step)


def _parts(change: Change, tolerance: Tolerance, *, whole: bool = False) -> Iterator[_Part]:
    rtol, atol = tolerance.for_dtype(change.expected.dtype)
    epsilon, wide = torch.finfo(change.expected.dtype).eps, gap_dtype(change.expected)
    cuts = [(change.before, change.expected)] if whole else pieces(change.before, change.expected)
    actuals = [(change.actual, None)] if whole else pieces(change.actual, change.expected)
    for (before, expected), (actual, _) in zip(cuts, actuals, strict=True):
        a, e, b = actual.to(wide), expected.to(wide), before.to(wide)
        step = epsilon * torch.maximum(e.abs(), b.abs())
        size, excused = (e - b).abs(), (atol + rtol * e.abs()) / OTHER
        small = (size >= _CLEAR_STEPS * step) & (size > 0) & (size <= excused)
        yield _Part(actual=a, expected=e, before=b, step=step, small=small)
