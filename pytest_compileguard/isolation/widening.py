"""Makes float64 numbers of others, for a reference."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode


class Widening(NamedTuple):
    """How numbers become float64 or complex128; integers stay as they are.

    With a generator (of the CPU), each value moves at random by a unit of the precision
    that the original has: as much as rounding may have moved it.
    """

    rounding: torch.Generator | None = None

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Widen a tensor to a leaf that requires a gradient as the original does."""
        if not is_inexact(tensor.dtype):
            return tensor
        wide = tensor.detach().to(wide_dtype(tensor.dtype))
        if self.rounding is not None and not tensor.is_nested:  # those have no shape to draw for
            wide = _moved(wide, torch.finfo(tensor.dtype).eps, self.rounding)
        return wide.requires_grad_(tensor.requires_grad)


def _moved(wide: torch.Tensor, epsilon: float, rounding: torch.Generator) -> torch.Tensor:
    bits = torch.randint(0, 2, wide.shape, generator=rounding)
    signs = bits.to(wide.device, torch.float64) * 2 - 1  # float32 has no such digit of float64
    return wide * (1 + epsilon * signs)


def is_inexact(dtype: torch.dtype) -> bool:
    """Whether numbers of a dtype are rounded, and so may be widened."""
    return dtype.is_complex or dtype.is_floating_point


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that numbers are widened to."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


@contextlib.contextmanager
def wide_numbers(seed: int | None = None) -> Iterator[None]:
    """Let code that names a narrower type, or makes numbers of integers, compute in float64 too.

    A reference that ends in ``.float()``, or begins with integers, would round as eager does. With
    a seed, what is made of integers moves at random, as ``Widening`` moves other values.
    """
    before = torch.get_default_dtype()
    rounding = None if seed is None else torch.Generator().manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    try:
        with _WideTypes(torch.finfo(before).eps, rounding):
            yield
    finally:
        torch.set_default_dtype(before)


_NARROW = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}
"""Types of 8 bits are left: rounding to them is what the code is about."""
_CASTS = frozenset({torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16})
_OF_BITS = frozenset({torch.Tensor.view})
"""What reads the same bits as another type."""


class _WideTypes(TorchFunctionMode):
    """Asks for the wide type wherever code asks for a narrower one."""

    def __init__(self, epsilon: float, rounding: torch.Generator | None) -> None:
        super().__init__()
        self._epsilon = epsilon
        self._rounding = rounding

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        if func in _CASTS:
            func = torch.Tensor.double
        elif func not in _OF_BITS and "autocast" not in getattr(func, "__name__", ""):
            args = tuple(map(_as_wide, args))
            kwargs = {name: _as_wide(value) for name, value in (kwargs or {}).items()}
        result = func(*args, **(kwargs or {}))
        if self._rounding is None or not _is_made_of_integers(result, args):
            return result
        return _moved(result, self._epsilon, self._rounding)


def _is_made_of_integers(result: Any, args: tuple[Any, ...]) -> bool:
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    inexact = isinstance(result, torch.Tensor) and is_inexact(result.dtype)
    return inexact and bool(tensors) and not any(is_inexact(tensor.dtype) for tensor in tensors)


def _as_wide(argument: Any) -> Any:
    return _NARROW.get(argument, argument) if isinstance(argument, torch.dtype) else argument
