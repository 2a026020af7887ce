"""One step of training, in the parts that are compared on their own.

The gradients and the update of the parameters are two calls: both sides start the update
from the same gradients. Else the rounding of a gradient that ought to be zero would grow
to a whole step of an optimizer such as Adam, and nothing could be told from that.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any, Literal

Part = Literal["gradients", "update", "whole"]
Compile = Callable[[Any], Any]


class TrainingStep:
    """Model, optimizer and loss of one step; called with the part that is to be made."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loss_fn: Callable[..., Any],
        *,
        compile_optimizer: bool = False,
        optimizer_is_compiled: bool = False,
        set_to_none: bool = True,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.loss_fn = loss_fn
        self.compile_optimizer = compile_optimizer
        self.optimizer_is_compiled = optimizer_is_compiled
        """Whether the test compiled its ``step``."""
        self.set_to_none = set_to_none
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
            self.optimizer.zero_grad(set_to_none=self.set_to_none)
            loss = self.loss_fn(output_of(model, batch[0]), *batch[1:])
            loss.backward()
            loss = loss.detach()
        if part != "gradients":
            update()
        return loss

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


def output_of(model: Callable[..., Any], inputs: Any) -> Any:
    """Call a model: a tuple holds its positional arguments, a mapping those by name."""
    if isinstance(inputs, tuple):
        return model(*inputs)
    return model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
