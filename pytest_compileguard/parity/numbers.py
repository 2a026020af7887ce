"""The numbers that a leaf holds, as one tensor, whatever form it has."""

from __future__ import annotations

from typing import Any

import torch

from pytest_compileguard.parity.arrays import in_native_order, is_of_numpy, items_of

_COMPRESSED_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_COMPRESSED_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def numbers_of(value: Any) -> torch.Tensor | None:
    """Give the numbers of a tensor, an array or a float of Python.

    Of sparse and nested ones, those that are stored.
    """
    if isinstance(value, torch.Tensor):
        return stored(value.detach())
    if is_of_numpy(value):
        return _of_array(value)
    if isinstance(value, float | complex):
        wide = torch.float64 if isinstance(value, float) else torch.complex128
        return torch.tensor(value, dtype=wide)
    return None


def same_places(value: Any, other: Any) -> bool:
    """Whether two leaves have their numbers in the same places, as sparse ones need not."""
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(value) is type(other)
    if value.layout != other.layout:
        return False
    return all(map(torch.equal, _places(value.detach()), _places(other.detach())))


def has_arithmetic(dtype: torch.dtype) -> bool:
    """Whether numbers of a dtype become float64 ones; those of four bits, two in a byte, don't."""
    return "float4" not in str(dtype)


def _of_array(array: Any) -> torch.Tensor | None:
    try:
        return torch.as_tensor(in_native_order(items_of(array)))
    except TypeError:  # torch has no such dtype
        return None


def stored(tensor: torch.Tensor) -> torch.Tensor:
    """Give the numbers that a sparse or nested tensor is made of, or those of any other."""
    if tensor.layout == torch.sparse_coo:
        return tensor.coalesce().values()
    if tensor.layout in (*_COMPRESSED_ROWS, *_COMPRESSED_COLUMNS, torch.jagged):
        return tensor.values()
    if tensor.is_nested:
        return torch.cat([part.reshape(-1) for part in tensor.unbind()])
    return tensor


def _places(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if tensor.layout == torch.sparse_coo:
        return (tensor.coalesce().indices(),)
    if tensor.layout in _COMPRESSED_ROWS:
        return tensor.crow_indices(), tensor.col_indices()
    if tensor.layout in _COMPRESSED_COLUMNS:
        return tensor.ccol_indices(), tensor.row_indices()
    if tensor.is_nested:
        return (torch.tensor([part.shape for part in tensor.unbind()]),)
    return ()
