"""Looks for faults that a tolerance excuses: float64 tells them from rounding."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from pytest_compileguard.parity.changes import (
    Change,
    change_is_hidden,
    change_is_wrong,
    small_changes,
)
from pytest_compileguard.parity.comparison import Tolerance, compare
from pytest_compileguard.parity.float64_runs import About, Float64Runs
from pytest_compileguard.parity.numbers import numbers_of
from pytest_compileguard.parity.quiet import (
    OTHER,
    WRONG_BY_FLOAT64,
    are_hidden,
    are_wrong,
    quiet_part,
    rounding_was_tried,
)

_OF_CHANGE = "the change that the call makes is "


class Compared(NamedTuple):
    """A leaf whose two sides agree within the tolerance."""

    about: About
    actual: Any
    expected: Any
    before: torch.Tensor | None
    """What it held before the call, if it was there."""


def excused_fault(leaf: Compared, tolerance: Tolerance, runs: Float64Runs) -> str | None:
    """Say what is wrong with it all the same."""
    actual, expected = numbers_of(leaf.actual), numbers_of(leaf.expected)
    if actual is None or expected is None or torch.equal(actual, expected):
        return None
    return _quiet_fault(leaf, actual, expected, tolerance, runs) or _changed_fault(
        leaf, actual, expected, tolerance, runs
    )


def _quiet_fault(
    leaf: Compared,
    actual: torch.Tensor,
    expected: torch.Tensor,
    tolerance: Tolerance,
    runs: Float64Runs,
) -> str | None:
    """Look at what only the absolute tolerance excuses."""
    if not are_hidden(actual, expected, tolerance):
        return None
    exact = runs.exact(leaf.about, leaf.expected)
    # Without a reference nothing tells a fault from noise: sums in which all digits cancel.
    if exact is None or not are_wrong(actual, expected, exact, (), tolerance):
        return None
    moved, tensor = runs.moved(leaf.about, leaf.expected), isinstance(leaf.expected, torch.Tensor)
    if not tensor and not rounding_was_tried(expected, exact, moved):
        return None
    if not are_wrong(actual, expected, exact, moved, tolerance):
        return None
    return WRONG_BY_FLOAT64 + _told(quiet_part(actual, expected, tolerance), expected)


def _changed_fault(
    leaf: Compared,
    actual: torch.Tensor,
    expected: torch.Tensor,
    tolerance: Tolerance,
    runs: Float64Runs,
) -> str | None:
    """Look at changes that are small beside the values that they are made of."""
    if leaf.before is None:
        return None
    change = Change(actual, expected, leaf.before.detach())
    if not change_is_hidden(change, tolerance):
        return None
    exact = runs.exact(leaf.about, leaf.expected)
    if exact is None or not change_is_wrong(change, exact, (), tolerance):
        return None
    if not change_is_wrong(change, exact, runs.moved(leaf.about, leaf.expected), tolerance):
        return None
    return _OF_CHANGE + WRONG_BY_FLOAT64 + _told(*small_changes(change, tolerance))


def _told(actual: torch.Tensor, expected: torch.Tensor) -> str:
    found = compare(actual, expected, Tolerance(OTHER, 0.0), form=False)
    return "" if found is None else f": {found.message}"
