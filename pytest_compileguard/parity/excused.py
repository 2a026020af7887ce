"""Looks for faults that a tolerance excuses: float64 tells them from rounding."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from pytest_compileguard.isolation.storages import is_plain
from pytest_compileguard.parity.changes import (
    Change,
    change_is_hidden,
    change_is_wrong,
    small_changes,
)
from pytest_compileguard.parity.comparison import compare
from pytest_compileguard.parity.float64_runs import About, Float64Runs
from pytest_compileguard.parity.numbers import numbers_of
from pytest_compileguard.parity.quiet import (
    OTHER,
    WRONG_BY_FLOAT64,
    are_few,
    are_hidden,
    are_wrong,
    holds_atol,
    quiet_part,
    rounding_was_tried,
)
from pytest_compileguard.parity.slices import has_slices, hidden_slice, noise_of, wrong_slice
from pytest_compileguard.parity.tolerance import Tolerance

_OF_CHANGE = "the change that the call makes is "


class Compared(NamedTuple):
    """A leaf whose two sides agree within the tolerance."""

    about: About
    actual: Any
    expected: Any
    before: torch.Tensor | None
    """What it held before the call, if it was there."""


def excused_fault(
    leaf: Compared, tolerance: Tolerance, runs: Float64Runs, epsilon: float
) -> str | None:
    """Say what is wrong with it all the same.

    ``epsilon`` is the unit of the coarsest type that the call computes in, 0 for that of the leaf.
    """
    actual, expected = numbers_of(leaf.actual), numbers_of(leaf.expected)
    if actual is None or expected is None or not (is_plain(actual) and is_plain(expected)):
        return None
    if not holds_atol(expected, tolerance):
        return None
    if torch.equal(actual, expected):
        return None
    about = leaf, actual, expected, tolerance, runs
    narrow = epsilon > torch.finfo(expected.dtype).eps
    # A few numbers may be what is left of larger ones, in a type that none of the runs rounds to.
    told = None if narrow and are_few(expected, tolerance) else _quiet_fault(*about)
    return told or _changed_fault(*about) or _slice_fault(*about, epsilon)


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
    moved = runs.moved(leaf.about, leaf.expected)
    if not rounding_was_tried(expected, exact, moved):
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
    moved = runs.moved(leaf.about, leaf.expected)
    if not rounding_was_tried(expected, exact, moved):
        return None
    if not change_is_wrong(change, exact, moved, tolerance):
        return None
    return _OF_CHANGE + WRONG_BY_FLOAT64 + _told(*small_changes(change, tolerance))


def _slice_fault(  # all that is known of a leaf
    leaf: Compared,
    actual: torch.Tensor,
    expected: torch.Tensor,
    tolerance: Tolerance,
    runs: Float64Runs,
    epsilon: float,
) -> str | None:
    """Look at rows and columns that are small beside the rest."""
    if not has_slices(actual, expected, tolerance):
        return None
    noise = noise_of(expected, epsilon)
    if hidden_slice(actual, expected, tolerance, noise) is None:
        return None
    exact = runs.exact(leaf.about, leaf.expected)
    if exact is None or wrong_slice(actual, expected, exact, (), tolerance, noise) is None:
        return None
    moved = runs.moved(leaf.about, leaf.expected)
    found = wrong_slice(actual, expected, exact, moved, tolerance, noise)
    if found is None:
        return None
    small = quiet_part(actual, expected, tolerance).select(*found), expected.select(*found)
    return f"in index {found.at} of dimension {found.dim}, {WRONG_BY_FLOAT64}{_told(*small)}"


def _told(actual: torch.Tensor, expected: torch.Tensor) -> str:
    found = compare(actual, expected, Tolerance(OTHER, 0.0), form=False)
    return "" if found is None else f": {found.message}"
