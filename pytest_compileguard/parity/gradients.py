"""Differentiates the outputs of a call by every leaf they depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from pytest_compileguard.isolation.tensors import is_leaf

NamedTensor = tuple[str, torch.Tensor]


class Cotangents(NamedTuple):
    """What gradients are weighted with: random, equal on both sides, by output path."""

    by_path: dict[str, torch.Tensor]


def differentiable(outputs: Sequence[NamedTensor]) -> list[NamedTensor]:
    """The outputs that a backward pass can start from."""
    return [(path, t) for path, t in outputs if t.requires_grad and not is_leaf(t)]


def make_cotangents(outputs: Sequence[NamedTensor], seed: int) -> Cotangents:
    """Draw cotangents for the eager outputs, without touching the global generators."""
    generators: dict[torch.device, torch.Generator] = {}
    drawn = {}
    for path, output in differentiable(outputs):
        if output.device not in generators:
            generators[output.device] = torch.Generator(output.device).manual_seed(seed)
        drawn[path] = torch.randn(
            output.shape,
            dtype=output.dtype,
            device=output.device,
            generator=generators[output.device],
        )
    return Cotangents(drawn)


def gradients(
    outputs: Sequence[NamedTensor], inputs: Sequence[NamedTensor], cotangents: Cotangents
) -> list[tuple[str, torch.Tensor | None]]:
    """Gradient of the weighted outputs by each input, ``None`` where there is no path."""
    starts = [(p, t) for p, t in differentiable(outputs) if p in cotangents.by_path]
    ends = [(p, t) for p, t in inputs if t.requires_grad]
    if not starts or not ends:
        return []
    found = torch.autograd.grad(
        [t for _, t in starts],
        [t for _, t in ends],
        [cotangents.by_path[p].to(t.dtype) for p, t in starts],
        allow_unused=True,
    )
    return [(path, gradient) for (path, _), gradient in zip(ends, found, strict=True)]
