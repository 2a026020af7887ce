"""Plain data: a configuration or a vocabulary of Python's own containers, numbers and words.

There may be very many of those in what a call reaches, and almost always none of them changed. To
name and compare each costs some 50 us; here they are passed over at a hundredth of that.
"""

from __future__ import annotations

import types
from collections import deque
from typing import Any

from pytest_compileguard.isolation.containers import ATOMIC, has_no_twin

_BY_VALUE = (int, bool, str, bytes)
"""Kinds in which equal values are the same; of floats, two zeros and two of no value are not."""
_BY_IDENTITY = (*ATOMIC, types.BuiltinFunctionType)
_SEQUENCES = (list, tuple)


def holds_no_tensor(value: Any) -> bool:
    """Whether plain data is all that there is; what is of another kind may hold anything."""
    seen: set[int] = set()
    open_values = deque([value])
    while open_values:
        found = open_values.pop()
        kind = type(found)
        if has_no_twin(found) or id(found) in seen:
            continue
        if kind is dict:
            parts = found.values()
        elif kind in (*_SEQUENCES, set, frozenset):
            parts = found
        else:
            return False
        seen.add(id(found))
        open_values.extend(part for part in parts if not has_no_twin(part))
    return True


def equal_leaves(one: Any, other: Any, known: set[tuple[int, int]] | None = None) -> int | None:
    """Count the leaves of plain data that is the same on both sides; ``None`` if it may differ.

    Pairs of containers that are ``known`` to be the same count no more; those found so are added.
    They go by identity, so all of them must outlive it.
    """
    count = 0
    known = set() if known is None else known
    seen: set[tuple[int, int]] = set()
    pairs = [(one, other)]
    while pairs:
        a, b = pairs.pop()
        kind = type(a)
        if kind is not type(b):
            return None
        if kind in _BY_VALUE or isinstance(a, _BY_IDENTITY):
            if a is not b and (kind not in _BY_VALUE or a != b):
                return None
            count += 1
        elif (id(a), id(b)) not in seen and (id(a), id(b)) not in known:
            seen.add((id(a), id(b)))
            parts = _parts(kind, a, b)
            if parts is None:
                return None
            pairs.extend(parts)
    known |= seen
    return count


def _parts(kind: type, one: Any, other: Any) -> list[tuple[Any, Any]] | None:
    if kind not in (dict, *_SEQUENCES) or len(one) != len(other):
        return None
    if kind is not dict:
        return list(zip(one, other, strict=True))
    same_keys = all(
        a is b or (type(a) is type(b) and type(a) in _BY_VALUE and a == b)
        for a, b in zip(one, other, strict=True)
    )
    return list(zip(one.values(), other.values(), strict=True)) if same_keys else None
