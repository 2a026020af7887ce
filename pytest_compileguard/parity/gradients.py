"""Differentiates the outputs of a call by every leaf they depend on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch

from pytest_compileguard.isolation.tensors import is_leaf

NamedTensor = tuple[str, torch.Tensor]
Gradients = list[tuple[str, torch.Tensor | None]]


_SEED = 0x5EED
_GRAPH_USED = "backward through the graph a second time"


def is_of_used_graph(error: Exception | None) -> bool:
    """Whether a graph can't be differentiated since the call did so itself."""
    return _GRAPH_USED in str(error)


class Cotangents(NamedTuple):
    """What gradients are weighted with: random, equal on both sides, by output path."""

    by_path: dict[str, torch.Tensor]
    left_out: tuple[tuple[str, Exception], ...] = ()
    """What eager can't differentiate, and how it says so."""

    def only(self, paths: Collection[str]) -> Cotangents:
        """Weights of some outputs: what is not weighted is not differentiated."""
        return Cotangents({path: self.by_path[path] for path in paths})

    def explain(self, error: Exception | None) -> bool:
        """Whether it is an error of what is left out.

        AOTAutograd makes one backward pass for all outputs of a graph; asked for a gradient of one,
        it goes through what comes before each of them.
        """
        return any(
            type(error) is type(of) and is_of_used_graph(error) == is_of_used_graph(of)
            for _, of in self.left_out
        )


def differentiable(outputs: Sequence[NamedTensor]) -> list[NamedTensor]:
    """The outputs that a backward pass can start from."""
    return [(path, t) for path, t in outputs if t.requires_grad and not is_leaf(t)]


def make_cotangents(outputs: Sequence[NamedTensor]) -> Cotangents:
    """Draw cotangents for the eager outputs, without touching the global generators."""
    generators: dict[torch.device, torch.Generator] = {}
    drawn = {}
    for path, output in differentiable(outputs):
        if output.device not in generators:
            generators[output.device] = torch.Generator(output.device).manual_seed(_SEED)
        drawn[path] = _drawn_like(output, generators[output.device])
    return Cotangents(drawn)


def _drawn_like(output: Any, generator: torch.Generator) -> torch.Tensor:
    if output.is_nested:
        parts = [_drawn_like(part, generator) for part in _parts(output)]
        return _with_parts(output, parts)
    return torch.randn(output.shape, dtype=output.dtype, device=output.device, generator=generator)


def _parts(nested: Any) -> list[torch.Tensor]:
    """The numbers of a nested tensor: all in one if it is jagged, else each part."""
    plain = nested.detach()
    return [plain.values()] if nested.layout == torch.jagged else list(plain.unbind())


def _with_parts(nested: Any, parts: list[torch.Tensor]) -> torch.Tensor:
    """A nested tensor of these numbers; a jagged one has a length of its own that must be kept."""
    if nested.layout == torch.jagged:
        made: torch.Tensor = torch.zeros_like(nested.detach())
        made.values().copy_(parts[0])
        return made
    return torch.nested.as_nested_tensor(parts)


def _fitting(cotangent: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    if output.is_nested:
        return _with_parts(output, [part.to(output.dtype) for part in _parts(cotangent)])
    return cotangent.to(output.dtype)


def gradients(
    outputs: Sequence[NamedTensor],
    inputs: Sequence[NamedTensor],
    cotangents: Cotangents,
) -> Gradients:
    """Gradient of the weighted outputs by each input, ``None`` where there is no path."""
    starts = [(p, t) for p, t in differentiable(outputs) if p in cotangents.by_path]
    ends = [(p, t) for p, t in inputs if t.requires_grad]
    if not starts or not ends:
        return []
    found = torch.autograd.grad(
        [t for _, t in starts],
        [t for _, t in ends],
        [_fitting(cotangents.by_path[p], t) for p, t in starts],
        allow_unused=True,
    )
    return [(path, gradient) for (path, _), gradient in zip(ends, found, strict=True)]
