"""What compiling on a GPU changes on purpose: it is told, not refused."""

from __future__ import annotations

from typing import Any

import torch

_ALIGNED_BYTES = 16


def as_eager_would(path: str, actual: Any, expected: Any) -> tuple[Any, str]:
    """Undo such a change; the compiled leaf as it is compared, and what there is to tell."""
    if not isinstance(actual, torch.Tensor) or not isinstance(expected, torch.Tensor):
        return actual, ""
    if not actual.is_cuda:
        return actual, ""
    if expected.is_cuda and has_padded_rows(actual, expected):
        strides = f"strides {actual.stride()} for {expected.stride()}"
        note = f"{path}: inductor pads its rows ({strides}); .view() may refuse what eager allows"
        return actual.contiguous(), note
    return actual, ""


def has_padded_rows(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether the only difference is that rows begin at multiples of 16 bytes.

    Inductor pads matrix products so (``pad_mm``), and where sizes are symbolic it hands on the
    padded result.
    """
    if actual.shape != expected.shape or actual.is_contiguous() or not expected.is_contiguous():
        return False
    unit = _ALIGNED_BYTES // actual.element_size()
    *outer, row = actual.shape
    padded = torch.empty([*outer, -(-row // unit) * unit], device="meta")
    return actual.stride() == padded.stride()
