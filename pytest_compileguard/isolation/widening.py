"""Makes float64 numbers of others, for a reference."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from pytest_compileguard.isolation.eager_dtypes import EagerDtypes

Moves = Literal["inputs", "all inputs", "products", "sums"]
"""What rounding moves in a run: numbers that the call is given, or what operators take and make.

Numbers of few digits among inputs stand for themselves, but for "all inputs". "products" are made
of rounded factors; "sums" are all that adds up many numbers, products among them.
"""


class Nudge(NamedTuple):
    """How the numbers of a run move: as much as rounding may have moved them."""

    seed: int
    way: int = 1
    """1, or -1 for the opposite of where the seed moves each of them."""
    moves: Moves = "inputs"
    unit: float = 1.0
    """Of the type that operators round to; the greatest by which an input moves, whose own type
    may have a smaller one."""

    @property
    def moves_inputs(self) -> bool:
        return self.moves in ("inputs", "all inputs")


_FINEST = torch.finfo(torch.float64).eps


class Rounding:
    """Moves each number one way or the other, by chance.

    But for those that need at most half of the digits of their type, as 0, 1, -3 or 0.5 do, unless
    every one is to move: a mask, a label or a count stands for itself, and what compares it is not
    on the edge of a jump. What is computed of it may be. Numbers of float64 all move: only so is it
    known what rounding makes of them.
    """

    def __init__(self, nudge: Nudge) -> None:
        self._seed, self._way, self._most = nudge.seed, nudge.way, nudge.unit
        self._every = nudge.moves == "all inputs"
        self._chances: dict[torch.device, torch.Generator] = {}

    def __call__(self, wide: torch.Tensor, unit: float) -> torch.Tensor:
        """Move numbers by ``unit`` times their size, if the nudge allows so much."""
        device, unit = wide.device, min(unit, self._most)
        if device.type == "meta":
            return wide
        if device not in self._chances:
            self._chances[device] = torch.Generator(device).manual_seed(self._seed)
        bits = torch.randint(0, 2, wide.shape, generator=self._chances[device], device=device)
        signs = bits.to(torch.float64) * 2 - 1  # float32 has no such digit of float64
        moved = wide * (1 + self._way * unit * signs)
        moves_all = self._every or unit <= _FINEST
        return moved if moves_all else torch.where(is_short(wide, unit), wide, moved)


def is_short(wide: torch.Tensor, unit: float) -> torch.Tensor:
    """Whether numbers need at most half of the digits of a type of this unit; both parts do."""
    if wide.is_complex():
        return is_short(torch.view_as_real(wide), unit).all(-1)
    digits = (1 - round(math.log2(unit))) // 2
    leading = torch.frexp(wide.detach()).mantissa * 2.0**digits
    return leading == leading.round()


class Widening(NamedTuple):
    """How numbers become float64 or complex128; integers stay as they are.

    With a rounding, each value moves by a unit of the precision that the original has.
    """

    rounding: Rounding | None = None

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Widen a tensor to a leaf that requires a gradient as the original does."""
        if not is_inexact(tensor.dtype):
            return tensor
        wide = tensor.detach().to(wide_dtype(tensor.dtype))
        if self.rounding is not None and not tensor.is_nested:  # those have no shape to draw for
            wide = self.rounding(wide, torch.finfo(tensor.dtype).eps)
        return wide.requires_grad_(tensor.requires_grad)


def is_inexact(dtype: torch.dtype) -> bool:
    """Whether numbers of a dtype are rounded, and so may be widened."""
    return dtype.is_complex or dtype.is_floating_point


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that numbers are widened to."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


@contextlib.contextmanager
def wide_numbers(
    nudge: Nudge | None = None, known: Iterable[tuple[torch.Tensor, torch.dtype]] = ()
) -> Iterator[None]:
    """Let code that names a narrower type, or makes numbers of integers, compute in float64 too.

    A reference that ends in ``.float()``, or begins with integers, would round as eager does. With
    a nudge, what is made of integers moves, as ``Widening`` moves other values. ``known`` are
    tensors of the run with the types that eager has them in.
    """
    before = torch.get_default_dtype()
    rounding = Rounding(nudge) if nudge is not None and nudge.moves_inputs else None
    torch.set_default_dtype(torch.float64)
    try:
        with _WideTypes(EagerDtypes(known, before), torch.finfo(before).eps, rounding):
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

    def __init__(self, eager: EagerDtypes, epsilon: float, rounding: Rounding | None) -> None:
        super().__init__()
        self._eager = eager
        self._epsilon = epsilon
        self._rounding = rounding

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        call = func, *self._eager.as_compared(func, args, kwargs or {})
        result = self._eager.followed(*call, _called(*call))
        if self._rounding is None or not _is_made_of_integers(result, args):
            return result
        return self._rounding(result, self._epsilon)


def _called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if func in _CASTS:
        func = torch.Tensor.double
    elif func not in _OF_BITS and "autocast" not in getattr(func, "__name__", ""):
        args = tuple(map(_as_wide, args))
        kwargs = {name: _as_wide(value) for name, value in kwargs.items()}
    return func(*args, **kwargs)


def _is_made_of_integers(result: Any, args: tuple[Any, ...]) -> bool:
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    inexact = isinstance(result, torch.Tensor) and is_inexact(result.dtype)
    return inexact and bool(tensors) and not any(is_inexact(tensor.dtype) for tensor in tensors)


def _as_wide(argument: Any) -> Any:
    return _NARROW.get(argument, argument) if isinstance(argument, torch.dtype) else argument
