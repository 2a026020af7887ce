"""What objects hold, copied."""

from __future__ import annotations

import argparse
import collections
import enum
import functools
import queue
import types
import weakref
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pytest_compileguard.answers import attribute
from pytest_compileguard.isolation.arrays import (
    ArrayContent,
    LargeArray,
    array_content,
    is_array,
)
from pytest_compileguard.isolation.containers import EXACT_MAPPINGS, bound_to, of_base
from pytest_compileguard.isolation.fingerprint import MOST_BYTES as MOST_BYTES_READ
from pytest_compileguard.isolation.fingerprint import checksum_of, version_of
from pytest_compileguard.isolation.inner_state import InnerState, inner_state
from pytest_compileguard.isolation.objects import attributes_of, is_compiler_mark
from pytest_compileguard.isolation.ownership import file_of, is_users
from pytest_compileguard.isolation.storages import is_plain

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
    if attribute(value, "__class__") is None or isinstance(value, ATOMS):
        return None  # or a proxy that is bound to nothing
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
    found = own_attributes(value)
    return found if found or hasattr(value, "__dict__") else None


def own_attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, without marks of the compiler."""
    found = attributes_of(value)
    return {name: part for name, part in found.items() if not is_compiler_mark(name)}


def attributes_beside(value: Any) -> tuple[dict[str, Any], ...]:
    """The attributes of a container that is of a class of its own: they stand beside its items."""
    own = type(value) not in _WITHOUT_ATTRIBUTES and isinstance(value, _WITHOUT_ATTRIBUTES)
    return (vars(value),) if own and hasattr(value, "__dict__") else ()


def parts_of(held: Any) -> Iterable[Any]:
    """The values in what an object holds."""
    if isinstance(held, torch.Tensor | int | InnerState):
        return ()
    if isinstance(held, ArrayContent):
        return held.parts()
    return list(held.values()) if isinstance(held, dict) else held


def _entries(value: Any) -> dict[Any, Any]:
    exact = type(value) in EXACT_MAPPINGS  # a vocabulary has very many
    return dict(value) if exact else dict(of_base(value, "items")())


ATOMS = (
    *(type(None), bool, int, float, complex, str, bytes, type),
    *(enum.Enum, types.ModuleType, types.FunctionType),
)
_WITHOUT_ATTRIBUTES = (dict, list, set, collections.OrderedDict, collections.deque)
WEAK = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
_CONTAINERS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (dict, _entries),
    ((list, collections.deque), lambda value: list(of_base(value, "__iter__")())),
    ((set, weakref.WeakSet), lambda value: frozenset(of_base(value, "__iter__")())),
    (tuple, tuple),
    (WEAK, dict),
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
        return array_content(value)
    read = value.nbytes <= MOST_BYTES_READ
    checksum = zlib.crc32(value.tobytes()) if read else 0
    return LargeArray.of(value, hash((value.shape, value.dtype.str, checksum)))
