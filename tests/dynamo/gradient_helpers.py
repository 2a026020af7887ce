"""Helpers of another module that look at gradients, or drop them."""

from __future__ import annotations

import torch


def drop(tensor: torch.Tensor) -> None:
    tensor.grad = None


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.grad is not None
    return tensor.grad * 2


def differentiate(loss: torch.Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


def deeper(loss: torch.Tensor) -> None:
    differentiate(loss)
