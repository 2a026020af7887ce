"""One step of training, in the parts that are compared on their own.

The gradients and the update of the parameters are two calls: both sides start the update
from the same gradients. Else the rounding of a gradient that ought to be zero would grow
to a whole step of an optimizer such as Adam, and nothing could be told from that.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from pytest_compileguard.errors import SpecError

Part = Literal[
    "gradients", "first gradients", "further gradients", "last gradients", "update", "whole"
]
"""Gradients of one batch, or of the first, a further or the last micro-batch; the update that
follows; or, where a step is timed, both."""
WAYS = ("compile_optimizer", "set_to_none", "scaler", "before_step", "accumulate")
"""Arguments that say how a step is made."""
Compile = Callable[[Any], Any]


class TrainingStep:
    """Model, optimizer and loss of one step; called with the part that is to be made."""

    def __init__(  # noqa: PLR0913  # each is one way to train
        self,
        model: Any,
        optimizer: Any,
        loss_fn: Callable[..., Any],
        *,
        compile_optimizer: bool = False,
        optimizer_is_compiled: bool = False,
        set_to_none: bool = True,
        scaler: Any = None,
        before_step: Callable[[Any], object] | None = None,
        accumulate: int = 1,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.loss_fn = loss_fn
        self.compile_optimizer = compile_optimizer
        self.optimizer_is_compiled = optimizer_is_compiled
        """Whether the test compiled its ``step``."""
        self.set_to_none = set_to_none
        self.scaler = _enabled(scaler)
        self.before_step = before_step
        self.accumulate = accumulate
        """How many micro-batches give the gradients of one update."""
        self.unscaled: dict[str, Any] | None = None
        """What the scaler found in gradients that it unscaled, until the update."""
        self.made_capturable = False
        """Whether the optimizer was set up for CUDA graphs, since it is compiled."""

    def __call__(self, part: Part, inputs: Any, *targets: Any) -> Any:
        __tracebackhide__ = True
        return self.make(part, self.model, self.optimizer.step, (inputs, *targets))

    @property
    def updates_compiled(self) -> bool:
        """Whether the update of the parameters is compiled on one side."""
        return self.compile_optimizer or self.optimizer_is_compiled

    def make(
        self, part: Part, model: Callable[..., Any], update: Callable[[], Any], batch: Any
    ) -> Any:
        """Make one part by a given form of the model, and of the optimizer's ``step``."""
        __tracebackhide__ = True
        loss = None
        if part != "update":
            if part not in ("further gradients", "last gradients"):
                self.optimizer.zero_grad(set_to_none=self.set_to_none)
            loss = self._differentiated(model, batch)
            if part not in ("first gradients", "further gradients"):
                self._unscale()
        if part in ("update", "whole"):
            self._update(update)
        return loss

    @property
    def overflowed(self) -> bool:
        """Whether the scaler found infinite gradients, and so will skip the update."""
        found = (self.unscaled or {}).get("found_inf_per_device", {})
        return any(number.item() for number in found.values())

    def _differentiated(self, model: Callable[..., Any], batch: Any) -> Any:
        __tracebackhide__ = True
        loss = self.loss_fn(output_of(model, batch[0]), *batch[1:])
        share = loss if self.accumulate == 1 else loss / self.accumulate
        (share if self.scaler is None else self.scaler.scale(share)).backward()
        return loss.detach()

    def _unscale(self) -> None:
        """Unscale the gradients, so that they are compared as they are.

        A scaler notes that under the identity of the optimizer, which a copy does not have;
        it is kept here until the update.
        """
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
            noted = self.scaler._per_optimizer_states  # noqa: SLF001  # no public name
            self.unscaled = noted.pop(id(self.optimizer))

    def _update(self, update: Callable[[], Any]) -> None:
        __tracebackhide__ = True
        if self.before_step is not None:
            self.before_step(self.model)
        if self.scaler is None:
            update()
            return
        self._recall_unscaled()
        noted = self.scaler._per_optimizer_states  # noqa: SLF001  # no public name
        with self._stepping_by(update):
            self.scaler.step(self.optimizer)
        self.scaler.update()
        noted.pop(id(self.optimizer), None)  # the scaler begins another

    def _recall_unscaled(self) -> None:
        """Give the scaler back what it noted of the optimizer."""
        if self.unscaled is None:
            return
        scaler, noted, self.unscaled = self.scaler, self.unscaled, None
        # In a float64 run these are wider than torch's kernels take.
        scaler._scale = scaler._scale.float()  # noqa: SLF001  # no public name
        found = noted["found_inf_per_device"]
        noted["found_inf_per_device"] = {place: number.float() for place, number in found.items()}
        scaler._per_optimizer_states[id(self.optimizer)] = noted  # noqa: SLF001  # no public name

    @contextlib.contextmanager
    def _stepping_by(self, update: Callable[[], Any]) -> Iterator[None]:
        """Let the scaler, which decides whether to step, do so by the given form of ``step``."""
        own = vars(self.optimizer)
        if update == self.optimizer.step:
            yield
            return
        before = {"step": own["step"]} if "step" in own else {}
        own["step"] = update
        try:
            yield
        finally:
            del own["step"]
            own.update(before)

    def compiled_by(self, compile_: Compile, *, optimizer: bool = False) -> CompiledStep:
        """Compile the model, and the optimizer if that is asked for here or by the test."""
        both = optimizer or self.compile_optimizer
        update = self._compiled_update(compile_) if both else None
        return CompiledStep(self, compile_(self.model), update)

    def _compiled_update(self, compile_: Compile) -> Callable[[], None]:
        """Compile what the optimizer itself does, without the wrapper of a scheduler.

        The wrapper, which Dynamo never enters, leaves a mark on the optimizer.
        """
        optimizer, mark = self.optimizer, "_opt_called"
        wrapped = hasattr(optimizer.step, "_wrapped_by_lr_sched")
        step = types.MethodType(type(optimizer).step, optimizer) if wrapped else optimizer.step
        compiled = compile_(step)

        def update() -> None:
            compiled()
            if wrapped:
                setattr(optimizer, mark, True)

        return update


