"""State outside of the arguments: of the target, of globals and of classes."""

from __future__ import annotations

import importlib
import inspect
import types
from typing import Any

import torch

from pytest_compileguard.reproduction.program.nested import leaves
from pytest_compileguard.reproduction.program.settings import HERE, SETTINGS, imported


def meet_surroundings() -> None:
    """Give globals and classes what the call met in them."""
    if not SETTINGS["globals"] and not SETTINGS["classes"]:
        return
    start = torch.load(HERE / "globals.pt", weights_only=False)
    for name, (owner, attribute) in places().items():
        if name in start:
            setattr(owner, attribute, start[name])
        elif attribute in vars(owner):
            delattr(owner, attribute)


def state_of(target: Any) -> dict[str, Any]:
    """What a target keeps, and the globals and class attributes that it uses, by name."""
    seen: set[int] = set()
    found = {} if isinstance(target, types.FunctionType) else dict(leaves(target, "", seen))
    for name, (owner, attribute) in places().items():
        if attribute in vars(owner):
            found |= dict(leaves(vars(owner)[attribute], name, seen))
    return found


def places() -> dict[str, tuple[Any, str]]:
    """Where the target may keep state outside of itself: module or class, and name."""
    found = {f"{m}:{n}": (importlib.import_module(m), n) for m, n in SETTINGS["globals"]}
    for module, qualname in SETTINGS["classes"]:
        kind = imported((module, qualname))
        names = [n for n, v in vars(kind).items() if not is_special(n) and is_kept(v)]
        found |= {f"{module}:{qualname}.{name}": (kind, name) for name in names}
    return {name: place for name, place in found.items() if name not in SETTINGS["unsaved"]}


def is_special(name: str) -> bool:
    """Whether Python keeps something for itself under a name."""
    return name.startswith("__") or name == "_abc_impl"


def is_kept(value: Any) -> bool:
    """Whether a part of a class is state, no function or the like."""
    descriptor = hasattr(type(value), "__get__") and not isinstance(value, torch.Tensor)
    return not descriptor and not isinstance(value, type) and not inspect.isbuiltin(value)
