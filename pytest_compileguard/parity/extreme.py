"""Finds the element in which a leaf of the two sides differs most."""

from __future__ import annotations

import math
from typing import Any

import torch

from pytest_compileguard.observation import Extreme


def extreme(actual: object, expected: object, reference: object) -> Extreme | None:
    """Compare two leaves element by element; ``None`` where that can't be done.

    Args:
        actual: The leaf of the compiled side.
        expected: The leaf of the eager side.
        reference: The same leaf in float64, if there is one.
    """
    a, e, exact = _strided(actual), _strided(expected), _strided(reference)
    if a is None or e is None or a.shape != e.shape or not e.numel():
        return None
    if exact is not None and exact.shape != e.shape:
        exact = None
    gap = _gap(a, e)
    flat = int(gap.argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), e.shape))
    return Extreme(
        index=index,
        difference=f"{float(gap.reshape(-1)[flat]):.3g}",
        compiled=_shown(a[index].item()),
        eager=_shown(e[index].item()),
        reference=None if exact is None else _shown(exact[index].item(), 12),
    )


def _strided(value: object) -> torch.Tensor | None:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return None if value.is_quantized or value.is_nested else value.detach()


def _gap(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Absolute differences; infinite where exactly one is NaN, or infinities disagree."""
    wide = torch.complex128 if expected.dtype.is_complex else torch.float64
    a, e = actual.to(wide), expected.to(wide)
    same = (a == e) | (a.isnan() & e.isnan())
    return torch.where(same, 0.0, torch.nan_to_num((a - e).abs(), nan=math.inf))


def _shown(value: Any, digits: int = 8) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float | complex) else str(value)
