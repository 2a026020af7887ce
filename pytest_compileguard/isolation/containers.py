"""Mirrors Python's containers: the twin is updated in place, so that it stays itself."""

from __future__ import annotations

import collections
import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_compileguard.isolation.mirror import Mirror

EXACT_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)


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
    entries = {
        mirror.reflect(key, path): mirror.reflect(
            value, form.format(path=path, key=key).lstrip(".")
        )
        for key, value in list(real.items())
    }
    if list(twin) != list(entries):
        twin.clear()
    # Some subclasses forbid changes through their own methods.
    ordered = isinstance(real, collections.OrderedDict)
    put = collections.OrderedDict.__setitem__ if ordered else dict.__setitem__
    for key, value in entries.items():
        put(twin, key, value)
    return twin


def _reflect_sequence(mirror: Mirror, real: Any, path: str) -> Any:
    twin = mirror.known(real)
    if twin is None:
        twin = copy.copy(real)
    mirror.remember(real, twin, path, keep=mirror.keeps)
    items = [mirror.reflect(item, f"{path}[{i}]") for i, item in enumerate(real)]
    twin.clear()
    twin.extend(items)
    return twin


def _reflect_set(mirror: Mirror, real: set[Any], path: str) -> Any:
    twin = mirror.known(real)
    if twin is None:
        twin = copy.copy(real)
    mirror.remember(real, twin, path, keep=mirror.keeps)
    items = [mirror.reflect(item, path) for item in real]
    twin.clear()
    twin.update(items)
    return twin


def _reflect_tuple(mirror: Mirror, real: tuple[Any, ...], path: str) -> Any:
    items = [mirror.reflect(item, f"{path}[{i}]") for i, item in enumerate(real)]
    if all(a is b for a, b in zip(items, real, strict=True)):
        return real
    if type(real) is tuple:
        return tuple(items)
    make = getattr(type(real), "_make", None)  # a named tuple
    return make(items) if make else tuple.__new__(type(real), items)


REFLECTIONS: tuple[tuple[Any, Callable[[Mirror, Any, str], Any]], ...] = (
    (dict, reflect_mapping),
    ((list, collections.deque), _reflect_sequence),
    (set, _reflect_set),
    (tuple, _reflect_tuple),
)
