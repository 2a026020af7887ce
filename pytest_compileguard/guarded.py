"""What a test calls in place of its target, or of its step of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from pytest_compileguard.training_step import TrainingStep, Turns

if TYPE_CHECKING:
    from pytest_compileguard.guard import CompileGuard
    from pytest_compileguard.runner import Check

_UNFILLED = (
    "the optimizer had no step to make, so the compiled one never ran: make as many calls as "
    "accumulate says"
)
_SKIPPED = (
    "the scaler skipped each update, so the compiled optimizer never ran: give the scaler a lower "
    "init_scale"
)

P = ParamSpec("P")
R = TypeVar("R")


class GuardedCallable(Generic[P, R]):
    """A target under guard. Each call of it is one step of the call sequence.

    For the test a call is one eager call of the target: same result, same mutations,
    same random numbers. The compiled call is its shadow.
    """

    def __init__(self, guard: CompileGuard, check: Check) -> None:
        self._guard = guard
        self._check = check

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        return self._guard.call(self._check, args, kwargs)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<guarded {self._check.plan.name}>"


class GuardedTraining:
    """A step of training under guard: call it with the input of the model and the targets.

    For the test a call is one eager step: gradients, and the update of the parameters.
    """

    def __init__(self, guard: CompileGuard, check: Check, step: TrainingStep) -> None:
        self._guard = guard
        self._check = check
        self._step = step
        self._turns = Turns(step.accumulate)
        self._untried: list[dict[str, None]] = []
        self._updated = False
        """Notes of the steps whose updates were skipped, until one was not."""

    def __call__(self, inputs: Any, *targets: Any) -> Any:
        """Make one step, or, where gradients accumulate, its next part.

        Args:
            inputs: Of the model: a tensor, a tuple of positional arguments, or a mapping.
            *targets: What the loss takes after the model's output.

        Returns:
            The loss, detached.
        """
        __tracebackhide__ = True
        part, updates = self._turns.take()
        loss = self._guard.call(self._check, (part, inputs, *targets), {})
        compiled = self._step.updates_compiled
        if compiled and not updates:
            self._tell_untried(_UNFILLED)
        elif compiled and not self._step.overflowed:
            self._guard.call(self._check, ("update", inputs, *targets), {})
            self._tried()
        elif updates:  # the same eager code on both sides
            if compiled:
                self._tell_untried(_SKIPPED)
            self._step("update", inputs, *targets)
        return loss

    def _tell_untried(self, reason: str) -> None:
        """Leave a note while no update was compiled."""
        if not self._updated and self._check.calls:
            self._untried.append(self._check.calls[-1].notes)
            self._untried[-1][reason] = None

    def _tried(self) -> None:
        """Take the notes back: an update was compiled."""
        self._updated = True
        for notes in self._untried:
            for reason in (_SKIPPED, _UNFILLED):
                notes.pop(reason, None)
        self._untried = []

    def __repr__(self) -> str:
        return f"<guarded {self._check.plan.name}>"
