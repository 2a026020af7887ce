"""Compiles a copy of a target: the whole of it, or, of a training step, what is to be compiled."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from pytest_compileguard import dynamo
from pytest_compileguard.training_step import TrainingStep


def compiled(twin: Any, arguments: dict[str, Any], *, whole: bool = False) -> Callable[..., Any]:
    """Compile a plain copy with the given arguments of ``torch.compile``.

    Of a training step, the optimizer too if that is asked for; with ``whole``, also one
    whose original compiled itself.
    """

    def compile_(part: Any) -> Any:
        with dynamo.configured():
            return torch.compile(part, **arguments)

    if not isinstance(twin, TrainingStep):
        return compile_(twin)  # type: ignore[no-any-return]
    return twin.compiled_by(compile_, optimizer=whole and twin.optimizer_is_compiled)


def compiled_again(twin: Any, real: Any, arguments: dict[str, Any]) -> Callable[..., Any]:
    """Compile a plain copy as the check, or the test itself, compiled the original."""
    if not isinstance(real, TrainingStep):
        form = _form(real)
        return compiled(twin, arguments) if form is None else form.compile(twin)
    step: Any = compiled(twin, arguments)
    model, update = _form(real.model), _form(real.optimizer.step)
    step.model = step.model if model is None else model.compile(twin.model)
    step.update = step.update if update is None else update.compile(twin.optimizer.step)
    return step  # type: ignore[no-any-return]


def compiled_part(target: Any) -> Any:
    """What of a target is always compiled: of a training step, its model."""
    return target.model if isinstance(target, TrainingStep) else target


def compiles_itself(target: Any) -> bool:
    """Whether the test compiled the target."""
    return _form(compiled_part(target)) is not None


def compiled_parts(target: Any) -> tuple[str, ...]:
    """Name the modules in a target, the target itself too, whose ``forward`` the test compiled."""
    module = compiled_part(target)
    if isinstance(module, types.MethodType):
        module = module.__self__
    if not isinstance(module, torch.nn.Module):
        return ()
    found = []
    for path, part in module.named_modules():
        inner = part is not module and dynamo.compiled_form(part) is not None
        if inner or _has_compiled_method(part):
            found.append(path or type(part).__name__)
    return tuple(found)


def _has_compiled_method(part: torch.nn.Module) -> bool:
    methods = (*vars(type(part)).values(), *vars(part).values())
    functions = (m for m in methods if isinstance(m, types.FunctionType | types.MethodType))
    return any(_form(function) is not None for function in functions)


def is_compiled(part: Any) -> bool:
    """Whether the test compiled a part of a training step."""
    return _form(part) is not None


def _form(target: Any) -> dynamo.InPlace | None:
    """How the target is compiled; of a method, its function."""
    if isinstance(target, types.MethodType):
        return dynamo.compiled_form(target.__func__)
    return dynamo.compiled_form(target)
