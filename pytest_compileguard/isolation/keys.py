"""Names keys of containers so that those which are copies of each other have one name."""

from __future__ import annotations

import re
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def key_names(keys: Iterable[Any], paths: Mapping[int, str]) -> list[str]:
    """A name for each; ``paths`` are those of objects that have copies, by identity.

    What is known by its identity alone is named by its kind, and numbered in its order.
    """
    taken: Counter[str] = Counter()
    named = []
    for key in keys:
        name = _name(key, paths)
        taken[name] += 1
        named.append(name if taken[name] == 1 else f"{name} #{taken[name]}")
    return named


def without_addresses(text: str) -> str:
    """What is printed of objects, without where they lie: copies lie elsewhere."""
    return _ADDRESS.sub("", text)


def _name(key: Any, paths: Mapping[int, str]) -> str:
    if isinstance(key, torch.Tensor):
        return paths.get(id(key), f"a tensor of {tuple(key.shape)}")
    if type(key) is tuple:
        return f"({', '.join(_name(part, paths) for part in key)})"
    if isinstance(key, weakref.ref):
        return "a dead reference" if key() is None else _name(key(), paths)
    if type(key) is int and key in paths:  # that of an object, by ``id``
        return f"id({paths[key] or 'the target'})"
    text = repr(key)
    by_kind = without_addresses(text)
    return text if by_kind == text else paths.get(id(key), by_kind)
