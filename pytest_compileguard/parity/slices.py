"""Finds a wrong row or column whose numbers are tiny beside the rest of a leaf.

Where quiet numbers (``parity/quiet.py``) are a small part of a leaf, they are judged only by slices
along one dimension, such as ``out[:, 0]``, and more strictly, since a leaf has many slices and each
could be the one where noise looks like a fault. So eager's numbers must agree with float64 to two
digits where most of compiled's don't to one, and what rounding makes of numbers as large as the
rest of the leaf is let pass: a small number may be what is left of large ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from pytest_compileguard.isolation.storages import is_plain
from pytest_compileguard.parity.comparison import gap, placed_pieces
from pytest_compileguard.parity.precision import usual_size
from pytest_compileguard.parity.quiet import (
    FEWEST,
    MOST,
    OTHER,
    PART_OF_LEAF,
    USABLE,
    holds_atol,
    quiet,
)
from pytest_compileguard.parity.tolerance import Tolerance

_NOISE_STEPS = 8.0
"""Rounding steps of the leaf's usual number that are let pass: several operations round."""
_DIGITS = 0.01
"""Relative difference up to which eager agrees with float64: a thirtieth of that of a fault."""


class Slice(NamedTuple):
    """One index along one dimension of a leaf."""

    dim: int
    at: int


class _Counts(NamedTuple):
    """Numbers of elements in the slices along one dimension."""

    small: torch.Tensor
    nonzero: torch.Tensor
    off: torch.Tensor
    unsound: torch.Tensor
    """Where eager does not agree with float64."""


def noise_of(expected: torch.Tensor, epsilon: float) -> float:
    """What rounding may make of the usual number of a leaf, in a type of this unit or its own."""
    unit = max(torch.finfo(expected.dtype).eps, epsilon)
    return _NOISE_STEPS * unit * (usual_size(expected) or 0.0)


def hidden_slice(
    actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance, noise: float
) -> Slice | None:
    """Find a slice most of whose quiet numbers are others on the two sides."""
    return _worst(_counts(actual, expected, expected, (), tolerance, noise))


def wrong_slice(  # all that is known of a leaf
    actual: torch.Tensor,
    expected: torch.Tensor,
    reference: torch.Tensor,
    moved: Sequence[torch.Tensor],
    tolerance: Tolerance,
    noise: float,
) -> Slice | None:
    """Find a slice most of whose quiet numbers are off from float64, and few of eager's."""
    if any(not is_plain(run) or run.shape != expected.shape for run in (reference, *moved)):
        return None
    if torch.finfo(reference.dtype).eps >= torch.finfo(expected.dtype).eps:
        return None  # it rounds as eager does, and tells nothing of noise
    return _worst(_counts(actual, expected, reference, moved, tolerance, noise))


def has_slices(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether a leaf has rows or columns that can be judged."""
    plain = is_plain(actual) and is_plain(expected) and expected.dim() > 1
    return plain and holds_atol(expected, tolerance)


def _worst(counts: list[_Counts]) -> Slice | None:
    """The wrong slice with the most numbers that are off."""
    found: list[tuple[int, Slice]] = []
    for dim, (quiet_, nonzero, off, unsound) in enumerate(counts):
        wrong = (quiet_ >= FEWEST) & (quiet_ > PART_OF_LEAF * nonzero)
        wrong &= (off > MOST * quiet_) & (unsound <= USABLE * quiet_)
        if bool(wrong.any()):
            index = int(torch.where(wrong, off, 0).argmax())
            found.append((int(off[index]), Slice(dim, index)))
    return max(found)[1] if found else None


def _counts(  # all that is known of a leaf
    actual: torch.Tensor,
    expected: torch.Tensor,
    reference: torch.Tensor,
    moved: Sequence[torch.Tensor],
    tolerance: Tolerance,
    noise: float,
) -> list[_Counts]:
    counts = [
        _Counts(*(torch.zeros(size, dtype=torch.int64) for _ in _Counts._fields))
        for size in expected.shape
    ]
    runs = [placed_pieces(run, expected) for run in (reference, *moved)]
    pairs = placed_pieces(actual, expected)
    for (a, e, (cut, start)), (exact, _, _), *others in zip(pairs, *runs, strict=True):
        error, size = gap(a, exact), exact.abs().double()
        for other, _, _ in others:
            error = error - 2 * gap(other, exact)
        small = quiet(e, tolerance)
        off = small & (error > (OTHER * size).clamp(min=noise))
        unsound = small & (gap(e, exact) > _DIGITS * size)
        for dim, count in enumerate(counts):
            _add(count, (small, e != 0, off, unsound), dim, start if dim == cut else 0)
    return counts


def _add(counts: _Counts, masks: Sequence[torch.Tensor], dim: int, start: int) -> None:
    """Count what is true in each slice of a piece that starts somewhere in the leaf."""
    for count, mask in zip(counts, masks, strict=True):
        summed = mask.sum([d for d in range(mask.dim()) if d != dim]).cpu()
        count[start : start + len(summed)] += summed
