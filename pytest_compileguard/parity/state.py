"""What surrounds the values: memory that leaves share, and Python state of the two twins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pytest_compileguard.isolation.objects import is_compiler_mark
from pytest_compileguard.isolation.tensors import storage_key
from pytest_compileguard.parity.gradients import NamedTensor


def aliases(
    outputs: Sequence[NamedTensor], others: Sequence[NamedTensor]
) -> dict[str, tuple[str, ...]]:
    """For each output tensor, the tensors that share its storage, by path."""
    groups: dict[int, list[str]] = {}
    for path, tensor in [*others, *outputs]:
        if (key := storage_key(tensor)) is not None:
            groups.setdefault(key, []).append(path)
    shared = {}
    for path, tensor in outputs:
        key = storage_key(tensor)
        with_it = [] if key is None else [p for p in groups[key] if p != path]
        shared[path] = tuple(sorted(with_it))
    return shared


def sharing_text(paths: tuple[str, ...] | None) -> str:
    """Say with what an output shares memory."""
    return f"shares memory with {', '.join(paths)}" if paths else "shares no memory"


def attribute_pairs(
    actual: Any, expected: Any, state: dict[int, tuple[str, Any]]
) -> list[tuple[str, Any, Any]]:
    """Attributes or items of two twins that are no twins themselves: numbers, new tensors."""
    a, e = _parts(actual), _parts(expected)
    twins = {id(twin) for _, twin in state.values()}
    missing = object()
    pairs: list[tuple[str, Any, Any]] = []
    for name in [*e, *(n for n in a if n not in e)]:
        left, right = a.get(name, missing), e.get(name, missing)
        if left is missing or right is missing:
            pairs.append((name, name in a, name in e))
        elif id(right) not in twins and isinstance(right, _COMPARED):
            pairs.append((name, left, right))
    return pairs


_COMPARED = (bool, int, float, complex, str, type(None), torch.Tensor)


def _parts(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {f"[{key!r}]": part for key, part in value.items() if isinstance(key, str | int)}
    if isinstance(value, list):
        return {f"[{index}]": part for index, part in enumerate(value)}
    attributes = getattr(value, "__dict__", {})
    if callable(value) and not isinstance(value, torch.nn.Module):
        return {}
    return {f".{name}": part for name, part in attributes.items() if not is_compiler_mark(name)}
