"""Runs one check: the order of its phases, once.

``call`` makes each guarded call with its shadow while the test runs; ``finish`` takes
the times and gathers what was seen once the test is through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pytest_compileguard import dynamo
from pytest_compileguard.artifacts.saving import save_artifacts
from pytest_compileguard.compile_branches import compile_branches
from pytest_compileguard.errors import CompileGuardError, OptionError, SpecError
from pytest_compileguard.facts import gather_facts
from pytest_compileguard.finding import Artifacts
from pytest_compileguard.isolation.ambient import random_state
from pytest_compileguard.isolation.quiet import silenced
from pytest_compileguard.observation import (
    NO_CALL,
    CompileObservation,
    Mismatch,
    NotObserved,
    Observation,
    ParityObservation,
    SpeedObservation,
)
from pytest_compileguard.own_setup import OwnSetup
from pytest_compileguard.plan import OWN_BACKEND, CompileArguments, Plan
from pytest_compileguard.shadow.both_sides import Shadow
from pytest_compileguard.shadow.call import ShadowCall, Timeable
from pytest_compileguard.shadow.idle import LEFT_NOTHING
from pytest_compileguard.target import definition, own_code, target_name
from pytest_compileguard.timing.warm_calls import (
    WarmObservation,
    measure_warm_calls,
    needs_gpu,
    unmeasured,
)
from pytest_compileguard.training_step import TrainingStep

_RESET = (
    "torch was reset since the call before (torch.compiler.reset(), or the first call of another "
    "guarded target that shares code with this one), so what was compiled is gone; make all "
    "calls of one target before those of another, or guard them in two tests"
)


class Check:
    """One target under guard, over all its calls."""

    def __init__(
        self,
        plan: Plan,
        target: Callable[..., Any],
        reference: Callable[..., Any] | None = None,
    ) -> None:
        self.plan = plan
        self.target = target
        self.reference = reference
        """Another implementation that the compiled target is held against, too."""
        self.code = own_code(target)
        self.calls: list[ShadowCall] = []
        self.device = "cpu"
        self._shadow: Shadow | None = None
        self._refused: str | None = None
        self._resets: dynamo.ResetWatch | None = None

    @property
    def started(self) -> bool:
        return self._shadow is not None or self._refused is not None

    def start(self, *, cold: bool) -> None:
        """Prove that torch is understood and, unless other code must stay, start cold.

        Raises:
            SpecError: The target is compiled already and the test asks for other arguments, or
                torch has no such backend or option.
            OptionError: It has no backend that the command line or the ini file names.
        """
        try:
            with silenced(compiling=True):
                dynamo.ensure_understood()
                if self.plan.max_compile_time_s is not None:
                    dynamo.use_backend_once(self.plan.arguments.backend)
            if cold or dynamo.is_compiled_code(self.code):  # by a watched block, for instance
                dynamo.forget_compiled_code()
            self._resets = dynamo.ResetWatch()
            self._shadow = Shadow(self.plan, self.target, self.reference)
        except CompileGuardError as error:
            self._refused = str(error)
            return
        if self._shadow.compiled_already:
            # What the command line says of the backend does not apply to it.
            own = CompileArguments(backend=OWN_BACKEND)
            self.plan = msgspec.structs.replace(self.plan, arguments=own)
        if self._shadow.compiled_already and self.plan.own_arguments:
            names = ", ".join(self.plan.own_arguments)
            raise SpecError(
                f"{self.plan.key}: the target is compiled already, so {names} can't apply; "
                "pass them where it is compiled, or guard the plain target"
            )
        if not self._shadow.compiled_already:
            self._refuse_arguments()

    def _refuse_arguments(self) -> None:
        """Let nothing be compiled by what torch doesn't have: it says so of each call."""
        plan, arguments = self.plan, self.plan.arguments
        if wrong := dynamo.unknown_backend(arguments.backend):
            if plan.given_backend:
                raise OptionError(f"{plan.given_backend}: {arguments.backend!r}: {wrong}")
            raise SpecError(f"{plan.key}: backend={arguments.backend!r}: {wrong}")
        options = arguments.options or {}
        if wrong := dynamo.unknown_options(options, arguments.backend):
            raise SpecError(f"{plan.key}: options={options!r}: {wrong}")

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make one guarded call: for the test, one eager call."""
        __tracebackhide__ = True
        index = len(self.calls)
        if self._shadow is None or self._was_reset:
            problem = self._refused or _RESET
            self.calls.append(ShadowCall(index=index, problem=problem))
            return self.target(*args, **kwargs)
        try:
            made = self._shadow.call(index, args, kwargs)
        except BaseException as stop:  # SystemExit, KeyboardInterrupt, an outcome of pytest
            problem = f"the call raised {type(stop).__name__}, which has no shadow"
            self.calls.append(ShadowCall(index=index, problem=problem))
            raise
        self.calls.append(made)
        if made.error is not None:
            raise made.error
        value, made.value = made.value, None
        return value

    def finish(self) -> Observation:
        """Take the times, and gather everything that was seen."""
        compiled = self._compile_observation()
        parity = self._located(self._parity(compiled))
        warm = self._warm(compiled, parity)
        return Observation(
            compile=compiled,
            parity=parity,
            speed=warm.speed,
            memory=warm.memory,
            launches=warm.launches,
        )

    def save(self) -> Artifacts | None:
        """Save what was heard of all calls; ``None``: the plan says nowhere."""
        if self.plan.artifacts is None:
            return None
        traces = [call.trace for call in self.calls if call.trace]
        return save_artifacts(traces, self.plan, self.plan.artifacts)

    @property
    def _was_reset(self) -> bool:
        """Whether what was compiled is gone."""
        return self._resets is not None and self._resets.was_reset

    def _compile_observation(self) -> CompileObservation | NotObserved:
        if not self.calls:
            return NotObserved(reason=NO_CALL)
        if all(call.trace is None and call.compile_error is None for call in self.calls):
            problems = [call.problem for call in self.calls if call.problem]
            return NotObserved(reason=problems[0] if problems else "no call could be observed")
        return gather_facts(
            self.calls,
            self.plan,
            target=target_name(self.target),
            definition=definition(self.target),
        )

    def _parity(
        self, compiled: CompileObservation | NotObserved
    ) -> ParityObservation | NotObserved:
        compared = [call.parity for call in self.calls if call.parity]
        if isinstance(compiled, NotObserved):
            return compiled
        mismatches: list[Mismatch] = [m for parity in compared for m in parity.mismatches]
        notes = {note: None for call in self.calls for note in call.notes}
        notes |= {note: None for parity in compared for note in parity.unchecked}
        if compared and all(parity.left_nothing for parity in compared):
            notes[LEFT_NOTHING] = None
        return ParityObservation(
            calls=len(self.calls),
            calls_compared=sum(not parity.blind for parity in compared),
            leaves_compared=sum(parity.leaves for parity in compared),
            gradients_compared=sum(parity.gradients for parity in compared),
            mismatches=tuple(mismatches),
            disputed=sum(parity.disputed for parity in compared),
            unchecked=tuple(notes),
        )

    def _located(self, parity: ParityObservation | NotObserved) -> ParityObservation | NotObserved:
        """Say where the first failing call departs; only now, as it drops all compiled code."""
        if self._shadow is None or isinstance(parity, NotObserved) or not parity.mismatches:
            return parity
        departure = self._shadow.locate(self.plan)
        saved = self._shadow.save(self.plan, departure)
        return msgspec.structs.replace(
            parity,
            departure=departure,
            reproduction=saved,
            asking=compile_branches(self.target),
        )

    def _warm(
        self, compiled: CompileObservation | NotObserved, parity: ParityObservation | NotObserved
    ) -> WarmObservation:
        last = self._shadow.last if self._shadow else None
        if last is not None:
            self.device = last.device
        if reason := self._why_untimed(compiled, parity, last):
            return unmeasured(NotObserved(reason=reason))
        if self.device == "cpu" and (reason := needs_gpu(self.plan)):
            return unmeasured(NotObserved(reason=reason, unavailable=True))
        if self._shadow is None or last is None:
            return unmeasured(NotObserved(reason="no call could be observed"))
        # Inductor's own random numbers can't match eager, so parity ran without them.
        before = random_state()
        try:
            # Nor does torch run code any more that has raised while it was traced.
            gone = self._was_reset or any(call.error is not None for call in self.calls)
            if gone or any(call.drew_random for call in self.calls):
                last = self._shadow.recompiled() or last
            warm = self._measured(last)
            return warm._replace(speed=self._noted(warm.speed))
        finally:
            before.restore()

    def _measured(self, last: Timeable) -> WarmObservation:
        if self.plan.setup is None:
            return measure_warm_calls(last, self.plan)
        setup = OwnSetup(self.plan.setup, last)
        warm = measure_warm_calls(last, msgspec.structs.replace(self.plan, setup=setup))
        return warm._replace(speed=setup.judged(warm.speed))

    def _noted(self, seen: SpeedObservation | NotObserved) -> SpeedObservation | NotObserved:
        if isinstance(seen, NotObserved):
            return seen
        notes = []
        if self.reference is not None:
            notes.append(f"eager is the reference {target_name(self.reference)}")
        if isinstance(self.target, TrainingStep) and self.target.made_capturable:
            notes.append("eager's optimizer is capturable too, as compiling one on a GPU makes it")
        return msgspec.structs.replace(seen, notes=(*notes, *seen.notes))

    def _why_untimed(
        self,
        compiled: CompileObservation | NotObserved,
        parity: ParityObservation | NotObserved,
        last: Timeable | None,
    ) -> str | None:
        if self.plan.untimed:
            return self.plan.untimed
        if last is None:
            return "no call ran on both sides"
        if isinstance(compiled, NotObserved) or compiled.error or not compiled.graphs:
            raised = isinstance(compiled, CompileObservation) and compiled.raised
            return "compiled code raised" if raised else "nothing was compiled that could be timed"
        if isinstance(parity, NotObserved) or parity.mismatches:
            return "the compiled code is wrong; its speed says nothing"
        if self.device.partition(":")[0] not in ("cpu", "cuda"):
            return f"there is no clock for device {self.device}"
        return None
