"""What can be guarded: refuses targets, references and parts of training that can't be."""

from __future__ import annotations

from pytest_compileguard.answers import attribute
from pytest_compileguard.errors import SpecError
from pytest_compileguard.guarded import GuardedCallable
from pytest_compileguard.target import is_coroutine, is_torch_module_class, kind_text, target_name
from pytest_compileguard.training_step import refuse_class


def refuse_target(target: object, nodeid: str) -> str:
    """Give the words that name a target in errors, unless it can't be compiled.

    Raises:
        SpecError: It can't be called, is guarded already, or is a class or a coroutine.
    """
    if not callable(target):
        raise SpecError(
            f"{nodeid}: compileguard(...): the target must be callable, not {kind_text(target)}"
        )
    if isinstance(target, GuardedCallable):
        raise SpecError(f"{nodeid}: compileguard({target!r}): is guarded already")
    origin = f"{nodeid}: compileguard({target_name(target)})"
    if isinstance(target, type):
        # torch.compile would write into the class itself, so all later tests would run compiled.
        name = target.__name__
        raise SpecError(f"{origin}: is a class; guard an instance, as in compileguard({name}(...))")
    if is_coroutine(target):
        raise SpecError(f"{origin}: torch.compile does not compile coroutines; guard what it calls")
    return origin


def refuse_reference(reference: object, origin: str) -> None:
    """Let nothing be compared with that can't be called, or that is guarded itself.

    A class may be one, as calling it may make a result; but no result is a module.
    """
    if isinstance(reference, type) and is_torch_module_class(reference):
        raise SpecError(f"{origin}: is a class; pass an instance, {reference.__name__}(...)")
    if isinstance(reference, GuardedCallable):
        raise SpecError(f"{origin}: is guarded itself; pass the plain function")
    if not callable(reference) or is_coroutine(reference):
        raise SpecError(f"{origin}: must be a function, a module or another callable")


_ORDER = "; the order is (model, optimizer, loss_fn)"


def refuse_parts(model: object, optimizer: object, loss_fn: object, origin: str) -> None:
    """Let only a model, its optimizer and a loss function be trained, in this order."""
    for name, part in (("model", model), ("optimizer", optimizer), ("loss_fn", loss_fn)):
        refuse_class(name, part, origin)
    for name, part in (("model", model), ("loss_fn", loss_fn)):
        if not callable(part) or isinstance(part, GuardedCallable):
            kind = type(part).__name__
            raise SpecError(f"{origin}: {name} must be a module or a function, not {kind}{_ORDER}")
    methods = (attribute(optimizer, name) for name in ("step", "zero_grad"))
    if not all(map(callable, methods)):
        kind = type(optimizer).__name__
        raise SpecError(f"{origin}: optimizer must be one of torch, not {kind}{_ORDER}")
    parameters = attribute(model, "parameters")
    if callable(parameters):
        known = {id(parameter) for parameter in parameters()}
        stepped = [p for group in getattr(optimizer, "param_groups", ()) for p in group["params"]]
        if not any(id(parameter) in known for parameter in stepped):
            raise SpecError(f"{origin}: the optimizer has no parameter of the model: none can move")
