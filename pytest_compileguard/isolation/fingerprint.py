"""Tells whether shared parameters were written to, by whatever way."""

from __future__ import annotations

from typing import Any

import torch

from pytest_compileguard.isolation.tensors import is_plain

_MOST_BYTES = 2**28
"""Above this, only torch's version counters are read: they miss writes through ``.data``."""


def fingerprints(state: dict[int, tuple[str, Any]]) -> dict[int, tuple[str, int, int]]:
    """Path, version and checksum of each parameter, by its original's identity."""
    found = {
        key: entry
        for key, entry in state.items()
        # A lazy parameter is there to be filled by the first call.
        if isinstance(entry[1], torch.nn.Parameter) and not torch.nn.parameter.is_lazy(entry[1])
    }
    total_bytes = sum(twin.nbytes for _, twin in found.values() if is_plain(twin))
    read = total_bytes <= _MOST_BYTES
    return {
        key: (path, _version(twin), _checksum(twin) if read else 0)
        for key, (path, twin) in found.items()
    }


def _version(tensor: torch.Tensor) -> int:
    if tensor.is_inference():
        return 0  # has no such counter
    return tensor._version  # noqa: SLF001  # no public name


def _checksum(tensor: torch.Tensor) -> int:
    if not is_plain(tensor):
        return 0
    with torch.no_grad():
        flat = tensor.detach().contiguous().view(-1)
        words = flat.view(torch.int32) if flat.nbytes % 4 == 0 else flat.view(torch.uint8)
        return int(words.sum(dtype=torch.int64))
