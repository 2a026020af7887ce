"""Gives objects back in place what they held."""

from __future__ import annotations

import collections
import types
import weakref
from typing import Any

import torch

from pytest_compileguard.isolation.arrays import ArrayContent, LargeArray
from pytest_compileguard.isolation.containers import of_base
from pytest_compileguard.isolation.contents import (
    WEAK,
    content,
    own_attributes,
)
from pytest_compileguard.isolation.inner_state import InnerState
from pytest_compileguard.isolation.storages import same_bits

_MISSING: Any = object()


def fill(value: Any, held: Any) -> None:
    """Give an object in place what it held; one that is unchanged is left alone."""
    if isinstance(held, ArrayContent | LargeArray):
        held.put_back(value)
        return
    if isinstance(held, int | tuple) or _same(value, held):
        return
    if isinstance(held, InnerState):
        held.put_back(value)
    elif isinstance(held, torch.Tensor):
        _fill_tensor(value, held)
    elif isinstance(value, (dict, *WEAK)):
        of_base(value, "clear")()
        put = of_base(value, "__setitem__")
        for key, part in held.items():
            put(key, part)
    elif isinstance(value, (set, weakref.WeakSet, list, collections.deque)):
        of_base(value, "clear")()
        of_base(value, "extend" if isinstance(held, list) else "update")(held)
    else:
        _fill_attributes(value, held)


def _fill_attributes(value: Any, held: dict[str, Any]) -> None:
    own = own_attributes(value)
    for name in [name for name in own if name not in held]:
        if _is_slot(value, name):
            object.__delattr__(value, name)
        else:  # a property of that name may stand before it
            del vars(value)[name]
    for name in [name for name in held if own.get(name, _MISSING) is not held[name]]:
        if _is_slot(value, name):
            object.__setattr__(value, name, held[name])
        else:
            vars(value)[name] = held[name]


def _is_slot(value: Any, name: str) -> bool:
    return isinstance(getattr(type(value), name, None), types.MemberDescriptorType)


def _fill_tensor(value: torch.Tensor, held: torch.Tensor) -> None:
    with torch.no_grad():
        if value.shape == held.shape and value.dtype == held.dtype:
            value.data.copy_(held)
        else:  # it was resized, or given other data
            value.data = held.clone()


def _same_tensor(value: torch.Tensor, held: torch.Tensor) -> bool:
    """Whether the bits agree: a zero may have changed its sign, which only a quotient shows."""
    now = value.detach().resolve_conj()
    if held.is_quantized or held.layout != torch.strided:
        return now.shape == held.shape and now.dtype == held.dtype and torch.equal(now, held)
    return same_bits(now, held)


def _same(value: Any, held: Any) -> bool:
    if isinstance(held, torch.Tensor):
        return _same_tensor(value, held)
    now = content(value)
    if isinstance(held, InnerState):
        return bool(now.shown == held.shown)
    if isinstance(held, dict):
        pairs = zip(held.items(), (now or {}).items(), strict=False)
        return len(held) == len(now or {}) and all(a is b and x is y for (a, x), (b, y) in pairs)
    if isinstance(held, frozenset):
        return bool(now == held)
    return len(now) == len(held) and all(a is b for a, b in zip(now, held, strict=True))
