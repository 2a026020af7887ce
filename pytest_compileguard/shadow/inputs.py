"""Says what a call is given."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree


def inputs_text(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Name shape and dtype of each tensor among the arguments: ``float32[32, 64], int64[]``."""
    told = tensor_texts(args, kwargs)
    if told is None:
        return "arguments that can't be taken apart"
    return ", ".join(told) or "no tensors"


def tensor_texts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str] | None:
    """Name each tensor among the arguments; ``None``: they can't be taken apart."""
    try:
        leaves = pytree.tree_leaves((args, dict(sorted(kwargs.items()))))
    except Exception:  # noqa: BLE001  # any class may register how it is taken apart
        return None
    return [_tensor_text(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _tensor_text(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    try:
        return f"{dtype}{list(tensor.shape)}"
    except RuntimeError:  # nested tensors have no one shape
        return f"{dtype}[...]"
