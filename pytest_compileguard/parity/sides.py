"""Compares the two sides of a shadow call."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from pytest_compileguard.isolation.ambient import RandomState
from pytest_compileguard.isolation.snapshot import Snapshot
from pytest_compileguard.observation import MismatchKind, MismatchPart
from pytest_compileguard.parity.bindings import Bindings, rebound, same_paths
from pytest_compileguard.parity.errors_raised import same_error
from pytest_compileguard.parity.float64_runs import About
from pytest_compileguard.parity.gradients import Cotangents, is_of_used_graph
from pytest_compileguard.parity.identity import odd_ones
from pytest_compileguard.parity.judging import CallParity, LeafJudge
from pytest_compileguard.parity.leaves import Leaf, Structure, lack_numbers
from pytest_compileguard.parity.one_sided import one_sided
from pytest_compileguard.parity.plain import equal_leaves
from pytest_compileguard.parity.random_states import generators_that_differ
from pytest_compileguard.parity.side import GRAD, GRADIENT_OF, Place, Side
from pytest_compileguard.parity.state import ABSENT, Twins, aliases, attribute_pairs, sharing_text
from pytest_compileguard.parity.undefined import few, undefined_note

NO_NUMBERS = "output: empty, or on the meta device, so its form was compared, and no number"


class SideComparison:
    """Compares the compiled side of one call with the eager one, leaf by leaf."""

    def __init__(self, judge: LeafJudge) -> None:
        self._judge = judge
        self.result = judge.result

    def compare(self, eager: Side, compiled: Side) -> CallParity:
        """Compare exceptions, outputs, mutations, aliasing, state and gradients."""
        raised = self._exceptions(eager, compiled)
        if raised and self.result.mismatches:
            return self.result
        self._judge.twins = Twins(compiled.state, eager.state)
        if not raised and self._paths(eager.outputs, compiled.outputs, "output"):
            before = self.result.leaves
            self._leaves(eager.outputs, compiled.outputs, "result", "value", form=True)
            self.result.blind = bool(eager.outputs) and self.result.leaves == before
            if lack_numbers(eager.outputs):
                self.result.unchecked[NO_NUMBERS] = None
            self._undefined(eager.outputs, compiled.outputs)
            self._aliasing(eager, compiled)
        if self._paths(eager.arguments, compiled.arguments):
            self._leaves(eager.arguments, compiled.arguments, "result")
            bindings = Bindings(self._judge, "bound")
            for expected, actual in zip(eager.arguments, compiled.arguments, strict=True):
                bindings.compare_attributes(expected.path, actual.value, expected.value)
                bindings.compare_held(expected.path, actual.value, expected.value)
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

    def compare_surroundings(self, eager: Snapshot, compiled: Snapshot) -> None:
        """Compare class attributes and globals: what each side left in them."""
        expected, actual = eager.values(), compiled.values()
        others = dict(rebound(eager, compiled))
        alone = dict(one_sided(eager, compiled))
        of_compiler = eager.of_compiler | compiled.of_compiler
        for path in [
            p for p in dict.fromkeys([*expected, *actual, *alone]) if p not in of_compiler
        ]:
            if told := alone.get(path) or others.get(path):
                self._judge.report(path, "mutation", told)
            elif path not in expected or path not in actual:
                continue  # one side left it, and the other bound it to an equal number or text
            elif not self._passed_over(expected[path], actual[path]):
                Bindings(self._judge, "outside").compare(path, actual[path], expected[path])

    def compare_random_states(self, eager: RandomState, compiled: RandomState) -> None:
        """Compare where the generators of torch, Python and numpy stand after the call."""
        for name in generators_that_differ(eager, compiled):
            message = (
                "compiled draws other random numbers than eager, so what is drawn next differs"
            )
            self._judge.report(f"random state{name}", "mutation", message)

    def _exceptions(self, eager: Side, compiled: Side) -> bool:
        if eager.error is None and compiled.error is None:
            return False
        self.result.leaves += 1
        kinds = [type(s.error).__name__ if s.error else "nothing" for s in (compiled, eager)]
        if not same_error(compiled.error, eager.error):
            self._judge.report(
                "the call", "exception", f"compiled raises {kinds[0]}, eager {kinds[1]}"
            )
        return True

    def _paths(
        self, eager: list[Leaf], compiled: list[Leaf], part_otherwise: MismatchPart = "other"
    ) -> bool:
        return same_paths(self._judge, eager, compiled, part_otherwise)

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
            self._judge.compare(about, actual.value, expected.value, form=form)

    def _passed_over(
        self, expected: Any, actual: Any, known: set[tuple[int, int]] | None = None
    ) -> bool:
        """Count the leaves of plain data that is the same, without a look at each."""
        found = equal_leaves(expected, actual, known)
        self.result.leaves += found or 0
        return found is not None

    def _aliasing(self, eager: Side, compiled: Side) -> None:
        """Compare which tensors share memory, those of globals too, and which objects are one."""
        around = [{path for path, _ in side.outside} for side in (eager, compiled)]
        both = around[0] & around[1]  # what one side alone binds is told as that
        expected, actual = (
            aliases([*side.tensors(), *(pair for pair in side.outside if pair[0] in both)])
            for side in (eager, compiled)
        )
        for path in expected:
            if expected[path] != actual.get(path):
                texts = sharing_text(actual.get(path)), sharing_text(expected[path])
                self._judge.report(path, "aliasing", f"compiled {texts[0]}, eager {texts[1]}")
        named = ([*side.objects, *side.kept_objects] for side in (eager, compiled))
        for path, message in odd_ones(*named):
            self._judge.report(path, "aliasing", message)

    def _state(self, eager: Side, compiled: Side) -> None:
        twins, bindings = self._judge.twins, Bindings(self._judge, "bound")
        known: set[tuple[int, int]] = set()  # the sides keep their twins alive
        for key, (path, expected) in eager.state.items():
            if key not in compiled.state:
                continue
            actual = compiled.state[key][1]
            if isinstance(expected, torch.Tensor):
                self._judge.compare(About(path, "met", "mutation"), actual, expected)
                bindings.compare_attributes(path, actual, expected)
            elif not self._passed_over(expected, actual, known):
                for name, a, e in attribute_pairs(actual, expected, twins):
                    place = f"{path}{name}".lstrip(".")
                    if a is ABSENT or e is ABSENT:
                        self.result.leaves += 1
                        side = "eager" if a is ABSENT else "compiled"
                        self._judge.report(place, "mutation", f"only {side} has it")
                    else:
                        bindings.compare(place, a, e)

    def _undefined(
        self,
        eager: Iterable[tuple[str, Any]],
        compiled: Iterable[tuple[str, Any]],
        form: str = "{}",
    ) -> None:
        """Say where both sides are NaN throughout, which any two wrong results may be."""
        found = dict(compiled)
        pairs = ((form.format(path), value, found.get(path)) for path, value in eager)
        if note := undefined_note(pairs):
            self.result.unchecked[note] = None

    def _accumulated(self, eager: Side, compiled: Side) -> None:
        """Compare what a backward pass inside of the call left in ``.grad``."""
        left = dict(compiled.accumulated)
        for path, expected in eager.accumulated:
            if expected is not None or left.get(path) is not None:
                self.result.gradients += path in eager.touched
                about = About(f"{path}{GRAD}", "accumulated", "mutation")
                self._judge.compare(about, left.get(path), expected)

    def _gradients(self, eager: Side, compiled: Side) -> None:
        if eager.gradient_error is not None:
            if is_of_used_graph(eager.gradient_error):
                return  # the call ran backward itself
            kind = type(eager.gradient_error).__name__
            self.result.unchecked[f"gradients: eager can't be differentiated ({kind})"] = None
            return
        error = compiled.gradient_error
        for names, kind in _left_out(eager.cotangents):
            note = f"gradients of {names}: eager can't be differentiated ({kind})"
            self.result.unchecked[note] = None
        if eager.cotangents.explain(error):
            told = f"its backward raises {type(error).__name__} too"
            note = f"gradients of what compiled code computes with it: {told}"
            self.result.unchecked[note] = None
            return
        if error is not None:
            text = f"compiled raises {type(error).__name__} in backward: {error}"
            self._judge.report("the gradients", "exception", text.splitlines()[0])
            return
        found = dict(compiled.gradients)
        for path, expected in eager.gradients:
            if expected is None and found.get(path) is None:
                continue
            self.result.gradients += 1
            if expected is None and _is_zero(found.get(path)):
                continue  # AOTAutograd gives zeros where eager sees no path
            about = About(f"{GRADIENT_OF}{path}", "gradient", "gradient")
            self._judge.compare(about, found.get(path), expected)
        self._undefined(eager.gradients, found.items(), GRADIENT_OF + "{}")


def _left_out(cotangents: Cotangents) -> Iterator[tuple[str, str]]:
    """What eager can't differentiate, by type of error; the first few of many by name."""
    left_out = [(n, type(e).__name__) for n, e in cotangents.left_out if not is_of_used_graph(e)]
    for kind in dict.fromkeys(kind for _, kind in left_out):
        names = [name for name, of in left_out if of == kind]
        yield few(names), kind


def _is_zero(gradient: torch.Tensor | None) -> bool:
    return gradient is not None and not bool(gradient.any())
