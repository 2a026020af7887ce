"""What a test calls in place of its target, or of its step of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from pytest_compileguard.training_step import TrainingStep

if TYPE_CHECKING:
    from pytest_compileguard.guard import CompileGuard
    from pytest_compileguard.runner import Check

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

    def __call__(self, inputs: Any, *targets: Any) -> Any:
        """Make one step.

        Args:
            inputs: Of the model: a tensor, a tuple of positional arguments, or a mapping.
            *targets: What the loss takes after the model's output.

        Returns:
            The loss, detached.
        """
        __tracebackhide__ = True
        loss = self._guard.call(self._check, ("gradients", inputs, *targets), {})
        if self._step.updates_compiled:
            self._guard.call(self._check, ("update", inputs, *targets), {})
        else:  # the same eager code on both sides
            self._step("update", inputs, *targets)
        return loss

    def __repr__(self) -> str:
        return f"<guarded {self._check.plan.name}>"
