"""Asks objects of any kind: their own code may raise, or lead on without an end."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")

_MOST_WRAPPERS = 100
"""In a row: an object that makes every attribute anew, as ``mock.call`` does, has no last one."""
_ABSENT = object()
_SPACE = vars(types.ModuleType)["__dict__"]


def answer(ask: Callable[..., _Answer], *given: Any, default: _Answer) -> _Answer:
    """What asking gives; the default where that raises."""
    try:
        return ask(*given)
    except Exception:  # noqa: BLE001  # registries, settings, proxies that are bound to nothing
        return default


def attribute(value: Any, name: str, default: Any = None) -> Any:
    """An attribute; the default where there is none, or where the object's own code raises."""
    return answer(getattr, value, name, default, default=default)


def unwrapped(function: Any) -> Any:
    """What decorators wrap in the end; the function itself where they lead to no end."""
    met = {id(function): function}
    last = function
    while (inner := attribute(last, "__wrapped__", _ABSENT)) is not _ABSENT:
        if id(inner) in met or len(met) > _MOST_WRAPPERS:
            return function
        met[id(inner)] = last = inner
    return last


def is_module(value: Any) -> bool:
    """Whether a value is a module; one that only says so (a proxy) is none."""
    return issubclass(type(value), types.ModuleType)


def space_of(module: types.ModuleType) -> dict[str, Any]:
    """The names of a module, whatever its class makes of ``__dict__``."""
    return _SPACE.__get__(module)  # type: ignore[no-any-return]


def file_in(space: dict[str, Any]) -> str:
    """The file that a module names as its own, which may be a ``Path``; empty without one."""
    return str(space.get("__file__") or "")
