"""Differentiates the outputs of a call by every leaf they depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from pytest_compileguard.isolation.tensors import is_leaf

NamedTensor = tuple[str, torch.Tensor]
Gradients = list[tuple[str, torch.Tensor | None]]


class Cotangents(NamedTuple):
    """What gradients are weighted with: random, equal on both sides, by output path."""

    by_path: dict[str, torch.Tensor]
    not_kept: str = ""
    """Why what the call keeps can't be differentiated in eager; empty: it is, or nobody can."""


_SEED = 0x5EED
_GRAPH_USED = "backward through the graph a second time"


def is_of_used_graph(error: Exception) -> bool:
    """Whether a graph can't be differentiated since the call did so itself."""
    return _GRAPH_USED in str(error)


def differentiable(outputs: Sequence[NamedTensor]) -> list[NamedTensor]:
    """The outputs that a backward pass can start from."""
    return [(path, t) for path, t in outputs if t.requires_grad and not is_leaf(t)]


def differentiated(
    results: Sequence[NamedTensor],
    kept: Sequence[NamedTensor],
    inputs: Sequence[NamedTensor],
    cotangents: Cotangents | None,
) -> tuple[Cotangents, Gradients]:
    """Differentiate results and what the call made and keeps, by the weights of the eager side.

    Without ``cotangents`` it is the eager side; it draws them for all that can be differentiated.
    """
    everything = [*results, *kept]
    if cotangents is not None:
        return cotangents, gradients(everything, inputs, cotangents)
    why_not = ""
    if differentiable(kept):
        drawn = make_cotangents(everything, _SEED)
        try:
            return drawn, gradients(everything, inputs, drawn, keeps_graph=True)
        except Exception as error:  # noqa: BLE001  # told, and the results are tried alone
            why_not = "" if is_of_used_graph(error) else type(error).__name__
    drawn = make_cotangents(results, _SEED)
    return drawn._replace(not_kept=why_not), gradients(results, inputs, drawn)


def make_cotangents(outputs: Sequence[NamedTensor], seed: int) -> Cotangents:
    """Draw cotangents for the eager outputs, without touching the global generators."""
    generators: dict[torch.device, torch.Generator] = {}
    drawn = {}
    for path, output in differentiable(outputs):
        if output.device not in generators:
            generators[output.device] = torch.Generator(output.device).manual_seed(seed)
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
    *,
    keeps_graph: bool = False,
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
        retain_graph=keeps_graph,
    )
    return [(path, gradient) for (path, _), gradient in zip(ends, found, strict=True)]
