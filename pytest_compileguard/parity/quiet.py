"""Finds faults among numbers so small that an absolute tolerance excuses anything.

``torch.testing`` allows float32 a difference of 1e-5, so gradients of 1e-6 pass with any sign and
any size. Numbers below a hundred times the absolute tolerance are *quiet*. Where they make up
part of a leaf, and not a few of them differ by more than 1 % of their size, the float64 run of the
eager code judges: nearly all of eager's must be near it (else rounding made them, and they tell
nothing), and far more of the compiled side's are not. How many are off is counted, and not how
much, since quiet numbers differ by many powers of ten.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pytest_compileguard.isolation.storages import is_plain
from pytest_compileguard.parity.comparison import Tolerance, gap_dtype, pieces

_TOLERANCES = 100.0
_PART = 0.05
"""Part of the leaf, and of its quiet numbers, below which nothing is looked into."""
_VISIBLE = 0.01
_EPSILONS = 8.0
_K = 3.0
_USABLE = 0.1
"""If more of eager's numbers than this are off from float64, rounding made them."""


WRONG_BY_FLOAT64 = "wrong by float64, and too small for the absolute tolerance"
"""How the message of such a difference begins."""


def visible(dtype: torch.dtype) -> float:
    """Relative difference from which on a quiet number counts as another one."""
    return max(_VISIBLE, _EPSILONS * torch.finfo(dtype).eps)


def are_hidden(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether part of the quiet numbers are others. Both have one shape."""
    if not is_plain(actual) or not _holds_quiet(expected, tolerance):
        return False
    if torch.equal(actual, expected):
        return False
    count, off = 0, 0
    for a, e in pieces(actual, expected):
        quiet = _quiet(e, tolerance)
        count += int(quiet.count_nonzero())
        off += _count_off(_gap(a, e)[quiet], e[quiet], expected.dtype)
    return off > _PART * count


def are_wrong(
    actual: torch.Tensor,
    expected: torch.Tensor,
    reference: torch.Tensor,
    moved: Sequence[torch.Tensor],
    tolerance: Tolerance,
) -> bool:
    """Whether far more of the compiled side's quiet numbers are off from float64 than of eager's.

    All have one shape; ``moved`` are float64 runs from inputs that rounding moved, and what these
    differ by is no error.
    """
    if any(not is_plain(run) or run.shape != expected.shape for run in (reference, *moved)):
        return False
    count, off, eager_off = 0, 0, 0
    runs = [pieces(run, expected) for run in (reference, *moved)]
    for (a, e), (exact, _), *others in zip(pieces(actual, expected), *runs, strict=True):
        quiet = _quiet(e, tolerance)
        error, size = _gap(a, exact)[quiet], exact[quiet]
        for other, _ in others:
            error = error - 2 * _gap(other, exact)[quiet]
        count += int(quiet.count_nonzero())
        off += _count_off(error, size, expected.dtype)
        eager_off += _count_off(_gap(e, exact)[quiet], size, expected.dtype)
    return eager_off <= _USABLE * count and off > max(_K * eager_off, _PART * count)


def _count_off(error: torch.Tensor, size: torch.Tensor, dtype: torch.dtype) -> int:
    return int((error > visible(dtype) * _wide(size).abs()).count_nonzero())


def _holds_quiet(expected: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether quiet numbers are a part of the leaf worth judging."""
    _, atol = tolerance.for_dtype(expected.dtype)
    if not atol or not is_plain(expected) or not expected.numel():
        return False  # numbers of 8 bits have no tolerance, and hardly any arithmetic
    found = sum(int(_quiet(e, tolerance).count_nonzero()) for e, _ in pieces(expected, expected))
    return found > _PART * expected.numel()


def _quiet(expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    _, atol = tolerance.for_dtype(expected.dtype)
    sizes = expected.abs()
    return (sizes > 0) & (sizes < _TOLERANCES * atol)


def _gap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (_wide(a) - _wide(b)).abs()


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(gap_dtype(tensor))
