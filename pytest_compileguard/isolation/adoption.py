"""Tells whether a side made the twin of a new object already."""

from __future__ import annotations

from typing import Any

import torch

from pytest_compileguard.isolation import containers
from pytest_compileguard.isolation.pairs import Pairs
from pytest_compileguard.isolation.storages import storage_key
from pytest_compileguard.isolation.tensors import same_form

# Kinds of new state that a twin may have made already.
_ADOPTED = (torch.Tensor, list, *containers.EXACT_MAPPINGS)


def may_be_twin(real: Any, existing: Any, pairs: Pairs) -> bool:
    """Whether what stands in the place of a new object can be brought to its state."""
    if existing is real or isinstance(real, containers.ATOMIC) or pairs.knows(real, existing):
        return False
    if not isinstance(real, torch.Tensor):
        return type(real) is type(existing) and isinstance(real, _ADOPTED)
    fits = isinstance(existing, torch.Tensor) and same_form(real, existing)
    if not fits or isinstance(real, torch.nn.Parameter) or existing.requires_grad:
        return False
    # Writing to it must not write to a parameter or to another twin.
    return storage_key(existing) not in pairs.storages()
