"""Which lists, dictionaries and objects are one: what is written to one of them stands in all.

Values agree where compiled code makes two lists of what is one in eager; later writes would not.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from pytest_compileguard.isolation.containers import ATOMIC
from pytest_compileguard.isolation.keys import key_names
from pytest_compileguard.isolation.objects import attributes_of
from pytest_compileguard.isolation.ownership import file_of, is_users
from pytest_compileguard.parity.rebuilt import Rebuilt, rebuilt
from pytest_compileguard.parity.state import State, parts_of_twin

Named = tuple[str, Any]
_CONTAINERS = (dict, list, set, collections.deque)
_LEFT_OUT = (
    *(*ATOMIC, torch.Tensor, torch.nn.Module),
    *(types.FunctionType, types.MethodType, types.BuiltinFunctionType),
)


def objects_in(value: Any, path: str) -> list[Named]:
    """Containers and objects with attributes in a value, each under all its names."""
    return list(_objects(value, path, {}))


def objects_of_state(state: State) -> Iterator[Named]:
    """The same of what attributes, items and variables are bound to."""
    known = {id(twin): path for path, twin in state.values()}
    seen: dict[int, Any] = dict.fromkeys(known)
    for path, twin in state.values():
        if _is_noted(twin):
            yield path, twin
        if isinstance(twin, torch.Tensor) or _is_flat(twin):
            continue
        for name, part in parts_of_twin(twin, known).items():
            yield from _objects(part, f"{path}{name}".lstrip("."), seen)


def odd_ones(eager: list[Named], compiled: list[Named]) -> Iterator[tuple[str, str]]:
    """What is one object on one side and not on the other: its name, and what is told of it."""
    ids = [{path: id(value) for path, value in reversed(side)} for side in (eager, compiled)]
    common = [path for path in ids[0] if path in ids[1]][::-1]
    groups = [_groups({path: side[path] for path in common}) for side in ids]
    told: set[str] = set()
    for path in common:
        expected, actual = (side[path] for side in groups)
        if expected != actual and path not in told:
            told |= {*expected, *actual}
            yield path, f"compiled {_text(path, actual)}, eager {_text(path, expected)}"


def _groups(ids: dict[str, int]) -> dict[str, list[str]]:
    found: dict[int, list[str]] = {}
    for path, key in ids.items():
        found.setdefault(key, []).append(path)
    return {path: found[key] for path, key in ids.items()}


def _text(path: str, group: list[str]) -> str:
    others = [other for other in group if other != path]
    return f"makes it one object with {', '.join(others)}" if others else "an object of its own"


def _objects(value: Any, path: str, seen: dict[int, Any]) -> Iterator[Named]:
    """Each under all names; what is in it only once."""
    if isinstance(value, _LEFT_OUT):
        return
    if _is_noted(value):
        yield path, value
    if id(value) in seen:
        return
    seen[id(value)] = value  # kept, so that nothing else takes its identity
    for name, part in _parts(value).items():
        if not isinstance(part, _LEFT_OUT):
            yield from _objects(part, f"{path}{name}", seen)


def _is_noted(value: Any) -> bool:
    if isinstance(value, (*_LEFT_OUT, tuple, frozenset)):
        return False
    return isinstance(value, _CONTAINERS) or (_is_own(value) and bool(attributes_of(value)))


def _is_flat(value: Any) -> bool:
    """Whether nothing but atoms is in a container: there may be very many."""
    if not isinstance(value, _CONTAINERS):
        return False
    return all(
        isinstance(p, ATOMIC) for p in (value.values() if isinstance(value, dict) else value)
    )


def _parts(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        if all(isinstance(part, ATOMIC) for part in value.values()):
            return {}
        named = zip(key_names(value, {}), value.values(), strict=True)
        return {f"[{name}]": part for name, part in named}
    if isinstance(value, list | tuple | collections.deque):
        return {f"[{index}]": part for index, part in enumerate(value)}
    if isinstance(made := rebuilt(value), Rebuilt):
        return made.parts
    own = attributes_of(value) if _is_own(value) else {}
    return {f".{name}": part for name, part in own.items()}


def _is_own(value: Any) -> bool:
    """Whether it is an object of the user's: others, such as logs, lead anywhere."""
    return not callable(value) and is_users(file_of(type(value)))
