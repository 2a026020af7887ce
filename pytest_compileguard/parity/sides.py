"""Compares the two sides of a shadow call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from pytest_compileguard.observation import Mismatch, MismatchKind, MismatchPart
from pytest_compileguard.parity.by_design import as_eager_would
from pytest_compileguard.parity.comparison import IncomparableError, Tolerance, compare
from pytest_compileguard.parity.errors_raised import same_error
from pytest_compileguard.parity.excused import Compared, excused_fault
from pytest_compileguard.parity.float64_runs import About, Float64Runs, MakeRun
from pytest_compileguard.parity.leaves import Leaf, Structure, leaves_of
from pytest_compileguard.parity.reference import (
    TF32_EPSILON,
    acquits,
    is_no_rounding,
    is_uneven,
    within_precision,
)
from pytest_compileguard.parity.side import GRAD, GRADIENT_OF, Place, Side
from pytest_compileguard.parity.state import ABSENT, Twins, aliases, attribute_pairs, sharing_text

_GRAPH_USED = "backward through the graph a second time"


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


class SideComparison:
    """Compares the compiled side of one call with the eager one.

    ``reference`` makes the float64 run, or says why there is none; it is called only
    when a leaf is disputed. With a seed, it makes the run from inputs that rounding moved.
    ``before`` gives what stood in a place before the call, by path.
    ``epsilon`` is the unit of the coarsest type that the call computes in, 0 if it is unknown.
    """

    def __init__(
        self,
        *,
        call: int,
        tolerance: Tolerance,
        reference: MakeRun,
        before: Callable[[Place], dict[str, Any]],
        tf32: bool,
        epsilon: float = 0.0,
    ) -> None:
        self._call = call
        self._tolerance = tolerance
        self._runs = Float64Runs(reference)
        self._before = before
        self._held: dict[Place, dict[str, Any]] = {}
        self._twins: set[int] = set()
        self._tf32 = tf32
        self._epsilon = epsilon
        self.result = CallParity()

    def compare(self, eager: Side, compiled: Side) -> CallParity:
        """Compare exceptions, outputs, mutations, aliasing, state and gradients."""
        raised = self._exceptions(eager, compiled)
        if raised and self.result.mismatches:
            return self.result
        objects = [twin for _, twin in eager.state.values() if not isinstance(twin, torch.Tensor)]
        self._twins = {id(twin) for twin in objects}
        if not raised and self._paths(eager.outputs, compiled.outputs, "output"):
            before = self.result.leaves
            self._leaves(eager.outputs, compiled.outputs, "result", "value", form=True)
            self.result.blind = bool(eager.outputs) and self.result.leaves == before
            self._aliasing(eager, compiled)
        if self._paths(eager.arguments, compiled.arguments):
            self._leaves(eager.arguments, compiled.arguments, "result")
        self._accumulated(eager, compiled)
        self._state(eager, compiled)
        if not raised:
            self._gradients(eager, compiled)
        return self.result

    def compare_results(self, other: Side, compiled: Side) -> CallParity:
        """Compare what a caller gets from another implementation: not how it lies in memory."""
        raised = self._exceptions(other, compiled)
        if raised:
            return self.result
        if self._paths(other.outputs, compiled.outputs, "output"):
            self._leaves(other.outputs, compiled.outputs, "result", "value")
        if self._paths(other.arguments, compiled.arguments):
            self._leaves(other.arguments, compiled.arguments, "result")
        known = {path for path, _ in compiled.gradients}
        for path in [path for path, _ in other.gradients if path not in known]:
            self.result.unchecked[f"gradient of {path} of the reference: not in the target"] = None
        common = [(path, gradient) for path, gradient in other.gradients if path in known]
        self._gradients(dataclasses.replace(other, gradients=common), compiled)
        return self.result

    def compare_surroundings(self, eager: dict[str, Any], compiled: dict[str, Any]) -> None:
        """Compare class attributes and globals: by path, what each side left in them."""
        for path in dict.fromkeys([*eager, *compiled]):
            if path not in eager or path not in compiled:
                sides = ("compiled", "eager") if path in compiled else ("eager", "compiled")
                self._report(path, "mutation", f"{sides[0]} binds it, {sides[1]} does not")
                continue
            pair = (
                leaves_of(eager[path], path, objects=True),
                leaves_of(compiled[path], path, objects=True),
            )
            if self._paths(*pair):
                self._leaves(*pair, "outside")

    def report_random_state(self) -> None:
        """Say that the two sides left torch's generators in different states."""
        message = "compiled draws other random numbers than eager, so what is drawn next differs"
        self._report("random state", "mutation", message)

    def _exceptions(self, eager: Side, compiled: Side) -> bool:
        if eager.error is None and compiled.error is None:
            return False
        self.result.leaves += 1
        kinds = [type(s.error).__name__ if s.error else "nothing" for s in (compiled, eager)]
        if not same_error(compiled.error, eager.error):
            self._report("the call", "exception", f"compiled raises {kinds[0]}, eager {kinds[1]}")
        return True

    def _paths(
        self, eager: list[Leaf], compiled: list[Leaf], part_otherwise: MismatchPart = "other"
    ) -> bool:
        expected, actual = [leaf.path for leaf in eager], [leaf.path for leaf in compiled]
        if expected == actual:
            return True
        odd = sorted(set(expected) ^ set(actual))[:4] or ["the order of its parts"]
        first = (eager or compiled)[0]
        part: MismatchPart = "structure" if isinstance(first.value, Structure) else part_otherwise
        message = f"another structure on the two sides: {', '.join(odd)}"
        self._report(first.path, "kind", message, part=part)
        return False

    def _leaves(
        self,
        eager: list[Leaf],
        compiled: list[Leaf],
        place: Place,
        kind: MismatchKind = "mutation",
        *,
        form: bool = False,
    ) -> None:
        for expected, actual in zip(eager, compiled, strict=True):
            about = About(expected.path, place, kind, isinstance(expected.value, Structure))
            self._leaf(about, actual.value, expected.value, form=form)

    def _leaf(self, about: About, actual: Any, expected: Any, *, form: bool = False) -> None:
        path, _, kind, _ = about
        if id(expected) in self._twins and type(actual) is type(expected):
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
        message = found.message + note
        self._report(path, told, message, rounding=rounding, part=about.part)

    def _aliasing(self, eager: Side, compiled: Side) -> None:
        expected, actual = aliases(eager.tensors()), aliases(compiled.tensors())
        for path in expected:
            if expected[path] != actual.get(path):
                texts = sharing_text(actual.get(path)), sharing_text(expected[path])
                self._report(path, "aliasing", f"compiled {texts[0]}, eager {texts[1]}")

    def _state(self, eager: Side, compiled: Side) -> None:
        twins = Twins(compiled.state, eager.state)
        for key, (path, expected) in eager.state.items():
            if key not in compiled.state:
                continue
            actual = compiled.state[key][1]
            if isinstance(expected, torch.Tensor):
                self._leaf(About(path, "met", "mutation"), actual, expected)
            else:
                for name, a, e in attribute_pairs(actual, expected, twins):
                    place = f"{path}{name}".lstrip(".")
                    if a is ABSENT or e is ABSENT:
                        self.result.leaves += 1
                        side = "eager" if a is ABSENT else "compiled"
                        self._report(place, "mutation", f"only {side} has it")
                        continue
                    pair = leaves_of(e, place, objects=True), leaves_of(a, place, objects=True)
                    if self._paths(*pair):
                        self._leaves(*pair, "bound")

    def _accumulated(self, eager: Side, compiled: Side) -> None:
        """Compare what a backward pass inside of the call left in ``.grad``."""
        left = dict(compiled.accumulated)
        for path, expected in eager.accumulated:
            if expected is not None or left.get(path) is not None:
                self.result.gradients += 1
                about = About(f"{path}{GRAD}", "accumulated", "mutation")
                self._leaf(about, left.get(path), expected)

    def _gradients(self, eager: Side, compiled: Side) -> None:
        if eager.gradient_error is not None:
            if _GRAPH_USED in str(eager.gradient_error):
                return  # the call ran backward itself
            kind = type(eager.gradient_error).__name__
            self.result.unchecked[f"gradients: eager can't be differentiated ({kind})"] = None
            return
        if compiled.gradient_error is not None:
            error = compiled.gradient_error
            text = f"compiled raises {type(error).__name__} in backward: {error}"
            self._report("the gradients", "exception", text.splitlines()[0])
            return
        found = dict(compiled.gradients)
        for path, expected in eager.gradients:
            self.result.gradients += 1
            if expected is None and _is_zero(found.get(path)):
                continue  # AOTAutograd gives zeros where eager sees no path
            about = About(f"{GRADIENT_OF}{path}", "gradient", "gradient")
            self._leaf(about, found.get(path), expected)

    def _excused(self, about: About, actual: Any, expected: Any) -> None:
        """Look at what the tolerance excuses, unless the test itself gave one."""
        if self._tolerance.explicit:
            return
        before = None
        if about.kind == "mutation" and isinstance(expected, torch.Tensor):
            before = self._held_before(about)
        leaf = Compared(about, actual, expected, before)
        on_gpu = isinstance(expected, torch.Tensor) and expected.is_cuda
        epsilon = max(self._epsilon, TF32_EPSILON if self._tf32 and on_gpu else 0.0)
        fault = excused_fault(leaf, self._tolerance, self._runs, epsilon)
        if fault is not None:
            self._report(about.path, about.kind, fault, part=about.part, by_float64=True)

    def _held_before(self, about: About) -> torch.Tensor | None:
        if about.place not in self._held:
            self._held[about.place] = self._before(about.place)
        held = self._held[about.place].get(about.path)
        return held if isinstance(held, torch.Tensor) else None

    def _acquitted(self, about: About, actual: Any, expected: Any) -> bool:
        """Whether rounding explains a difference, or the reference does."""
        if not isinstance(expected, torch.Tensor) or expected.layout != torch.strided:
            return False
        if self._tolerance.explicit:
            return False
        leaves = actual.detach(), expected.detach()
        tf32 = self._tf32 and expected.is_cuda
        rounded = within_precision(*leaves, tf32=tf32)
        if rounded and not is_uneven(leaves[1]):
            return True
        exact = self._runs.exact(about, expected)
        if self._runs.why_none is not None:
            # Nothing tells what eager's own error is, so the coarsest type that it passed counts.
            return within_precision(*leaves, tf32=tf32, epsilon=self._epsilon)
        if exact is None:
            return False
        judge = partial(acquits, *leaves, exact, tf32=tf32, coarse=self._epsilon > 0)
        acquitted = judge() or judge(self._runs.moved(about, expected))
        self.result.disputed += acquitted
        return acquitted

    def _is_no_rounding(self, about: About, actual: Any, expected: Any) -> bool:
        """Whether the float64 run, if it was made, shows that rounding is not the cause."""
        if not self._runs.was_made or not isinstance(expected, torch.Tensor):
            return False
        if self._epsilon > 0 or (self._tf32 and expected.is_cuda):
            return False
        exact = self._runs.exact(about, expected)
        return exact is not None and is_no_rounding(actual.detach(), expected.detach(), exact)

    def _report(
        self,
        path: str,
        kind: MismatchKind,
        message: str,
        *,
        rounding: bool = False,
        part: MismatchPart = "other",
        by_float64: bool = False,
    ) -> None:
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


def _is_zero(gradient: torch.Tensor | None) -> bool:
    return gradient is not None and not bool(gradient.any())
