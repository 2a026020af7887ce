"""Mirrors Python's containers: the twin is updated in place, so that it stays itself."""

from __future__ import annotations

import collections
import copy
import enum
import functools
import io
import random
import re
import sys
import types
import weakref
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_compileguard.isolation.mirror import Mirror

NAMESPACES = (type, types.ModuleType, enum.Enum)
"""What has no twin but itself either, though others may keep state in it."""
_WORDS = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    types.CodeType,
    torch.dtype,
    torch.finfo,
    torch.iinfo,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
    torch.SymInt,
)
# What has no twin but itself.
ATOMIC = (*_WORDS, *NAMESPACES)
_UNCHANGING = (*ATOMIC, range, re.Pattern, tuple, frozenset, type(Lock()), type(RLock()))
"""What no method leaves otherwise, or what all sides hold and let go alike."""
_READING = frozenset({"read", "read1", "readinto", "readline", "readlines", "seek", "__next__"})
_RANDOM: Any = vars(random)["random"].__self__
EXACT_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_BASES = (
    *(collections.OrderedDict, dict, collections.deque, list, set),
    *(weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary),
)


def of_base(value: Any, name: str) -> Callable[..., Any]:
    """A method of a container as Python's own class has it.

    Classes of others forbid changes through their own methods, or keep something else than given.
    """
    base = next((base for base in _BASES if base in type(value).__mro__), None)
    return getattr(value, name) if base is None else functools.partial(getattr(base, name), value)


def reflect_mapping(mirror: Mirror, real: Any, path: str) -> Any:
    """Mirror a mapping; the paths of its values look as in Python."""
    return reflect_entries(mirror, real, path, "{path}[{key!r}]")


def reflect_entries(mirror: Mirror, real: Any, path: str, form: str) -> Any:
    """Mirror a mapping whose values have paths of the given form."""
    exact = type(real) in EXACT_MAPPINGS
    twin = mirror.known(real) if exact else None
    if twin is None:
        twin = copy.copy(real)
    mirror.remember(real, twin, path, keep=mirror.keeps and exact)
    entries = {}
    for key, value in list(real.items()):
        twin_key = key if type(key) is str else mirror.key(key, path)
        if type(value) in _WORDS:  # no path is made for each word of a vocabulary
            entries[twin_key] = value
            continue
        place = form.format(path=path, key=key).lstrip(".")
        if mirror.keeps and twin_key in twin:
            mirror.adopt(value, twin[twin_key], place)
        entries[twin_key] = mirror.reflect(value, place)
    if not _same_keys(twin, entries):
        of_base(twin, "clear")()
    put = of_base(twin, "__setitem__")
    for key, value in entries.items():
        put(key, value)
    if not exact:
        _reflect_attributes(mirror, real, twin, path)
    return twin


def _reflect_attributes(mirror: Mirror, real: Any, twin: Any, path: str) -> None:
    """Mirror what a subclass of a container keeps beside its items."""
    for name, value in list(getattr(real, "__dict__", {}).items()):
        vars(twin)[name] = mirror.reflect(value, f"{path}.{name}")


def _same_keys(twin: Any, entries: dict[Any, Any]) -> bool:
    """Whether keys agree, in order; tensors, which optimizers use as keys, have no equality."""
    pairs = zip(twin, entries, strict=False)
    return len(twin) == len(entries) and all(a is b or _equal(a, b) for a, b in pairs)


def _equal(a: Any, b: Any) -> bool:
    return isinstance(a, str | int | tuple) and type(a) is type(b) and bool(a == b)


def _reflect_sequence(mirror: Mirror, real: Any, path: str) -> Any:
    twin = mirror.known(real)
    if twin is None:
        twin = copy.copy(real)
    mirror.remember(real, twin, path, keep=mirror.keeps)
    items = [
        item if type(item) in _WORDS else mirror.reflect(item, f"{path}[{i}]")
        for i, item in enumerate(real)
    ]
    of_base(twin, "clear")()
    of_base(twin, "extend")(items)
    _reflect_attributes(mirror, real, twin, path)
    return twin


def _reflect_set(mirror: Mirror, real: set[Any], path: str) -> Any:
    twin = mirror.known(real)
    if twin is None:
        twin = copy.copy(real)
    mirror.remember(real, twin, path, keep=mirror.keeps)
    items = [mirror.reflect(item, path) for item in real]
    of_base(twin, "clear")()
    of_base(twin, "update")(items)
    return twin


def _reflect_frozen_set(mirror: Mirror, real: frozenset[Any], path: str) -> Any:
    items = [mirror.reflect(item, path) for item in real]
    if all(a is b for a, b in zip(items, real, strict=True)):
        return real
    known, twin = mirror.known(real), type(real)(items)
    if known is not None and known == twin:
        twin = known
    mirror.remember(real, twin, path, keep=mirror.keeps)
    return twin


def _reflect_tuple(mirror: Mirror, real: tuple[Any, ...], path: str) -> Any:
    items = [mirror.reflect(item, f"{path}[{i}]") for i, item in enumerate(real)]
    if all(a is b for a, b in zip(items, real, strict=True)):
        return real
    if type(real) is tuple:
        return tuple(items)
    if hasattr(real, "n_sequence_fields"):  # a named result of torch
        return type(real)(items)
    make = getattr(type(real), "_make", None)  # a named tuple
    return make(items) if make else tuple.__new__(type(real), items)


def has_no_twin(value: Any) -> bool:
    """Whether a value stands for itself on each side, and holds nothing that is to be copied."""
    if type(value) is types.BuiltinFunctionType:
        return bound_to(value) is None
    return isinstance(value, ATOMIC)


def bound_to(method: types.BuiltinFunctionType) -> Any:
    """What a method of an object that is not made of Python code writes to, or uses up.

    ``None``: it is a function, or its object is none that a call may have for itself: a lock, a
    stream that it writes to, the generators behind ``random.random`` and ``numpy.random.rand``.
    """
    owner = method.__self__
    if isinstance(owner, _UNCHANGING) or owner is _RANDOM or owner is torch.default_generator:
        return None
    if isinstance(owner, io.IOBase) and not isinstance(owner, io.StringIO | io.BytesIO):
        return owner if method.__name__ in _READING else None
    numpy_random = sys.modules.get("numpy.random.mtrand")
    return None if owner is getattr(numpy_random, "_rand", None) else owner


def _reflect_bound(mirror: Mirror, real: types.BuiltinFunctionType, path: str) -> Any:
    """Bind ``log.append`` and the like to the twin; code is compiled for one such object."""
    if (owner := bound_to(real)) is None:
        return real
    with mirror.owned_by(real):
        keeps, mirror.keeps = mirror.keeps, True
        own, twin = mirror.reflect(owner, path), mirror.known(real)
        if own is owner:
            twin = real
        elif twin is None or twin.__self__ is not own:
            twin = getattr(own, real.__name__)
        mirror.remember(real, twin, path, keep=twin is not real)
        mirror.keeps = keeps
    return twin


REFLECTIONS: tuple[tuple[Any, Callable[[Mirror, Any, str], Any]], ...] = (
    (dict, reflect_mapping),
    ((list, collections.deque), _reflect_sequence),
    (set, _reflect_set),
    (frozenset, _reflect_frozen_set),
    (tuple, _reflect_tuple),
    (types.BuiltinFunctionType, _reflect_bound),
)
