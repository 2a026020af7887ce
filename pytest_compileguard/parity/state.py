"""What surrounds the values: memory that leaves share, and Python state of the two twins."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch

from pytest_compileguard.isolation.functions import assigned_values
from pytest_compileguard.isolation.objects import is_compiler_mark
from pytest_compileguard.isolation.tensors import memory_key
from pytest_compileguard.parity.gradients import NamedTensor


def aliases(
    outputs: Sequence[NamedTensor], others: Sequence[NamedTensor]
) -> dict[str, tuple[str, ...]]:
    """For each output tensor, the tensors that share its storage, by path."""
    groups: dict[int, list[str]] = {}
    for path, tensor in [*others, *outputs]:
        if (key := memory_key(tensor)) is not None:
            groups.setdefault(key, []).append(path)
    shared = {}
    for path, tensor in outputs:
        key = memory_key(tensor)
        with_it = [] if key is None else [p for p in groups[key] if p != path]
        shared[path] = tuple(sorted(with_it))
    return shared


def sharing_text(paths: tuple[str, ...] | None) -> str:
    """Say with what an output shares memory."""
    return f"shares memory with {', '.join(paths)}" if paths else "shares no memory"


State = dict[int, tuple[str, Any]]

_COMPARED = (bool, int, float, complex, str, type(None), torch.Tensor, list, tuple, dict)


def attribute_pairs(actual: Any, expected: Any, twins: Twins) -> list[tuple[str, Any, Any]]:
    """Attributes or items of two twins that are not twins of one original themselves.

    A call makes such state anew, or binds a name to something else; twins of one original
    are compared on their own.
    """
    a, e = _parts(actual, twins.paths), _parts(expected, twins.paths)
    pairs: list[tuple[str, Any, Any]] = []
    for name in [*e, *(name for name in a if name not in e)]:
        if name not in a or name not in e:
            pairs.append((name, name in a, name in e))
        elif not twins.correspond(a[name], e[name]) and isinstance(e[name], _COMPARED):
            pairs.append((name, a[name], e[name]))
    return pairs


class Twins:
    """Which objects of both sides stand for one original."""

    def __init__(self, compiled: State, eager: State) -> None:
        self._compiled = {id(twin): key for key, (_, twin) in compiled.items()}
        self._eager = {id(twin): key for key, (_, twin) in eager.items()}
        both = [*compiled.values(), *eager.values()]
        self.paths = {id(twin): path for path, twin in both if isinstance(twin, torch.Tensor)}

    def correspond(self, actual: Any, expected: Any) -> bool:
        key = self._eager.get(id(expected))
        return key is not None and self._compiled.get(id(actual)) == key


def _parts(value: Any, paths: dict[int, str]) -> dict[str, Any]:
    if isinstance(value, dict):
        # Optimizers keep their state by parameter.
        return {f"[{paths.get(id(key), repr(key))}]": part for key, part in value.items()}
    if isinstance(value, list):
        return {f"[{index}]": part for index, part in enumerate(value)}
    if isinstance(value, types.FunctionType):
        return assigned_values(value)
    if callable(value) and not isinstance(value, torch.nn.Module):
        return {}
    attributes = getattr(value, "__dict__", {})
    return {f".{name}": part for name, part in attributes.items() if not is_compiler_mark(name)}
