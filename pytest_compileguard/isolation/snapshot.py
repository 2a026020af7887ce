"""What places hold at one moment, and how they are brought back to it."""

from __future__ import annotations

import argparse
import collections
import enum
import functools
import queue
import sys
import types
import weakref
import zlib
from collections.abc import Callable, Container, Iterable
from typing import Any, NamedTuple

import torch

from pytest_compileguard.isolation.containers import ATOMIC
from pytest_compileguard.isolation.fingerprint import MOST_BYTES as MOST_BYTES_READ
from pytest_compileguard.isolation.fingerprint import checksum_of, version_of
from pytest_compileguard.isolation.inner_state import InnerState, inner_state
from pytest_compileguard.isolation.objects import attributes_of
from pytest_compileguard.isolation.ownership import file_of, is_users
from pytest_compileguard.isolation.storages import is_plain

MISSING: Any = object()
_MOST_BYTES = 2**20
"""Tensors and arrays above this are not copied; a checksum tells whether they were written to."""
MOST_PARTS = 10_000
_NAMESPACES = (
    *(types.SimpleNamespace, argparse.Namespace),
    *(collections.UserDict, collections.UserList, collections.ChainMap, queue.Queue),
)
"""Python's own classes that keep all they hold in attributes: many a configuration is one."""


class Place(NamedTuple):
    """A name that state is bound to."""

    owner: Any
    """A class, the globals of a module, a function (its attributes, its defaults) or a cell."""
    name: str
    path: str

    def read(self) -> Any:
        if isinstance(self.owner, _READ_BY_NAME):
            return _named(self.owner, self.name)
        space = self.owner if isinstance(self.owner, dict) else vars(self.owner)
        return space.get(self.name, MISSING)

    def write(self, value: Any) -> None:
        if self.read() is value:
            return
        if isinstance(self.owner, dict):
            if value is MISSING:
                del self.owner[self.name]
            else:
                self.owner[self.name] = value
        elif value is MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, value)


_READ_BY_NAME = (types.FunctionType, types.CellType)
_SHOWN_AS_THEY_ARE = (tuple, collections.deque)


_ALONE = (*ATOMIC, types.FunctionType)


def _is_whole(value: Any) -> bool:
    """Whether all that there is to an object is what it holds; gradients are not held."""
    if isinstance(value, torch.Tensor):
        return not value.requires_grad
    return not isinstance(value, torch.nn.Module | torch.optim.Optimizer)


def _named(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name, MISSING)
    except ValueError:  # a variable of an outer function that is not bound yet
        return MISSING


class Snapshot:
    """What was bound to the places at one moment, and what it held."""

    def __init__(self, bound: list[tuple[Place, Any]]) -> None:
        self.bound = bound
        self.truncated = False
        self._held: dict[int, tuple[Any, Any]] = {}
        for _, value in bound:
            self._hold(value)

    def put_back(self) -> None:
        for place, value in self.bound:
            place.write(value)
        for value, held in self._held.values():
            _fill(value, held)

    def values(self) -> dict[str, Any]:
        """By path, what can be compared: containers are shown as they were."""
        return {
            place.path: self._shown(value, ())
            for place, value in self.bound
            if value is not MISSING
        }

    def written_tensors(self, later: Snapshot) -> list[str]:
        """Paths of tensors too large to be copied that were written to in place since."""
        names = {id(value): place.path for place, value in self.bound}
        return [
            names.get(key, "a tensor in a global")
            for key, (value, held) in self._held.items()
            if isinstance(held, int) and later._held.get(key, (value, held))[1] != held
        ]

    def whole(self, met: Container[int], barred: Container[int]) -> dict[int, Any]:
        """What is put back with all that it holds, by identity; nothing if none of it was met."""
        found = {
            key: value
            for key, (value, held) in self._held.items()
            if key not in barred and not isinstance(held, int) and _is_whole(value)
        }
        if not any(key in met for key in found):
            return {}
        while lost := [key for key in found if not self._holds_only(key, found)]:
            for key in lost:
                del found[key]
        return found

    def _holds_only(self, key: int, known: Container[int]) -> bool:
        value, held = self._held[key]
        parts = (*parts_of(held), *_attributes_beside(value))
        return all(id(part) in known or isinstance(part, _ALONE) for part in parts)

    def _hold(self, value: Any) -> None:
        if id(value) in self._held or len(self._held) > MOST_PARTS:
            self.truncated |= len(self._held) > MOST_PARTS
            return
        held = content(value)
        if held is None:
            return
        self._held[id(value)] = (value, held)
        for part in (*parts_of(held), *_attributes_beside(value)):
            if not isinstance(part, _ATOMS):
                self._hold(part)

    def _shown(self, value: Any, above: tuple[int, ...]) -> Any:
        held = self._held.get(id(value), (value, None))[1]
        if held is None or isinstance(held, int) or id(value) in above:
            return value
        if isinstance(held, InnerState):
            return held.shown
        if (beside := _attributes_beside(value)) and self._held.get(id(beside[0]), (0, 0))[1]:
            shown = [self._contents(value, held, above), self._shown(beside[0], above)]
            return {"items": shown[0], "attributes": shown[1]}
        return self._contents(value, held, above)

    def _contents(self, value: Any, held: Any, above: tuple[int, ...]) -> Any:
        if isinstance(held, torch.Tensor) or _is_array(held):
            return held
        inside = (*above, id(value))
        kind = type(value)
        if isinstance(held, dict):
            shown = {key: self._shown(part, inside) for key, part in held.items()}
            return collections.OrderedDict(shown) if kind is collections.OrderedDict else shown
        if isinstance(held, frozenset):
            return set(held) if kind is set else held
        parts = [self._shown(part, inside) for part in held]
        return kind(parts) if kind in _SHOWN_AS_THEY_ARE else parts


