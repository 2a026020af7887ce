"""Tells whether shared parameters were written to, by whatever way."""

from __future__ import annotations

from typing import Any

import torch

from pytest_compileguard.isolation.storages import is_plain

MOST_BYTES = 2**28
"""Above this, only torch's version counters are read: they miss writes through ``.data``."""


Fingerprint = tuple[str, int, int, int]


def fingerprints(state: dict[int, tuple[str, Any]], *, gradients: bool) -> dict[int, Fingerprint]:
    """Path, version and checksum of each parameter, by its original's identity.

    With ``gradients``, which the shadow then shares too, also the version of its gradient.
    """
    found = {
        key: entry
        for key, entry in state.items()
        # A lazy parameter is there to be filled by the first call.
        if isinstance(entry[1], torch.nn.Parameter) and not torch.nn.parameter.is_lazy(entry[1])
    }
    total_bytes = sum(twin.nbytes for _, twin in found.values() if is_plain(twin))
    read = total_bytes <= MOST_BYTES
    return {
        key: (
            path,
            version_of(twin),
            checksum_of(twin) if read else 0,
            0 if twin.grad is None or not gradients else version_of(twin.grad),
        )
        for key, (path, twin) in found.items()
    }


def version_of(tensor: torch.Tensor) -> int:
    """How often torch saw a tensor written to in place."""
    if tensor.is_inference():
        return 0  # has no such counter
    return tensor._version  # noqa: SLF001  # no public name


def checksum_of(tensor: torch.Tensor) -> int:
    """A number that changes with the bits of a tensor, also where torch does not see it."""
    if not is_plain(tensor):
        return 0
    with torch.no_grad():
        flat = tensor.detach().contiguous().view(-1)
        words = flat.view(torch.int32) if flat.nbytes % 4 == 0 else flat.view(torch.uint8)
        return int(words.sum(dtype=torch.int64))
