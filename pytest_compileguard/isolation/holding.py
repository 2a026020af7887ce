"""Refers to objects without keeping them alive, so that a check does not grow by what ends."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.weak import TensorWeakRef

Held = Callable[[], Any]
"""Gives an object, or ``None`` once it is gone."""


class _Kept:
    """A list, a dictionary or what else has no weak references; kept until nobody else has it."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __call__(self) -> Any:
        return self._real

    def count(self) -> int:
        return sys.getrefcount(self._real)


# It differs by the version of Python.
_COUNT_ALONE = _Kept([]).count()

_KEPT: weakref.WeakValueDictionary[int, _Kept] = weakref.WeakValueDictionary()
"""By identity. All mirrors have one of an object: else each would see the others hold it."""


def hold(real: Any) -> Held:
    """Refer to an object, weakly where that is possible."""
    if issubclass(type(real), torch.Tensor):
        return TensorWeakRef(real)  # one that only torch itself still holds is not gone
    try:
        return weakref.ref(real)
    except TypeError:
        kept = _KEPT.get(id(real))
        if kept is None:
            kept = _KEPT[id(real)] = _Kept(real)
        return kept


def has_ended(held: Held) -> bool:
    """Whether an object is gone, or would be if it were not kept here."""
    return held.count() <= _COUNT_ALONE if isinstance(held, _Kept) else held() is None
