"""Takes values apart: nested ones, and objects with what they keep."""

from __future__ import annotations

import collections
import enum
import functools
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch


def leaves(
    value: Any, name: str, seen: set[int] | None = None, depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Take nested values apart; with ``seen``, each object once, and modules and functions too."""
    found = parts(value, deep=seen is not None)
    if found is None or depth > (8 if seen is None else 200):  # deeper than anybody nests
        yield name, value
        return
    if seen is not None:
        if id(value) in seen:
            return
        seen.add(id(value))
    yield f"{name} (type)", type(value).__qualname__
    for key, part in found.items():
        yield from leaves(part, (name + key).lstrip("."), seen, depth + 1)


def parts(value: Any, *, deep: bool) -> dict[str, Any] | None:
    """What a value consists of, by name; ``None`` if it is not taken apart."""
    if isinstance(value, Mapping):
        keys = enumerate(value)  # an optimizer's are parameters
        names = [at if isinstance(key, torch.Tensor) else repr(key) for at, key in keys]
        return {f"[{name}]": part for name, part in zip(names, value.values(), strict=True)}
    if isinstance(value, list | tuple | collections.deque):
        return {f"[{index}]": part for index, part in enumerate(value)}
    if isinstance(value, torch.Tensor | type | types.ModuleType | types.FunctionType | enum.Enum):
        return None
    if callable(value) and not deep:
        return None
    if isinstance(value, types.MethodType):
        found: dict[str, Any] = {"": value.__self__}
    elif isinstance(value, functools.partial):
        found = {"": value.func, ".args": value.args, ".keywords": value.keywords}
    else:
        found = attributes(value)
    return found or None


def attributes(value: Any) -> dict[str, Any]:
    """Attributes in the dictionary of an object and in slots, less the marks of the compiler."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__ if type(value).__module__ != "builtins" else ():
        slots = [n for n, v in vars(kind).items() if isinstance(v, types.MemberDescriptorType)]
        found |= {name: getattr(value, name, None) for name in slots}
    for part in ("_parameters", "_buffers", "_modules"):
        found |= found.pop(part, {}) if isinstance(value, torch.nn.Module) else {}
    marks = ("_compiled_call_impl", "_is_torch_compile")
    return {
        f".{name}": part
        for name, part in found.items()
        if name not in marks and not name.startswith("_torchdynamo_")
    }
