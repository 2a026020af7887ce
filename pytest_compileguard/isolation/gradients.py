"""Copies what stands in ``.grad``, and what it shares with other tensors of a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from pytest_compileguard.isolation.storages import StorageCopies, base_of, is_plain, storage_key
from pytest_compileguard.isolation.tensors import as_view, is_leaf, may_overlap
from pytest_compileguard.isolation.widening import Widening, wide_dtype

_HAS_GRAD_DTYPE = hasattr(torch.Tensor, "grad_dtype")
"""Torch 2.9 has none."""


def copy_gradient(real: torch.Tensor, twin: torch.Tensor, widening: Widening | None) -> None:
    """Give a twin a gradient of its own, which a backward in the call adds to."""
    if is_leaf(real) and is_leaf(twin):
        allow_gradient(real, twin, widening)
        if real.grad is None and twin.grad is None:
            return
    elif not real.retains_grad:
        return
    else:
        twin.retain_grad()
    twin.grad = None if real.grad is None else _copy(real.grad, widening)


def allow_gradient(real: Any, twin: Any, widening: Widening | None) -> None:
    """Let the gradient of a twin have the dtype that the original's may have."""
    if not _HAS_GRAD_DTYPE:
        return
    allowed = real.grad_dtype
    if widening is not None and allowed is not None:
        allowed = wide_dtype(allowed)
    if twin.grad_dtype != allowed:
        twin.grad = None  # one of an earlier call may not be of that dtype
        twin.grad_dtype = allowed


def _copy(gradient: torch.Tensor, widening: Widening | None) -> torch.Tensor:
    made = gradient.detach().clone()
    return made if widening is None else widening(made)


def gradients_of(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What stands in ``.grad``; torch warns of a look at others, which have none."""
    found = (t.grad for t in tensors if is_leaf(t) or t.retains_grad)
    return [gradient for gradient in found if gradient is not None]


def share_gradients(
    graded: Sequence[tuple[torch.Tensor, torch.Tensor]],
    twin_of: Callable[[torch.Tensor], torch.Tensor | None],
    storages: Sequence[StorageCopies],
    widening: Widening | None,
) -> None:
    """Let the gradients of twins share memory with what those of the originals share it with."""
    others = []
    for real, twin in graded:
        if real.grad is None:
            continue
        if (shared := _shared_twin(real.grad, twin_of, storages)) is not None:
            twin.grad = shared
        else:
            others.append((real.grad, twin))
    _share_among(others, widening)


def _share_among(
    graded: Sequence[tuple[torch.Tensor, torch.Tensor]], widening: Widening | None
) -> None:
    """Let gradients that nothing else holds be, or overlap, each other as their originals do."""
    counts = Counter(_memory(gradient) for gradient, _ in graded)
    # Those of which no twin has a copy are one as they are.
    copied = {_memory(gradient) for gradient, twin in graded if twin.grad is not gradient}
    several = [(g, twin) for g, twin in graded if counts[_memory(g)] > 1 and _memory(g) in copied]
    copies = StorageCopies([gradient for gradient, _ in several], widening)
    made: dict[int, torch.Tensor] = {}
    for gradient, twin in several:
        if id(gradient) not in made:
            plain = is_plain(gradient)
            made[id(gradient)] = copies.view(gradient) if plain else _copy(gradient, widening)
        twin.grad = made[id(gradient)]


def _memory(gradient: torch.Tensor) -> tuple[str, int]:
    """What two gradients have in common, of which one shows what is written to the other."""
    key = storage_key(gradient)
    return ("tensor", id(gradient)) if key is None else ("storage", key)


def _shared_twin(
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
