"""Kernels in Triton. Importing this module needs Triton, running them a GPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def _add(x_ptr, y_ptr, out_ptr, size, block: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < size
    x = tl.load(x_ptr + at, mask=inside)
    y = tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, x + y, mask=inside)


@triton.jit
def _bias_scale_relu(x_ptr, bias_ptr, scale_ptr, out_ptr, size, width, block: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0913, PLR0917
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < size
    column = at % width
    x = tl.load(x_ptr + at, mask=inside)
    bias = tl.load(bias_ptr + column, mask=inside)
    scale = tl.load(scale_ptr + column, mask=inside)
    tl.store(out_ptr + at, tl.maximum((x + bias) * scale, 0.0), mask=inside)


def vector_add(x: Tensor, y: Tensor) -> Tensor:
    """Add two tensors of one shape."""
    out = torch.empty_like(x)
    size = out.numel()
    _add[(triton.cdiv(size, _BLOCK),)](x, y, out, size, block=_BLOCK)
    return out


def bias_scale_relu(x: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
    """Compute ``relu((x + bias) * scale)`` in one pass; bias and scale go by column."""
    out = torch.empty_like(x)
    size, width = out.numel(), x.shape[-1]
    grid = (triton.cdiv(size, _BLOCK),)
    _bias_scale_relu[grid](x, bias, scale, out, size, width, block=_BLOCK)
    return out
