"""What objects hold, copied, and how they are given it back in place."""

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
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pytest_compileguard.isolation.containers import bound_to
from pytest_compileguard.isolation.fingerprint import MOST_BYTES as MOST_BYTES_READ
from pytest_compileguard.isolation.fingerprint import checksum_of, version_of
from pytest_compileguard.isolation.inner_state import InnerState, inner_state
from pytest_compileguard.isolation.objects import attributes_of, is_compiler_mark
from pytest_compileguard.isolation.ownership import file_of, is_users
from pytest_compileguard.isolation.storages import is_plain

_MISSING: Any = object()
_MOST_BYTES = 2**20
"""Tensors and arrays above this are not copied; a checksum tells whether they were written to."""
_NAMESPACES = (
    *(types.SimpleNamespace, argparse.Namespace),
    *(collections.UserDict, collections.UserList, collections.ChainMap, queue.Queue),
)
"""Python's own classes that keep all they hold in attributes: many a configuration is one."""


_OF_TORCH = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
"""Torch's classes that are what their attributes are."""


def content(value: Any) -> Any:
    """What an object holds; a mark where it is too large to copy; ``None`` where it is plain.

    What can't be given something else to hold is a tuple.
    """
    if isinstance(value, ATOMS):
        return None
    if isinstance(value, torch.Tensor):
        return _tensor_content(value)
    if is_array(value):
        return _array_content(value)
    for kinds, copied in _CONTAINERS:
        if isinstance(value, kinds):
            return copied(value)
    return inner_state(value) or _object_content(value)


def _object_content(value: Any) -> dict[str, Any] | None:
    theirs = not isinstance(value, _NAMESPACES) and not is_users(file_of(type(value)))
    if not isinstance(value, _OF_TORCH) and theirs:
        return None
    found = _attributes(value)
    return found if found or hasattr(value, "__dict__") else None


def _attributes(value: Any) -> dict[str, Any]:
    found = attributes_of(value)
    return {name: part for name, part in found.items() if not is_compiler_mark(name)}


def attributes_beside(value: Any) -> tuple[dict[str, Any], ...]:
    """The attributes of a container that is of a class of its own: they stand beside its items."""
    own = type(value) not in _WITHOUT_ATTRIBUTES and isinstance(value, _WITHOUT_ATTRIBUTES)
    return (vars(value),) if own and hasattr(value, "__dict__") else ()


def parts_of(held: Any) -> Iterable[Any]:
    """The values in what an object holds."""
    if isinstance(held, torch.Tensor | int | InnerState) or is_array(held):
        return ()
    return list(held.values()) if isinstance(held, dict) else held


ATOMS = (
    *(type(None), bool, int, float, complex, str, bytes, type),
    *(enum.Enum, types.ModuleType, types.FunctionType),
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
    (types.BuiltinFunctionType, lambda made: None if bound_to(made) is None else (made.__self__,)),
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


def is_array(value: Any) -> bool:
    """Whether it is an array of numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def fill(value: Any, held: Any) -> None:
    """Give an object in place what it held; one that is unchanged is left alone."""
    if is_array(held):
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
        own = _attributes(value)
        for name in [name for name in own if name not in held]:
            object.__delattr__(value, name)
        for name in [name for name in held if own.get(name, _MISSING) is not held[name]]:
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
