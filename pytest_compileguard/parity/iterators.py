"""What an iterator of Python's own has left to give, told without a step of it and without a copy.

Compiled code leaves an iterator over a tuple where eager has one over a list, a word or a product:
what both give is the same.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

_MODULES = ("builtins", "itertools", "_collections", "collections")
_MOST_UNROLLED = 10_000
"""Compiled code holds no longer tuple in place of what makes its items one by one."""
_UNROLLED = (
    *(itertools.product, itertools.permutations, itertools.combinations),
    *(itertools.combinations_with_replacement, itertools.repeat),
)
_OVER_DEQUES: tuple[type, ...] = (
    type(iter(collections.deque())),
    type(reversed(collections.deque())),
)


def is_of_python(value: Any) -> bool:
    """Whether it is an iterator, or a generator, that Python itself has the class of."""
    return isinstance(value, Iterator) and type(value).__module__ in _MODULES


def items_left(iterator: Iterator[Any]) -> Any:
    """The items of one over a sequence; ``None``: it has no sequence, or can't be read."""
    made = parts_made_of(iterator)
    if made is None:
        return None
    maker, args, *rest = made
    at = rest[0] if rest and isinstance(rest[0], int) else 0
    if isinstance(iterator, _UNROLLED):
        return _unrolled(iterator)
    if isinstance(iterator, _OVER_DEQUES):
        ordered = tuple(args[0]) if maker is _OVER_DEQUES[0] else tuple(reversed(args[0]))
        return ordered[args[1] :]
    if maker is reversed and isinstance(args[0], list | tuple):
        return tuple(args[0][: at + 1][::-1])
    if maker is iter and len(args) == 1:
        return _left_of(args[0], at)
    return None


def parts_made_of(iterator: Iterator[Any]) -> tuple[Any, ...] | None:
    """How to make another one that stands where it does; ``None``: it tells nobody."""
    if isinstance(iterator, itertools.groupby):
        return None  # to tell its groups is to take them
    made: Any = None
    # Python warns that a version of it will refuse this; that one, and generators, do.
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        made = iterator.__reduce__()
    return made if isinstance(made, tuple) else None


def _left_of(sequence: Any, at: int) -> Any:
    if isinstance(sequence, str | bytes | range) and len(sequence) > _MOST_UNROLLED:
        return sequence[at:]
    if isinstance(sequence, list | tuple | str | bytes | bytearray | range):
        return tuple(sequence[at:])
    return None


def _unrolled(iterator: Any) -> tuple[Any, ...] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        items = tuple(itertools.islice(copy.copy(iterator), _MOST_UNROLLED + 1))
    return items if len(items) <= _MOST_UNROLLED else None
