"""What surrounds the values: memory that leaves share, and Python state of the two twins."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from pytest_compileguard.isolation.arrays import is_array
from pytest_compileguard.isolation.containers import ATOMIC
from pytest_compileguard.isolation.functions import assigned_values
from pytest_compileguard.isolation.keys import key_names
from pytest_compileguard.isolation.objects import attributes_of, is_compiler_mark
from pytest_compileguard.isolation.storages import memory_key
from pytest_compileguard.parity.arrays import parts_of_array
from pytest_compileguard.parity.gradients import NamedTensor
from pytest_compileguard.parity.kinds import parts_of_kind, parts_that_hold, state_within
from pytest_compileguard.parity.leaves import Leaf, bound_leaves_of, leaves_of, tensors_of
from pytest_compileguard.parity.plain import holds_no_tensor


def aliases(tensors: Sequence[NamedTensor]) -> dict[str, tuple[str, ...]]:
    """For each tensor, those that share its memory, by path."""
    groups: dict[int, list[str]] = {}
    for path, tensor in tensors:
        if (key := memory_key(tensor)) is not None:
            groups.setdefault(key, []).append(path)
    shared = {}
    for path, tensor in tensors:
        key = memory_key(tensor)
        with_it = [] if key is None else [p for p in groups[key] if p != path]
        shared[path] = tuple(sorted(with_it))
    return shared


def sharing_text(paths: tuple[str, ...] | None) -> str:
    """Say with what a tensor shares memory; of one that this side does not have, that."""
    if paths is None:
        return "has no such tensor"
    return f"shares memory with {', '.join(paths)}" if paths else "shares no memory"


ABSENT = object()
"""What stands for an attribute or item that one of two twins lacks."""
State = dict[int, tuple[str, Any]]

_WITHOUT_STATE = (
    *(type, types.MethodType, types.BuiltinFunctionType, functools.partial, torch.Tensor),
)
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)
_WITHOUT_NEW_TENSORS = (*ATOMIC, *_FUNCTIONS)
_ATOMS = (bool, int, float, complex, str, bytes, type(None))


def attribute_pairs(actual: Any, expected: Any, twins: Twins) -> list[tuple[str, Any, Any]]:
    """Attributes or items of two twins that are not twins of one original themselves.

    A call makes such state anew, or binds a name to something else; twins of one original
    are compared on their own.
    """
    a, e = parts_of_twin(actual, twins.paths), parts_of_twin(expected, twins.paths)
    pairs: list[tuple[str, Any, Any]] = []
    for name in [*e, *(name for name in a if name not in e)]:
        if name not in a or name not in e:
            pairs.append((name, a.get(name, ABSENT), e.get(name, ABSENT)))
        elif not twins.are_one(a[name], e[name]):
            pairs.append((name, a[name], e[name]))
    if isinstance(expected, dict) and a.keys() == e.keys() and [*a] != [*e]:
        pairs.append((" (order)", [*a], [*e]))
    return pairs


def new_tensors(state: State) -> Iterator[NamedTensor]:
    """Tensors that the call made and keeps in attributes or items of what it met."""
    known = {id(twin): path for path, twin in state.values()}
    for path, twin in state.values():
        if holds_no_tensor(twin):
            continue  # before anything is asked of each word of a vocabulary
        for name, part in parts_of_twin(twin, known).items():
            if id(part) in known or isinstance(part, _WITHOUT_NEW_TENSORS):
                continue
            place = f"{path}{name}".lstrip(".")
            leaves = bound_leaves_of(part, place, parts_that_hold, known)
            yield from ((p, t) for p, t in tensors_of(leaves) if id(t) not in known)


def bound_leaves(state: State) -> dict[str, Any]:
    """What attributes, items and variables hold now, taken apart, by path.

    A call may have bound them to something new: then that is not what it met under the name.
    """
    paths = {id(twin): path for path, twin in state.values()}
    return {
        leaf.path: leaf.value
        for path, twin in state.values()
        if not isinstance(twin, torch.Tensor)
        for name, part in parts_of_twin(twin, paths).items()
        for leaf in _bound_parts(part, f"{path}{name}".lstrip("."), paths)
    }


def _bound_parts(part: Any, place: str, known: dict[int, str]) -> list[Leaf]:
    if id(part) in known:
        return leaves_of(part, place, objects=True)
    return bound_leaves_of(part, place, parts_of_kind, known)


class Twins:
    """Which objects of both sides stand for one original."""

    def __init__(self, compiled: State, eager: State) -> None:
        self.known_to_compiled = {id(twin): key for key, (_, twin) in compiled.items()}
        self.known_to_eager = {id(twin): key for key, (_, twin) in eager.items()}
        self._compiled = compiled
        both = [*compiled.values(), *eager.values()]
        self.paths = {id(twin): path for path, twin in both}

    def are_one(self, actual: Any, expected: Any) -> bool | None:
        """Whether they stand for one original; ``None``: not both stand for any."""
        keys = self.known_to_compiled.get(id(actual)), self.known_to_eager.get(id(expected))
        return None if None in keys else keys[0] == keys[1]

    def compiled_twin(self, expected: Any) -> Any:
        """The twin of what one of eager stands for; ``None``: there is none."""
        key = self.known_to_eager.get(id(expected))
        return None if key is None else self._compiled.get(key, ("", None))[1]

    def told(self, actual: Any, expected: Any) -> str:
        """Say for which originals they stand, if not for one."""
        return f"compiled binds {self.name(actual)}, eager {self.name(expected)}"

    def name(self, twin: Any) -> str:
        """What a twin is called where differences are told."""
        return self.paths.get(id(twin)) or "the target"


def parts_of_twin(value: Any, paths: dict[int, str]) -> dict[str, Any]:
    """What a twin holds, each by how its path ends; ``paths`` are those of all twins."""
    if isinstance(value, dict):
        named = zip(key_names(value, paths), value.values(), strict=True)
        return {f"[{name}]": part for name, part in named}
    if isinstance(value, list | collections.deque):
        return {f"[{index}]": part for index, part in enumerate(value)}
    if isinstance(value, types.FunctionType):
        return assigned_values(value)
    if isinstance(value, _WITHOUT_STATE):
        return {}
    if isinstance(value, set):
        plain = all(isinstance(item, _ATOMS) for item in value)
        return {" (items)": frozenset(value if plain else key_names(value, paths))}
    found = {
        f".{name}": part
        for name, part in attributes_of(value).items()
        if not is_compiler_mark(name) and not _was_found(value, name)
    }
    return parts_of_array(value) if is_array(value) else found | state_within(value)


def _was_found(value: Any, name: str) -> bool:
    """Whether it is what an autocast found when it was entered, which Dynamo does in its way."""
    return isinstance(value, torch.autocast) and name.startswith("prev")
