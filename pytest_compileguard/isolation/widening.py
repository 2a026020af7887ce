"""Makes float64 numbers of others, for a reference."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Widening(NamedTuple):
    """How numbers become float64 or complex128; integers stay as they are.

    With a generator (of the CPU), each value moves at random by a unit of the precision
    that the original has: as much as rounding may have moved it.
    """

    rounding: torch.Generator | None = None

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Widen a tensor to a leaf that requires a gradient as the original does."""
        if not is_inexact(tensor.dtype):
            return tensor
        wide = tensor.detach().to(wide_dtype(tensor.dtype))
        if self.rounding is not None and not tensor.is_nested:  # those have no shape to draw for
            bits = torch.randint(0, 2, tensor.shape, generator=self.rounding)
            wide = wide * (1 + torch.finfo(tensor.dtype).eps * (bits.to(tensor.device) * 2 - 1))
        return wide.requires_grad_(tensor.requires_grad)


def is_inexact(dtype: torch.dtype) -> bool:
    """Whether numbers of a dtype are rounded, and so may be widened."""
    return dtype.is_complex or dtype.is_floating_point


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that numbers are widened to."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype
