"""Arithmetic on whole tensors."""

from __future__ import annotations

import torch
from torch import Tensor


def transform(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Add, multiply, ReLU: three passes over memory in eager mode, one when fused."""
    return torch.relu((x + shift) * scale)