class CompiledStep:
    """A step whose model, and perhaps optimizer, are compiled."""

    def __init__(
        self, step: TrainingStep, model: Callable[..., Any], update: Callable[[], None] | None
    ) -> None:
        self.step = step
        self.model = model
        self.update = update
        """``None``: the optimizer's own ``step``, which may be compiled by itself."""

    def __call__(self, part: Part, inputs: Any, *targets: Any) -> Any:
        update = self.update or self.step.optimizer.step
        return self.step.make(part, self.model, update, (inputs, *targets))


class Turns:
    """Counts micro-batches."""

    def __init__(self, accumulate: int) -> None:
        self._accumulate = accumulate
        self._done = 0

    def take(self) -> tuple[Part, bool]:
        """Name the part that the next batch is for, and say whether the update follows it."""
        self._done = self._done % self._accumulate + 1
        last = self._done == self._accumulate
        if self._accumulate == 1:
            return "gradients", True
        if self._done == 1:
            return "first gradients", False
        return ("last gradients" if last else "further gradients"), last


def _enabled(scaler: Any) -> Any:
    """Drop a scaler that was made with ``enabled=False``: it does nothing, and keeps no state."""
    return scaler if scaler is not None and scaler.is_enabled() else None


def refuse_class(name: str, part: object, origin: str) -> None:
    """Let no class stand for an instance of it: it has the methods, and calling it makes one."""
    if isinstance(part, type):
        raise SpecError(f"{origin}: {name} is a class; pass an instance, {part.__name__}(...)")


def refuse_ways(scaler: Any, before_step: object, accumulate: object, origin: str) -> None:
    """Refuse what is no scaler, no function, or no number of calls."""
    refuse_class("scaler", scaler, origin)
    refuse_class("before_step", before_step, origin)
    methods = (
        getattr(scaler, name, None)
        for name in ("is_enabled", "scale", "unscale_", "step", "update")
    )
    if scaler is not None and not all(map(callable, methods)):
        kind = type(scaler).__name__
        raise SpecError(f"{origin}: scaler must be a torch.amp.GradScaler, not {kind}")
    if before_step is not None and not callable(before_step):
        kind = type(before_step).__name__
        raise SpecError(
            f"{origin}: before_step must be a function that takes the model, not {kind}"
        )
    if type(accumulate) is not int or accumulate < 1:
        raise SpecError(f"{origin}: accumulate must be a number of calls, 1 or more: {accumulate}")


def eager_step(step: TrainingStep, turns: Turns, inputs: Any, *targets: Any) -> Any:
    """Make a step as a test does that compares nothing."""
    __tracebackhide__ = True
    part, updates = turns.take()
    loss = step(part, inputs, *targets)
    if updates:
        step("update", inputs, *targets)
    return loss


def output_of(model: Callable[..., Any], inputs: Any) -> Any:
    """Call a model: a tuple holds its positional arguments, a mapping those by name."""
    if isinstance(inputs, tuple):
        return model(*inputs)
    return model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
