"""Finds faults among numbers so small that an absolute tolerance excuses anything.

``torch.testing`` allows float32 a difference of 1e-5, so gradients of 1e-6 pass with any sign and
any size, unless the test gives tolerances of its own. Numbers below a hundred times the absolute
tolerance are *quiet*. Where they make up part of a leaf, and most of them are other numbers
altogether, the float64 run of the eager code judges: nearly all of eager's must be near it (else
rounding made them, and they tell nothing), and most of the compiled side's are not. How many are
off is counted, and not how much, since quiet numbers differ by many powers of ten.

Smaller differences are let pass: where inductor computes ``exp(x) - 1`` or ``1 + erf(x)`` for what
eager has a function of its own, some per cent of numbers of 1e-6 are lost, and no fault is there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pytest_compileguard.isolation.storages import is_plain
from pytest_compileguard.parity.comparison import gap_dtype, pieces
from pytest_compileguard.parity.tolerance import Tolerance

WRONG_BY_FLOAT64 = "wrong by float64, and too small for the tolerance"
OTHER = 0.3
"""Relative difference from which on a quiet number is another one: inductor's own ways to compute
``expm1`` and the like lose less of most numbers, and a wrong sign or factor is more."""
_TOLERANCES = 100.0
"""Times the absolute tolerance below which a number is quiet: a difference of a hundredth of it."""
PART_OF_LEAF = 0.05
"""Part of the numbers that are not 0 from which on the quiet ones are judged."""
MOST = 0.5
"""Part of the quiet numbers that must be off: some alone may be what rounding made."""
FEWEST = 8
"""Quiet numbers from which on so many don't go wrong by chance."""
USABLE = 0.1
"""If more of eager's numbers than this are off from float64, rounding made them."""


def are_hidden(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether most of the quiet numbers are others. Both have one shape."""
    if not is_plain(actual) or not _holds_quiet(expected, tolerance):
        return False
    count, off = 0, 0
    for a, e in pieces(actual, expected):
        small = quiet(e, tolerance)
        count += int(small.count_nonzero())
        off += _count_off(_gap(a, e)[small], e[small])
    return off > MOST * count


def are_wrong(
    actual: torch.Tensor,
    expected: torch.Tensor,
    reference: torch.Tensor,
    moved: Sequence[torch.Tensor],
    tolerance: Tolerance,
) -> bool:
    """Whether most of the compiled side's quiet numbers are off from float64, and few of eager's.

    All have one shape; ``moved`` are float64 runs from inputs that rounding moved, and what these
    differ by is no error.
    """
    if any(not is_plain(run) or run.shape != expected.shape for run in (reference, *moved)):
        return False
    count, off, eager_off = 0, 0, 0
    runs = [pieces(run, expected) for run in (reference, *moved)]
    for (a, e), (exact, _), *others in zip(pieces(actual, expected), *runs, strict=True):
        small = quiet(e, tolerance)
        error, size = _gap(a, exact)[small], exact[small]
        for other, _ in others:
            error = error - 2 * _gap(other, exact)[small]
        count += int(small.count_nonzero())
        off += _count_off(error, size)
        eager_off += _count_off(_gap(e, exact)[small], size)
    return eager_off <= USABLE * count and off > MOST * count


def rounding_was_tried(
    expected: torch.Tensor, reference: torch.Tensor, moved: Sequence[torch.Tensor]
) -> bool:
    """Whether the runs tell what rounding makes: in more digits, or from inputs that moved.

    Arrays are neither widened nor moved, so what is computed from them alone is not known. Of
    numbers narrower than float64, a run that is no wider rounds as eager does.
    """
    if torch.finfo(reference.dtype).eps < torch.finfo(expected.dtype).eps:
        return True
    widest = reference.dtype in (torch.float64, torch.complex128)
    return widest and any(not torch.equal(run, reference) for run in moved)


def are_few(expected: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether there are so few quiet numbers that chance may have made them."""
    return int(quiet(expected, tolerance).count_nonzero()) < FEWEST


def quiet_part(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """Give the compiled side's quiet numbers, and eager's in place of all others."""
    return torch.where(quiet(expected, tolerance), actual, expected)


def _count_off(error: torch.Tensor, size: torch.Tensor) -> int:
    return int((error > OTHER * _wide(size).abs()).count_nonzero())


def _holds_quiet(expected: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether quiet numbers are a part of the leaf worth judging."""
    if not holds_atol(expected, tolerance) or not is_plain(expected):
        return False
    found, counted = 0, 0
    for e, _ in pieces(expected, expected):
        found += int(quiet(e, tolerance).count_nonzero())
        counted += int(e.count_nonzero())
    return found > PART_OF_LEAF * counted


def holds_atol(expected: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether numbers of this dtype are allowed an absolute difference, and can be judged."""
    # Numbers of 8 bits have no tolerance, and pairs of 16 bits hardly any arithmetic.
    return bool(tolerance.for_dtype(expected.dtype)[1]) and expected.dtype != torch.complex32


def quiet(expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """Where numbers are so small that the absolute tolerance may excuse anything."""
    _, atol = tolerance.for_dtype(expected.dtype)
    sizes = expected.abs()
    return (sizes > 0) & (sizes < _TOLERANCES * atol)


def _gap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (_wide(a) - _wide(b)).abs()


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(gap_dtype(tensor))
