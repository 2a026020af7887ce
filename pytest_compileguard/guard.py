"""What the fixture ``compileguard`` hands to a test."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pytest_compileguard.errors import SpecError
from pytest_compileguard.guardable import refuse_parts, refuse_reference, refuse_target
from pytest_compileguard.guarded import GuardedCallable, GuardedTraining
from pytest_compileguard.options import Options
from pytest_compileguard.plan import Plan, make_plan
from pytest_compileguard.progress import Progress
from pytest_compileguard.spec import CompileCheck, Limits, override, refuse_unwatchable, with_mode
from pytest_compileguard.target import target_name
from pytest_compileguard.training_step import WAYS, TrainingStep, Turns, eager_step, refuse_ways

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pytest_compileguard.observation import Observation
    from pytest_compileguard.runner import Check
    from pytest_compileguard.watch import WatchedBlock

_TURN = threading.RLock()
"""Threads make guarded calls one after the other: where a call starts from, and what torch has
compiled, is state of the whole process."""

P = ParamSpec("P")
R = TypeVar("R")


class CompileGuard:
    """The fixture of one test: makes guarded callables, and keeps their checks."""

    def __init__(
        self,
        *,
        nodeid: str,
        spec: CompileCheck,
        options: Options,
        progress: Progress | None = None,
        mode: str | None = None,
    ) -> None:
        self._progress = progress or Progress()
        self.checks: list[Check | WatchedBlock] = []
        self.plans: list[Plan] = []
        """Of all guarded targets, also those that are called eagerly since checks are disabled."""
        self._finished = False
        self._nodeid = nodeid
        self._test = nodeid.partition("::")[2] or nodeid
        self._spec = spec
        self._mode = mode
        self._options = options

    def __call__(
        self,
        target: Callable[P, R],
        *,
        reference: Callable[..., Any] | None = None,
        **limits: Unpack[Limits],
    ) -> GuardedCallable[P, R] | Callable[P, R]:
        """Guard a function, method, callable or module; limits win over those of the marker.

        Args:
            target: What is compiled.
            reference: Another implementation, called with the same arguments: what the compiled
                target returns, what it writes to its arguments, and its gradients must agree with
                the reference too, and the speedup is over it. It is never compiled.
            **limits: As those of the marker.

        Raises:
            SpecError: The target can't be called, a limit is unknown or not allowed, or the test
                is through.
        """
        origin = refuse_target(target, self._nodeid)
        if reference is not None:
            refuse_reference(reference, f"{origin}: reference={reference!r}")
        self._refuse_late(origin)
        plan = self._plan(target, limits, origin=origin, own=("reference",))
        if self._options.disable:
            return target
        check = _load_check()(plan, target, reference)
        self.checks.append(check)
        return GuardedCallable(self, check)

    def training(  # noqa: PLR0913  # each is one way to train
        self,
        model: Callable[..., Any],
        optimizer: Any,
        loss_fn: Callable[..., Any],
        *,
        compile_optimizer: bool = False,
        set_to_none: bool = True,
        scaler: Any = None,
        before_step: Callable[[Any], object] | None = None,
        accumulate: int = 1,
        **limits: Unpack[Limits],
    ) -> GuardedTraining | Callable[..., Any]:
        """Guard steps of training: ``step = compileguard.training(model, optimizer, loss_fn)``.

        Each ``step(inputs, *targets)`` clears the gradients, differentiates
        ``loss_fn(model(inputs), *targets)`` and lets the optimizer step. Both sides start each
        step from where the test's own training stands. Losses, gradients, parameters, buffers and
        the optimizer's state are compared.

        Args:
            model: A module, compiled already or not.
            optimizer: Of its parameters; its ``step`` may be compiled.
            loss_fn: Takes the model's output and the targets, gives a scalar.
            compile_optimizer: Whether the check compiles the optimizer's ``step`` too. On a GPU
                the optimizer is made ``capturable`` first, as compiling it does.
            set_to_none: As that of ``optimizer.zero_grad``.
            scaler: A ``torch.amp.GradScaler``: scales the loss, unscales the gradients, and steps
                the optimizer unless they are infinite.
            before_step: Called with the model between the (unscaled) gradients and the step, to
                clip gradients for instance. It is not compiled.
            accumulate: Calls whose gradients add up, each divided by their number, to one update.
            **limits: As those of the marker.

        Raises:
            SpecError: Something can't be what it stands for, or a limit is not allowed.
        """
        origin = f"{self._nodeid}: compileguard.training"
        refuse_parts(model, optimizer, loss_fn, origin)
        refuse_ways(scaler, before_step, accumulate, origin)
        self._refuse_late(origin)
        compiled = _compiled_parts(model, optimizer.step)
        if compile_optimizer and any(compiled):
            raise SpecError(
                f"{origin}: compile_optimizer=True, but the test compiles the model or the "
                "optimizer itself: compile both there, by optimizer.step = "
                "torch.compile(optimizer.step)"
            )
        step = TrainingStep(
            model,
            optimizer,
            loss_fn,
            compile_optimizer=compile_optimizer,
            optimizer_is_compiled=compiled[1],
            set_to_none=set_to_none,
            scaler=scaler,
            before_step=before_step,
            accumulate=accumulate,
        )
        plan = self._plan(step, limits, origin=origin, own=WAYS)
        if self._options.disable:
            return functools.partial(eager_step, step, Turns(accumulate))
        if step.updates_compiled:
            step.made_capturable = _make_capturable(optimizer)
        check = _load_check()(plan, step)
        self.checks.append(check)
        return GuardedTraining(self, check, step)

    def _plan(self, target: Any, limits: Limits, *, origin: str, own: tuple[str, ...]) -> Plan:
        spec = override(self._spec, limits, origin=origin, own=own)
        if self._mode is not None:
            spec = with_mode(spec, self._mode)
        name = self._free_name(target_name(target))
        plan = make_plan(spec, self._options, nodeid=self._nodeid, name=name)
        self.plans.append(plan)
        return plan

    def watch(self, *, name: str = "watch", **limits: Unpack[Limits]) -> WatchedBlock:
        """Watch a block that compiles by itself: ``with compileguard.watch(max_recompiles=0):``.

        Raises:
            SpecError: A limit is unknown, not allowed, or can't be kept by watching only.
        """
        origin = f"{self._nodeid}: compileguard.watch"
        self._refuse_late(origin)
        refuse_unwatchable(limits, origin=origin)
        if self._mode is not None:
            raise SpecError(
                f"{origin}: the marker's modes= can't be given to a block that compiles by itself; "
                "leave modes out, or guard a target"
            )
        spec = override(self._spec, limits, origin=origin)
        plan = make_plan(
            spec, self._options, nodeid=self._nodeid, name=self._free_name(name), watched=True
        )
        self.plans.append(plan)
        block = _load_watch()(plan)
        if not self._options.disable:
            self.checks.append(block)
        return block

    def __repr__(self) -> str:
        return f"<compileguard of {self._nodeid}>"

    @property
    def disabled(self) -> bool:
        return self._options.disable

    @property
    def options(self) -> Options:
        """Those of the session."""
        return self._options

    def call(self, check: Check, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call of one check; the first one starts it."""
        __tracebackhide__ = True
        with _TURN:
            return self._call(check, args, kwargs)

    def _call(self, check: Check, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        self._refuse_late(check.plan.key)
        if not check.started:
            others = [c for c in self.checks if c is not check and c.started]
            # Compiled code of other targets may stay unless it would be taken for this one's.
            sharing = any(c.code & check.code for c in others)
            check.start(cold=sharing or not others)
        with self._progress.counting(f"compiling {self._test}"):
            return check.call(args, kwargs)

    def finish(self) -> list[tuple[Check | WatchedBlock, Observation]]:
        """Take the times of all checks, and gather what they saw."""
        self._finished = True
        with _TURN:
            return [(check, self._finish(check)) for check in self.checks]

    def _finish(self, check: Check | WatchedBlock) -> Observation:
        timed = check.plan.untimed is None and not check.plan.watched
        progress = self._progress
        # Untimed, only locating a difference takes long.
        words = f"locating in {self._test}"
        with progress.said(f"timing {self._test}") if timed else progress.counting(words):
            return check.finish()

    def close(self) -> None:
        """Leave no compiled code behind."""
        if any(check.started for check in self.checks):
            from pytest_compileguard.dynamo import forget_compiled_code  # noqa: PLC0415  # torch

            with _TURN:
                forget_compiled_code()
        # pytest keeps the fixture as long as the session: not so the copies and traces.
        self.checks.clear()

    def _free_name(self, name: str) -> str:
        taken = {plan.name for plan in self.plans}
        candidates = (name, *(f"{name}-{n}" for n in range(2, len(taken) + 3)))
        return next(candidate for candidate in candidates if candidate not in taken)

    def _refuse_late(self, origin: str) -> None:
        """Let nothing be guarded that nobody would judge."""
        if self._finished:
            raise SpecError(
                f"{origin}: the test is through and its checks are judged; "
                "make guarded calls in the test itself or in the setup of a fixture"
            )


def _compiled_parts(model: Any, update: Any) -> tuple[bool, bool]:
    _load_check()
    from pytest_compileguard.shadow.compiling import is_compiled  # noqa: PLC0415  # imports torch

    return is_compiled(model), is_compiled(update)


def _make_capturable(optimizer: Any) -> bool:
    from pytest_compileguard.dynamo import make_capturable  # noqa: PLC0415  # imports torch

    return make_capturable(optimizer)


def _load_check() -> type[Check]:
    """Import torch and its compiler; what they warn of while loading is not the test's doing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pytest_compileguard.runner import Check  # noqa: PLC0415  # imports torch
    return Check


def _load_watch() -> type[WatchedBlock]:
    """Import torch and its compiler quietly, as ``_load_check`` does."""
    _load_check()
    from pytest_compileguard.watch import WatchedBlock  # noqa: PLC0415  # imports torch

    return WatchedBlock
