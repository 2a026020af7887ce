"""Makes one guarded call: the test's own eager call, and its compiled shadow.

Three calls start from the same state: the real one, which alone the test sees; an
eager one and a compiled one on copies, which are compared with each other. So the
test gets exactly what one eager call gives, and nothing that comparing needs (keeping
graphs, differentiating, firing hooks) touches it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from pytest_compileguard import dynamo
from pytest_compileguard.errors import IsolationError
from pytest_compileguard.isolation.ambient import Ambient, ambient, random_state, tf32_in_force
from pytest_compileguard.isolation.quiet import silenced
from pytest_compileguard.isolation.scene import Scene
from pytest_compileguard.isolation.shared import Shared
from pytest_compileguard.observation import Departure, Reproduction
from pytest_compileguard.parity.gradients import Cotangents
from pytest_compileguard.parity.side import Side
from pytest_compileguard.parity.tolerance import Tolerance
from pytest_compileguard.plan import Plan
from pytest_compileguard.reproduction.saving import save
from pytest_compileguard.shadow.apart import with_what_can_be_differentiated
from pytest_compileguard.shadow.call import ComparedCall, ShadowCall, Timeable, without_following
from pytest_compileguard.shadow.captured import CapturedGraphs
from pytest_compileguard.shadow.compiling import (
    compiled,
    compiled_again,
    compiled_part,
    compiled_parts,
    compiles_itself,
)
from pytest_compileguard.shadow.failing import FailedCalls
from pytest_compileguard.shadow.gradient_names import names_gradients
from pytest_compileguard.shadow.idle import leaves_nothing
from pytest_compileguard.shadow.inlined import inlined_notes
from pytest_compileguard.shadow.inputs import inputs_text
from pytest_compileguard.shadow.isolated import why_not_isolated
from pytest_compileguard.shadow.locating import locate
from pytest_compileguard.shadow.mirrors import Mirrors, make_mirrors, scene_of
from pytest_compileguard.shadow.other_implementation import OtherImplementation
from pytest_compileguard.shadow.prepared import (
    Prepared,
    devices_of,
    has_lazy_parameters,
    whole_step,
)
from pytest_compileguard.target import argument_names
from pytest_compileguard.trace.compile_error import explain_error


class Shadow:
    """Both sides of one target, over all its calls."""

    def __init__(
        self, plan: Plan, target: Callable[..., Any], reference: Callable[..., Any] | None = None
    ) -> None:
        self._plan = plan
        self._target = target
        self._other = None if reference is None else OtherImplementation(plan, reference)
        parts = compiled_parts(target)
        # Where the test names arguments of its own, it asks for the whole to be compiled by them.
        self._is_compiled = compiles_itself(target) or (bool(parts) and not plan.own_arguments)
        self._notes = () if self._is_compiled else inlined_notes(target, parts)
        self._mirrors: Mirrors | None = None
        self._compiled: Callable[..., Any] | None = None
        self._compile_ids: set[str] = set()
        self._captured = CapturedGraphs()
        self._differentiates = names_gradients(target)
        """Whether a call adds to gradients, by a backward pass, or drops them."""
        self.last: Timeable | None = None
        self._failed = FailedCalls()

    @property
    def compiled_already(self) -> bool:
        """Whether the test itself compiled the target; compile arguments are then its own."""
        return self._is_compiled

    def call(self, index: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ShadowCall:
        """Make the real call, then its shadow. Only the real call's exceptions are kept."""
        __tracebackhide__ = True
        made = ShadowCall(
            index=index,
            hindrances=dynamo.hindrances(compiled_part(self._target)),
            inputs=inputs_text(args, kwargs),
        )
        made.notes |= dict.fromkeys(self._notes)
        random, modes = random_state(), ambient()
        sides = self._prepare(made, args, kwargs)
        eager = self._mirrors[1] if self._mirrors else None
        before = scene_of(eager, random)
        if sides and eager and eager.leaves(before.snapshot, self._target):
            sides = self._prepare(made, args, kwargs)
        shared = Shared(eager, before)
        try:
            with dynamo.eager_stance():
                made.value = self._target(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  # handed to the test unchanged
            made.error = error
        after = before.now()
        made.imported = after.imported_since(before)
        made.drew_random = not random.same_tensors_drawn(after.random)
        if before.truncated:
            made.notes["classes and globals hold too many objects to compare all"] = None
        try:
            if sides is not None:
                made.problem = shared.written("the call")
            if sides is not None and made.problem is None:
                with torch.set_grad_enabled(modes.grad):  # the call may have left another
                    self._shadow(made, sides, before.numbering_hooks_as(after), modes)
                if written := shared.written("the compiled code"):
                    # Once more, it would write to them again.
                    made.problem = written
                    self._failed.drop()
        except torch.OutOfMemoryError as error:
            made.problem = explain_error(error)[0]
        except Exception as error:  # noqa: BLE001  # the check fails by it, the test goes on
            made.problem = f"the shadow call failed ({type(error).__name__}: {error})"
        finally:
            made.put_back(after)
            for mirror in self._mirrors or ():
                mirror.release()
        return made

    def recompiled(self) -> Timeable | None:
        """The last call with code compiled anew, as a user would compile it."""
        if (last := self.last) is None:
            return None
        dynamo.forget_compiled_code()
        _, _, mirror = make_mirrors(
            self._target, *last.compiled.copies[:2], copies_gradients=self._differentiates
        )
        target = self._compile(mirror.target(self._target))
        prepared = dataclasses.replace(last.compiled, target=target, mirror=mirror)
        self.last = dataclasses.replace(last, compiled=prepared)
        return self.last

    def _prepare(
        self, made: ShadowCall, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Prepared, Prepared, Prepared] | None:
        try:
            if self._mirrors is None:
                self._mirrors = make_mirrors(
                    self._target, args, kwargs, copies_gradients=self._differentiates
                )
            names = argument_names(self._target, len(args))
            prepared = []
            for mirror in self._mirrors:
                target = mirror.target(self._target)
                copies = mirror.arguments(args, kwargs, names)
                prepared.append(Prepared(target=target, mirror=mirror, copies=copies, names=names))
            if self._other is not None:
                self._other.prepare(args, kwargs, names)
        except IsolationError as error:
            made.problem = str(error)
            return None
        except Exception as error:  # noqa: BLE001  # any class may refuse to be copied
            made.problem = f"the call can't be isolated ({type(error).__name__}: {error})"
            return None
        snapshot, eager, twin = prepared
        made.notes |= eager.mirror.notes
        try:
            if self._compiled is None:
                self._compiled = self._compile(twin.target)
        except Exception as error:  # noqa: BLE001  # an unknown backend, options that don't exist
            made.compile_error = explain_error(error)
            return None
        return snapshot, eager, dataclasses.replace(twin, target=self._compiled)

    def _compile(self, twin: Callable[..., Any]) -> Callable[..., Any]:
        if self.compiled_already:
            return twin  # its mirror compiled it as the test did
        dynamo.load_backend(self._plan.arguments.backend)
        return compiled(twin, self._plan.arguments.given)

    def locate(self, plan: Plan) -> Departure | None:
        """Find where the first failing call departs; all compiled code is dropped for it."""
        failed = self._failed.by_sides
        if failed is None or not plan.locates:
            return None
        if self.compiled_already and not compiles_itself(self._target):
            reason = (
                "parts of the target compile themselves, so it can't be compiled stage by stage"
            )
            return Departure(call=failed.index, stage=None, reason=reason)
        dynamo.load_backend(self._plan.arguments.backend)
        return locate(failed, self._compile_again, plan, own=self.compiled_already)

    def save(self, plan: Plan, departure: Departure | None) -> Reproduction | None:
        """Save the first failing call, if the plan says where to."""
        failed = self._failed.by_sides or self._failed.by_reference
        if failed is None or plan.artifacts is None:
            return None
        judged_by = self._other if self._failed.by_sides is None else None
        reference = None if judged_by is None else judged_by.reference
        return save(failed, self._target, plan, plan.artifacts, departure, reference)

    def _compile_again(self, twin: Any) -> Any:
        return compiled_again(twin, self._target, self._plan.arguments.given)

    def _shadow(
        self,
        made: ShadowCall,
        sides: tuple[Prepared, Prepared, Prepared],
        before: Scene,
        modes: Ambient,
    ) -> None:
        snapshot, eager, twin = (side.among(before.surroundings) for side in sides)
        before.restore()
        with silenced(), dynamo.eager_stance():
            expected = eager.run()
        made.problem = why_not_isolated(expected, made)
        if made.problem is not None:
            return
        drawn = before.now()
        expected = with_what_can_be_differentiated(expected, snapshot, before)
        before.surroundings.settle()
        trace, actual, left = self._run_compiled(made, twin, before, expected.cotangents)
        if actual.error is not None and expected.error is None:
            made.failed_compiled(actual.error)
            return
        made.failed_backward(expected, actual)
        arithmetic = self._captured.of_call(trace)
        compared = ComparedCall(
            index=made.index,
            snapshot=snapshot,
            scene=before,
            ambient=modes,
            cotangents=expected.cotangents,
            tolerance=Tolerance(self._plan.rtol, self._plan.atol),
            tf32=tf32_in_force(convolves=arithmetic.convolves),
            drew_random=made.drew_random,
            narrow=arithmetic.narrow,
        )
        other = self._compare(made, compared, (expected, drawn), (actual, left))
        if expected.error is None:
            device, *beside = devices_of(expected, eager)
            self.last = Timeable(
                call=made.index,
                eager=whole_step(other or eager),
                compiled=whole_step(twin),
                ambient=modes,
                device=device,
                beside=tuple(beside),
            )

    def _run_compiled(
        self, made: ShadowCall, twin: Prepared, before: Scene, cotangents: Cotangents
    ) -> tuple[dynamo.CallTrace, Side, Scene]:
        """Run the compiled side, and listen to torch's trace; give also what it left."""
        before.restore()
        keeps, counted = self._plan.artifacts is not None, dynamo.counters()
        tracing = dynamo.tracing(made.index, self._compile_ids, keeps_records=keeps)
        windows = before.surroundings.while_compiling()
        with silenced(compiling=True), windows, tracing as trace:
            made.trace = trace
            actual = twin.run(cotangents)
        left = before.now()
        made.counters = dynamo.counters().since(counted)
        return trace, actual, left

    def _compare(
        self,
        made: ShadowCall,
        call: ComparedCall,
        eager: tuple[Side, Scene],
        compiled_: tuple[Side, Scene],
    ) -> Prepared | None:
        """Compare what both sides gave and left; the call by the other implementation, if any."""
        (expected, drawn), (actual, left) = eager, compiled_
        comparison = call.comparison()
        made.parity = without_following(comparison.compare(expected, actual), actual)
        comparison.compare_surroundings(drawn.snapshot, left.snapshot)
        # Dynamo fills lazy parameters before it traces, with other draws than eager.
        told = actual.error is None and not has_lazy_parameters(call.snapshot)
        if told:
            comparison.compare_random_states(drawn.random, left.random)
        other, sound = None, not made.parity.mismatches
        if self._other is not None:
            other = self._other.compare(made, expected, actual, call)
        if made.parity.mismatches:
            differs = dataclasses.replace(call, mismatches=tuple(made.parity.mismatches))
            self._keep(differs, sound=sound)
        else:
            made.parity.left_nothing = leaves_nothing(call, expected, drawn)
        return other

    def _keep(self, failed: ComparedCall, *, sound: bool) -> None:
        """Keep it if it is the first; snapshots of those to come are taken by another mirror."""
        if self._mirrors is not None and self._failed.keep(failed, sound=sound):
            snapshot, eager, twin = self._mirrors
            self._mirrors = (snapshot.fresh(), eager, twin)
