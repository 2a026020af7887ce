"""Judges one leaf: what is outside of the tolerance, and whether it is rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from pytest_compileguard.isolation.widening import Moves
from pytest_compileguard.observation import Mismatch, MismatchKind, MismatchPart
from pytest_compileguard.parity.by_design import as_eager_would
from pytest_compileguard.parity.comparison import STRIDE, Difference, IncomparableError, compare
from pytest_compileguard.parity.excused import Compared, excused_fault
from pytest_compileguard.parity.float64_runs import About, Float64Runs, MakeRun
from pytest_compileguard.parity.jumps import is_among, is_whole, jumps_alone, telling
from pytest_compileguard.parity.numbers import has_arithmetic, stored
from pytest_compileguard.parity.precision import (
    NOT_NARROW,
    TF32_EPSILON,
    Narrow,
    is_inexact,
    is_narrow,
    is_off_at_large,
    is_uneven,
    within_precision,
)
from pytest_compileguard.parity.reference import acquits, is_coarse, is_no_rounding
from pytest_compileguard.parity.side import Place
from pytest_compileguard.parity.state import Twins
from pytest_compileguard.parity.tolerance import Tolerance

_LUCKY = 2
"""Numbers of which one in a hundred is as exact by luck as if nothing had lost digits."""


@dataclass(kw_only=True, slots=True)
class CallParity:
    """What comparing one call gave."""

    mismatches: list[Mismatch] = field(default_factory=list)
    leaves: int = 0
    gradients: int = 0
    disputed: int = 0
    unchecked: dict[str, None] = field(default_factory=dict)
    blind: bool = False
    """Whether nothing of what the call returns could be compared."""
    left_nothing: bool = False
    """Whether code that does nothing would have agreed with eager."""


class LeafJudge:
    """Judges the leaves of one call, and notes what differs.

    ``reference`` makes the float64 run, or says why there is none; it is called only
    when a leaf is disputed. With a seed, it makes the run from inputs that rounding moved.
    ``before`` gives what stood in a place before the call, by path.
    """

    def __init__(
        self,
        *,
        call: int,
        tolerance: Tolerance,
        reference: MakeRun,
        before: Callable[[Place], dict[str, Any]],
        tf32: bool,
        narrow: Narrow = NOT_NARROW,
    ) -> None:
        self._call = call
        self._tolerance = tolerance
        self._runs = Float64Runs(reference)
        self._before = before
        self._held: dict[Place, dict[str, Any]] = {}
        self.twins = Twins({}, {})
        """Copies of objects on both sides, whose tensors and attributes are state."""
        self._tf32 = tf32
        self._narrow = narrow
        self.result = CallParity()

    def compare(self, about: About, actual: Any, expected: Any, *, form: bool = False) -> None:
        """Compare one leaf of both sides; ``form`` includes strides and ``requires_grad``."""
        path, _, kind, _ = about
        if not isinstance(expected, torch.Tensor):
            same = self.twins.are_one(actual, expected)
            if same is False:
                self.report(path, "value", self.twins.told(actual, expected), part=about.part)
            if same is not None:
                return  # its tensors and attributes are state
        if kind == "mutation" and callable(expected) and callable(actual):
            return  # nobody writes to a function
        actual, note = as_eager_would(path, actual, expected)
        if note:
            self.result.unchecked[note] = None
        try:
            found = compare(actual, expected, self._tolerance, form=form)
        except IncomparableError as error:
            self.result.unchecked[f"{path}: {error}"] = None
            return
        self.result.leaves += 1
        if found is None:
            self._excused(about, actual, expected)
            return
        if found.kind == "value" and self._acquitted(about, actual, expected):
            return
        without = self._runs.why_none is not None and found.kind == "value"
        note = f"; no float64 reference: {self._runs.why_none}" if without else ""
        told = "kind" if found.kind == "kind" else kind
        rounding = found.rounding and not self._is_no_rounding(about, actual, expected)
        message = found.message + note + self._alike(found, actual, expected)
        self.report(path, told, message, rounding=rounding, part=about.part)

    def _alike(self, found: Difference, actual: Any, expected: Any) -> str:
        """Say of a tensor that lies otherwise in memory whether it holds the same numbers."""
        if not found.message.startswith(STRIDE):
            return ""
        other = compare(actual, expected, self._tolerance, form=False)
        return "" if other is not None else "; the values agree"

    def report(
        self,
        path: str,
        kind: MismatchKind,
        message: str,
        *,
        rounding: bool = False,
        part: MismatchPart = "other",
        by_float64: bool = False,
    ) -> None:
        """Note in what the two sides differ."""
        self.result.mismatches.append(
            Mismatch(
                call=self._call,
                path=path,
                kind=kind,
                message=message,
                rounding=rounding,
                part=part,
                by_float64=by_float64,
            )
        )

    def _excused(self, about: About, actual: Any, expected: Any) -> None:
        """Look at what the tolerance excuses, unless the test itself gave one."""
        if self._tolerance.explicit:
            return
        before = None
        if about.kind == "mutation" and isinstance(expected, torch.Tensor):
            before = self._held_before(about)
        leaf = Compared(about, actual, expected, before)
        fault = excused_fault(leaf, self._tolerance, self._runs, self._coarsest(expected))
        if fault is not None:
            self.report(about.path, about.kind, fault, part=about.part, by_float64=True)

    def _held_before(self, about: About) -> torch.Tensor | None:
        if about.place not in self._held:
            self._held[about.place] = self._before(about.place)
        held = self._held[about.place].get(about.path)
        return held if isinstance(held, torch.Tensor) else None

    def _acquitted(self, about: About, actual: Any, expected: Any) -> bool:
        """Whether rounding explains a difference, or the reference does."""
        leaves = _dense(actual, expected)
        if leaves is None or self._tolerance.explicit or not has_arithmetic(expected.dtype):
            return False
        tf32 = self._tf32 and expected.is_cuda
        rounded = within_precision(*leaves, tf32=tf32)
        if rounded and not is_uneven(leaves[1]) and not is_off_at_large(*leaves):
            return True
        exact = self._runs.exact(about, expected)
        if self._runs.why_none is not None:
            # Nothing tells what eager's own error is, so the coarsest type that it passed counts.
            return within_precision(*leaves, tf32=tf32, epsilon=self._narrow.epsilon)
        if exact is None:
            return False
        judge = partial(acquits, *leaves, exact, tf32=tf32, coarse=self._narrow.epsilon > 0)
        tries = self._runs_for(about, expected, leaves[1], exact)
        if is_whole(leaves[1]):
            judge, tries = partial(is_among, *leaves, exact), self._runs_for_whole(about, expected)
        acquitted = any(map(judge, tries))
        self.result.disputed += acquitted
        return acquitted

    def _runs_for(
        self, about: About, expected: torch.Tensor, numbers: torch.Tensor, exact: torch.Tensor
    ) -> Iterator[list[torch.Tensor]]:
        """Sets of runs to judge a leaf by in turn: each costs more, and excuses more."""
        yield []
        if not is_inexact(numbers):
            return  # bits, and integers for which torch has no arithmetic: none is rounded
        own = torch.finfo(expected.dtype).eps
        # In one number or two, errors of 16 bits may cancel by luck.
        lucky = self._narrow.made and numbers.numel() <= _LUCKY
        coarse = lucky or is_coarse(numbers, exact)
        # An input of few digits is exact to a leaf of more, if nothing on the way lost them.
        unit = 1.0 if coarse else own
        moved = self._telling(about, expected, exact, "inputs", unit)
        yield moved
        if not is_narrow(numbers):
            yield self._telling(about, expected, exact, "all inputs", unit)
            yield self._telling(about, expected, exact, "sums", own)
        if not coarse:
            by_inputs = self._telling(about, expected, exact, "inputs")
            moved = [*moved, *jumps_alone(exact, by_inputs, own)]
            yield moved
        if unit := self._coarsest(expected):
            products = self._runs.moved(about, expected, "products", unit)
            yield [*moved, *(products if coarse else jumps_alone(exact, products, own))]

    def _telling(
        self,
        about: About,
        expected: torch.Tensor,
        exact: torch.Tensor,
        moves: Moves,
        unit: float = 1.0,
    ) -> list[torch.Tensor]:
        """Runs that rounding moved, if that may be what differs."""
        return telling(
            self._runs.moved(about, expected, moves, unit), stored(expected.detach()), exact
        )

    def _runs_for_whole(self, about: About, expected: torch.Tensor) -> Iterator[list[torch.Tensor]]:
        """The same for whole numbers: what these come from may lie on a jump, so it stays."""
        yield []
        if unit := self._coarsest(expected):
            yield self._runs.moved(about, expected, "products", unit)

    def _coarsest(self, expected: Any) -> float:
        """The unit of the coarsest type that the call is known to compute in, 0 if of none."""
        on_gpu = isinstance(expected, torch.Tensor) and expected.is_cuda
        return max(self._narrow.epsilon, TF32_EPSILON if self._tf32 and on_gpu else 0.0)

    def _is_no_rounding(self, about: About, actual: Any, expected: Any) -> bool:
        """Whether the float64 run, if it was made, shows that rounding is not the cause."""
        if not self._runs.was_made or not isinstance(expected, torch.Tensor):
            return False
        if self._narrow.epsilon > 0 or (self._tf32 and expected.is_cuda):
            return False
        exact = self._runs.exact(about, expected)
        leaves = _dense(actual, expected)
        return exact is not None and leaves is not None and is_no_rounding(*leaves, exact)


def _dense(actual: torch.Tensor, expected: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The numbers of both in one shape; those of nested tensors in a row."""
    if not isinstance(expected, torch.Tensor):
        return None
    if expected.layout != torch.strided and not expected.is_nested:
        return None
    leaves = stored(actual.detach()), stored(expected.detach())
    return leaves if leaves[0].shape == leaves[1].shape else None
