"""Takes nested values apart into leaves, each with its path in the user's words."""

from __future__ import annotations

import collections
import dataclasses
import logging
import types
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from pytest_compileguard.isolation.keys import key_names, without_addresses
from pytest_compileguard.isolation.objects import attributes_of
from pytest_compileguard.parity.kinds import plain
from pytest_compileguard.parity.rebuilt import kind_name, rebuilt

_WHOLE = (type, types.ModuleType, torch.Tensor, torch.nn.Module, logging.Logger, logging.Handler)
"""Not taken apart: a log leads to all logs, and a module of Python to whatever it imports."""
_TYPE = " (type)"
"""How the path of what an object is ends."""


class Leaf(NamedTuple):
    """One value that is not taken apart further."""

    path: str
    value: Any


class Structure(str):
    """How a container nests: a leaf that holds no value itself."""

    __slots__ = ()


Kinds = Callable[[Any], dict[str, Any] | None]
"""Gives the parts of values of some kinds, each by how its path ends; ``None`` of others."""


def leaves_of(value: Any, path: str, *, objects: bool = False) -> list[Leaf]:
    """Flatten containers, registered pytrees and dataclasses; with ``objects``, any attributes."""
    return _Walk(objects=objects).leaves(value, path)


def bound_leaves_of(
    value: Any, path: str, kinds: Kinds, whole: Container[int] = frozenset()
) -> list[Leaf]:
    """Flatten what a name is bound to, values of these kinds too.

    What is ``whole``, by identity, is one leaf.
    """
    return _Walk(objects=True, kinds=kinds, whole=whole).leaves(value, path)


def tensors_of(leaves: list[Leaf]) -> list[tuple[str, torch.Tensor]]:
    """The leaves that are tensors."""
    return [(leaf.path, leaf.value) for leaf in leaves if isinstance(leaf.value, torch.Tensor)]


def lack_numbers(leaves: list[Leaf]) -> bool:
    """Whether tensors are all that there is to compare, and none of them holds a number."""
    values = [leaf.value for leaf in leaves if not _is_form(leaf)]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    others = [v for v in values if v is not None and not isinstance(v, torch.Tensor)]
    return bool(tensors) and not others and not any(map(_holds_numbers, tensors))


def lack_values(leaves: list[Leaf]) -> bool:
    """Whether there is nothing to compare but how containers nest."""
    return all(leaf.value is None or _is_form(leaf) for leaf in leaves)


def _is_form(leaf: Leaf) -> bool:
    return isinstance(leaf.value, Structure) or leaf.path.endswith(_TYPE)


def _holds_numbers(tensor: torch.Tensor) -> bool:
    return tensor.device.type != "meta" and tensor.numel() > 0


def _flattened(
    value: Any, is_whole: Callable[[Any], bool]
) -> tuple[list[tuple[str, Any]], pytree.TreeSpec]:
    """The leaves of a tree, each with its place; numbers where its author gave no names."""
    try:
        pairs, structure = pytree.tree_flatten_with_path(value, is_whole)
    except ValueError:
        leaves, structure = pytree.tree_flatten(value, is_whole)
        return [(f"[{index}]", leaf) for index, leaf in enumerate(leaves)], structure
    return [(pytree.keystr(keys), leaf) for keys, leaf in pairs], structure


def _of_no_kind(_: Any) -> None:
    return None


class _Walk:
    def __init__(
        self, *, objects: bool, kinds: Kinds = _of_no_kind, whole: Container[int] = frozenset()
    ) -> None:
        self._objects = objects
        self._kinds = kinds
        self._whole = whole
        self._open: set[int] = set()

    def leaves(self, value: Any, path: str) -> list[Leaf]:
        pairs, structure = _flattened(value, self._is_whole)
        # A list is no tuple, though their leaves agree.
        container = not structure.is_leaf()
        told = Leaf(f"{path} (structure)", Structure(without_addresses(repr(structure))))
        found = [told] if container else []
        for name, leaf in pairs:
            found += self._parts(leaf, path + without_addresses(name))
        return found

    def _parts(self, value: Any, path: str) -> list[Leaf]:
        if self._kinds is not _of_no_kind:
            value = plain(value)
            value = value if self._is_whole(value) else rebuilt(value)
        parts = None if self._is_whole(value) else self._kinds(value) or self._attributes(value)
        if parts is None or id(value) in self._open:
            around = parts is not None and self._kinds is not _of_no_kind
            return [Leaf(path, Structure("what holds it") if around else value)]
        self._open.add(id(value))
        kind = [Leaf(f"{path}{_TYPE}", kind_name(value))]
        inner = [self.leaves(part, path + name) for name, part in parts.items()]
        self._open.discard(id(value))
        return sum(inner, kind)

    def _is_whole(self, value: Any) -> bool:
        return id(value) in self._whole

    def _attributes(self, value: Any) -> dict[str, Any] | None:
        if isinstance(value, _WHOLE):
            return None
        # pytree knows containers by their exact class only.
        if isinstance(value, Mapping):
            named = zip(key_names(value, {}), value.values(), strict=True)
            return {f"[{name}]": part for name, part in named}
        if isinstance(value, list | tuple | collections.deque):
            return {f"[{index}]": part for index, part in enumerate(value)}
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            return {f".{name}": getattr(value, name, None) for name in names}
        attributes = attributes_of(value)
        if self._objects and attributes and not callable(value):
            return {f".{name}": part for name, part in attributes.items()}
        return None
