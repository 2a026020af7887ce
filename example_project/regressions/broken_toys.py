"""Models as they leave a hasty change: each has one fault that a plain test doesn't see."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd

log = logging.getLogger(__name__)


class Chatty(nn.Module):
    """Left over from debugging: a print splits the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, 8)`` to the same shape."""
        hidden = self.linear(x)
        print("hidden:", tuple(hidden.shape))
        return torch.relu(hidden)


def peak(x: Tensor) -> float:
    """Read a value back into Python: on a GPU it waits, and it splits the graph."""
    return x.abs().max().item()


def normalise(x: Tensor) -> Tensor:
    """Scale to a peak of 1, by way of ``peak``."""
    return x / peak(x)


def refine(x: Tensor) -> Tensor:
    """Log inside a loop: Dynamo gives up the whole function and runs it eager."""
    y = x.clone()
    for step in range(4):
        y = torch.relu(y - 0.1 * step)
        log.warning("step %d", step)
    return y


def score(x: Tensor, weight: Tensor) -> Tensor:
    """Give one smooth value for each row."""
    return nn.functional.softplus(x @ weight).sum(dim=1)


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """Multiply: a library call in eager mode already, with nothing left to fuse."""
    return x @ y


def _forward(graph: fx.GraphModule, _inputs: list[Tensor]) -> Any:
    return make_boxed_func(graph.forward)


def _scaled_backward(graph: fx.GraphModule, _inputs: list[Tensor]) -> Any:
    def run(*args: Any) -> list[Any]:
        *others, last = graph(*args)
        return [*others, last * 1.02]

    return make_boxed_func(run)


wrong_gradient: Callable[..., Any] = aot_autograd(
    fw_compiler=_forward, bw_compiler=_scaled_backward
)
"""A backend with an exact forward whose last gradient is 2 % too large."""