def content(value: Any) -> Any:
    """What an object holds; a mark where it is too large to copy; ``None`` where it is plain.

    What can't be given something else to hold is a tuple.
    """
    if isinstance(value, _ATOMS):
        return None
    if isinstance(value, torch.Tensor):
        return _tensor_content(value)
    if _is_array(value):
        return _array_content(value)
    for kinds, copied in _CONTAINERS:
        if isinstance(value, kinds):
            return copied(value)
    return inner_state(value) or _object_content(value)


def _object_content(value: Any) -> dict[str, Any] | None:
    theirs = not isinstance(value, _NAMESPACES) and not is_users(file_of(type(value)))
    if not isinstance(value, torch.nn.Module) and theirs:
        return None
    found = attributes_of(value)
    return found if found or hasattr(value, "__dict__") else None


def _attributes_beside(value: Any) -> tuple[dict[str, Any], ...]:
    """The attributes of a container that is of a class of its own: they stand beside its items."""
    own = type(value) not in _WITHOUT_ATTRIBUTES and isinstance(value, _WITHOUT_ATTRIBUTES)
    return (vars(value),) if own and hasattr(value, "__dict__") else ()


def parts_of(held: Any) -> Iterable[Any]:
    """The values in what an object holds."""
    if isinstance(held, torch.Tensor | int | InnerState) or _is_array(held):
        return ()
    return list(held.values()) if isinstance(held, dict) else held


_ATOMS = (
    *(type(None), bool, int, float, complex, str, bytes, type),
    *(enum.Enum, types.ModuleType, types.FunctionType, types.BuiltinFunctionType),
)
_WITHOUT_ATTRIBUTES = (dict, list, set, collections.OrderedDict, collections.deque)
_WEAK = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
_CONTAINERS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (dict, dict),
    ((list, collections.deque), list),
    ((set, weakref.WeakSet), frozenset),
    (tuple, tuple),
    (_WEAK, dict),
    (types.MethodType, lambda method: (method.__self__,)),
    (functools.partial, lambda made: (made.func, made.args, made.keywords)),
)


def _tensor_content(value: torch.Tensor) -> torch.Tensor | int | None:
    if value.is_inference() or not is_plain(value):
        return None
    if value.nbytes <= _MOST_BYTES and not isinstance(value, torch.nn.Parameter):
        return value.detach().clone()
    read = value.nbytes <= MOST_BYTES_READ
    return hash((version_of(value), checksum_of(value) if read else 0))


def _array_content(value: Any) -> Any:
    if value.nbytes <= _MOST_BYTES:
        return value.copy()
    if value.nbytes > MOST_BYTES_READ or value.dtype.hasobject:
        return None
    return hash((value.shape, zlib.crc32(value.tobytes())))


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _fill(value: Any, held: Any) -> None:
    """Give an object in place what it held; one that is unchanged is left alone."""
    if _is_array(held):
        if value.flags.writeable and value.shape == held.shape:
            value[...] = held
        return
    if isinstance(held, int | tuple) or _same(value, held):
        return
    if isinstance(held, InnerState):
        held.put_back(value)
    elif isinstance(held, torch.Tensor):
        _fill_tensor(value, held)
    elif isinstance(value, (dict, set, weakref.WeakSet, *_WEAK)):
        value.clear()
        value.update(held)
    elif isinstance(value, list | collections.deque):
        value.clear()
        value.extend(held)
    else:
        own = attributes_of(value)
        for name in [name for name in own if name not in held]:
            object.__delattr__(value, name)
        for name in [name for name in held if own.get(name, MISSING) is not held[name]]:
            object.__setattr__(value, name, held[name])


def _fill_tensor(value: torch.Tensor, held: torch.Tensor) -> None:
    with torch.no_grad():
        if value.shape == held.shape:
            value.data.copy_(held)
        else:  # it was resized
            value.data = held.clone()


def _same(value: Any, held: Any) -> bool:
    if isinstance(held, torch.Tensor):
        return value.shape == held.shape and torch.equal(value.detach(), held)
    now = content(value)
    if isinstance(held, InnerState):
        return bool(now.shown == held.shown)
    if isinstance(held, dict):
        pairs = zip(held.items(), (now or {}).items(), strict=False)
        return len(held) == len(now or {}) and all(a is b and x is y for (a, x), (b, y) in pairs)
    if isinstance(held, frozenset):
        return bool(now == held)
    return len(now) == len(held) and all(a is b for a, b in zip(now, held, strict=True))
