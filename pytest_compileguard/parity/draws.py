"""Gives the random numbers of one run to another: the reference must draw what eager did.

A generator makes other numbers in float64 than in narrower types, so they are recorded in a run of
the same types and put in their places in the float64 one. That can be done for operators whose
result is nothing but random numbers. One that computes with them inside (attention with dropout in
one kernel, ``rrelu``) has no reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

_PURE = frozenset(
    {
        "bernoulli",
        "bernoulli_",
        "cauchy_",
        "exponential_",
        "geometric_",
        "log_normal_",
        "multinomial",
        "normal_",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "random_",
        "randperm",
        "uniform_",
        "aten.normal.float_float",  # others take tensors
    }
)
_DROPOUT = "native_dropout"
_RATES = ("dropout_p", "dropout", "p")
"""How often an operator drops; 0: never."""

Draw = tuple[str, torch.Tensor]


class UnrepeatableError(Exception):
    """The random numbers of a run can't be given to another one; the message says why."""


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the random numbers that operators draw in its body."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draws: list[Draw] = []
        self.met_operators = False
        """Whether operators such as ``torch.cond`` ran: within a mode, these have no gradients."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Note what an operator drew."""
        del types
        if isinstance(func, HigherOrderOperator):
            self.met_operators = True
            return func(*_within(self, args), **(kwargs or {}))
        parts = _in_parts(self, func, args, kwargs or {})
        if parts is not NotImplemented:
            return parts
        result = func(*args, **(kwargs or {}))
        if _draws(func, args, kwargs or {}):
            name = _checked_name(func)
            drawn = result[1] if name == _DROPOUT else result
            self.draws.append((name, drawn.detach().clone()))
        return result


class Replaying(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives the recorded numbers to operators that draw in its body, in their order."""

    supports_higher_order_operators = True

    def __init__(self, draws: Sequence[Draw]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left: Iterator[Draw] = iter(draws)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Put the recorded numbers in place of those that an operator drew."""
        del types
        if isinstance(func, HigherOrderOperator):
            return func(*_within(self, args), **(kwargs or {}))
        parts = _in_parts(self, func, args, kwargs or {})
        if parts is not NotImplemented:
            return parts
        result = func(*args, **(kwargs or {}))
        if not _draws(func, args, kwargs or {}):
            return result
        name = _checked_name(func)
        known, drawn = next(self._left, ("nothing", torch.empty(0)))
        if name != known:
            raise UnrepeatableError(f"{name} draws where {known} did before")
        if name == _DROPOUT:
            return _dropped(result, args, drawn)
        if result.shape != drawn.shape:
            raise UnrepeatableError(f"{name} draws {tuple(result.shape)}: {tuple(drawn.shape)}")
        return result.copy_(drawn)


def _within(mode: TorchDispatchMode, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Let the functions that an operator such as ``torch.cond`` runs be seen by a mode too."""

    def seen(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            with mode:
                return function(*given)

        return run

    return tuple(seen(arg) if callable(arg) else arg for arg in args)


def _in_parts(
    mode: TorchDispatchMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run the operators that one is made of which draws and computes, if it is made of any.

    Inference mode hands over ``dropout`` whole, which autograd takes apart before.
    """
    if not _draws(func, args, kwargs) or _is_known(func):
        return NotImplemented
    with mode:
        return func.decompose(*args, **kwargs)


def _draws(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator draws random numbers; attention without dropout could, and doesn't."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    for at, argument in enumerate(func._schema.arguments):  # noqa: SLF001  # it has no other name
        if argument.name in _RATES:
            given = args[at] if at < len(args) else argument.default_value
            return bool(kwargs.get(argument.name, given))
    return True


def _checked_name(func: Any) -> str:
    name = _name(func)
    if not _is_known(func):
        raise UnrepeatableError(f"{name} draws and computes in one")
    return name


def _is_known(func: Any) -> bool:
    name = _name(func)
    return name in _PURE or name == _DROPOUT or str(func) in _PURE


def _name(func: Any) -> str:
    return str(func.overloadpacket.__name__)


def _dropped(
    result: tuple[torch.Tensor, torch.Tensor], args: tuple[Any, ...], mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the result of ``native_dropout(x, p, train)`` with a given mask."""
    out, own = result
    x, p = args[0], float(args[1])
    own.copy_(mask)
    out.copy_(x * mask / (1 - p) if p < 1 else torch.zeros_like(x))
    return out, own
