"""Copies what stands in ``.grad``, and what it shares with other tensors of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from pytest_compileguard.isolation.storages import StorageCopies, base_of
from pytest_compileguard.isolation.tensors import as_view, is_leaf, may_overlap
from pytest_compileguard.isolation.widening import Widening


def copy_gradient(real: torch.Tensor, twin: torch.Tensor, widening: Widening | None) -> None:
    """Give a twin a gradient of its own, which a backward in the call adds to."""
    if is_leaf(real) and is_leaf(twin):
        if real.grad is None and twin.grad is None:
            return
    elif not real.retains_grad:
        return
    else:
        twin.retain_grad()
    gradient = None if real.grad is None else real.grad.detach().clone()
    twin.grad = gradient if gradient is None or widening is None else widening(gradient)


def gradients_of(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What stands in ``.grad``; torch warns of a look at others, which have none."""
    found = (t.grad for t in tensors if is_leaf(t) or t.retains_grad)
    return [gradient for gradient in found if gradient is not None]


def shared_twin(
    gradient: torch.Tensor,
    twin_of: Callable[[torch.Tensor], torch.Tensor | None],
    storages: Iterable[StorageCopies],
) -> torch.Tensor | None:
    """The twin of a gradient that is, or lies in, what else was copied; ``None`` for any other."""
    if (twin := twin_of(gradient)) is not None:
        return twin
    if (base := base_of(gradient)) is not None and (twin := twin_of(base)) is not None:
        return as_view(gradient, base, twin)
    for copies in storages:
        if copies.holds(gradient) and not may_overlap(gradient):
            made = copies.view(gradient)
            if copies.widening is None:  # else no copy is of an earlier call
                made.copy_(gradient)
            return made
    return None
