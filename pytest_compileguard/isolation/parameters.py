"""Twins of parameters: they share the memory, unless the target writes to it by an optimizer."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from pytest_compileguard.isolation import gradients, tensors

if TYPE_CHECKING:
    from pytest_compileguard.isolation.mirror import Mirror


def reflect_parameter(mirror: Mirror, real: Any, path: str) -> torch.nn.Parameter:
    """Make the twin of a parameter, or bring it up to date."""
    twin: Any = mirror.known(real)
    if torch.nn.parameter.is_lazy(real):
        twin = copy.deepcopy(real) if twin is None else twin
    elif twin is None or torch.nn.parameter.is_lazy(twin):
        twin = torch.nn.Parameter(_data(mirror, real), requires_grad=real.requires_grad)
        tensors.copy_attributes(real, twin)
    elif not mirror.shares_parameters:
        with torch.no_grad():
            twin.copy_(real)
    elif not _same_place(twin, real):
        twin.data = real.detach()
    if twin.requires_grad != real.requires_grad:
        twin.requires_grad_(real.requires_grad)
    # Most only read a gradient, if they look at it at all.
    if mirror.widening is not None or mirror.copies_gradients or not mirror.shares_parameters:
        mirror.copy_gradient(real, twin)
    else:
        gradients.allow_gradient(real, twin, mirror.widening)
        twin.grad = real.grad
        mirror.note_gradient(real, twin)
    mirror.remember(real, twin, path, keep=True)
    return twin  # type: ignore[no-any-return]


def _data(mirror: Mirror, real: torch.nn.Parameter) -> torch.Tensor:
    if mirror.widening is not None:
        return mirror.widening(real.detach())
    return real.detach() if mirror.shares_parameters else real.detach().clone()


def _same_place(twin: torch.Tensor, real: torch.Tensor) -> bool:
    form = twin.size() == real.size() and twin.stride() == real.stride()
    return form and twin.data_ptr() == real.data_ptr()
