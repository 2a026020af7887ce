"""Finds what the test compiled by itself and the check compiles into the whole target.

Its own backend and arguments then play no part, which is said. What a function names is looked
through: containers, attributes of modules and of objects of the user's, and what functions in
them name.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import types
from collections.abc import Iterator
from typing import Any

import torch

from pytest_compileguard import dynamo
from pytest_compileguard.errors import UnsupportedTorchError
from pytest_compileguard.isolation.functions import values_read
from pytest_compileguard.isolation.objects import attributes_of, is_compiler_mark
from pytest_compileguard.isolation.ownership import file_of, is_users
from pytest_compileguard.shadow.compiling import compiled_part, compiles_itself
from pytest_compileguard.target import own_functions, plain_functions

_MOST_VALUES = 50_000
"""Containers and objects that are looked through: it takes a quarter of a second, once a check."""
_CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque)
_CALLABLES = (types.FunctionType, types.MethodType, functools.partial, torch.nn.Module)


def inlined_notes(target: Any, parts: tuple[str, ...]) -> tuple[str, ...]:
    """Say which parts and helpers that the test compiled were compiled into the whole."""
    if parts:
        return _notes(parts)
    if compiles_itself(target):
        return ()
    part = compiled_part(target)
    named = [value for plain in plain_functions(part) for value in values_read(plain)]
    found, complete = _compiled_within([part, *own_functions(part), *named])
    notes = _notes(tuple(getattr(f, "__qualname__", type(f).__name__) for f in found))
    if complete:
        return notes
    return (*notes, "the target holds too many objects to look for parts that compile themselves")


def _notes(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        f"{name} is compiled by itself in your code, but here as a part of the target: its own "
        "backend and arguments were not checked"
        for name in dict.fromkeys(names)
    )


def _compiled_within(roots: list[Any]) -> tuple[list[Any], bool]:
    """What compiles itself, and whether all was looked at: what is near before what is far."""
    found: list[Any] = []
    seen: dict[int, Any] = {}
    waiting = collections.deque(roots)
    while waiting:
        value = waiting.popleft()
        if id(value) in seen:
            continue
        if len(seen) >= _MOST_VALUES:
            return found, False
        try:
            if not _is_looked_at(value):
                continue
            seen[id(value)] = value
            if _is_compiled(value):
                found.append(value)
            else:
                waiting.extend(_inner(value))
        except Exception:  # noqa: BLE001, S112  # mocks and lazy objects raise when they are looked at
            continue
    return found, True


def _is_compiled(value: Any) -> bool:
    try:
        return dynamo.compiled_form(value) is not None
    except UnsupportedTorchError:
        return True  # in a way that can't be repeated


def _is_looked_at(value: Any) -> bool:
    if isinstance(value, _CONTAINERS):
        return bool(value)  # a module has ten empty ones
    if isinstance(value, _CALLABLES):
        return True
    if isinstance(value, type | torch.Tensor | types.ModuleType):
        return False
    return dataclasses.is_dataclass(value) or is_users(file_of(type(value)))


def _inner(value: Any) -> Iterator[Any]:
    """What a value holds."""
    if isinstance(value, types.FunctionType):
        if is_users(value.__code__.co_filename):
            yield from values_read(value)
    elif isinstance(value, types.MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, _CONTAINERS):
        yield from value
    if not isinstance(value, types.FunctionType | types.MethodType):
        attributes = attributes_of(value).items()
        yield from (part for name, part in attributes if not is_compiler_mark(name))
