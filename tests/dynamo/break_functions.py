"""Small functions with a known number of graph breaks; compiled by tests, so not in a test module.

pytest rewrites the asserts of test modules, which Dynamo would trace.
"""
# ruff: noqa: T201  # printing breaks the graph: it is what many of these are for
# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, warn-return-any=False

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._dynamo import graph_break, skip_frame


def clean(x: Tensor) -> Tensor:
    return x.sin().cos()


def one_gb(x: Tensor) -> Tensor:
    y = x.sin()
    graph_break()
    return y.cos()


def two_gb(x: Tensor) -> Tensor:
    y = x.sin()
    graph_break()
    z = y.cos()
    graph_break()
    return z.sin()


def gb_first(x: Tensor) -> Tensor:
    graph_break()
    return x.sin()


def gb_last(x: Tensor) -> Tensor:
    y = x.sin()
    graph_break()
    return y


def gb_consec(x: Tensor) -> Tensor:
    y = x.sin()
    graph_break()
    graph_break()
    return y.cos()


def _breaks_inside(x: Tensor) -> Tensor:
    y = x.sin()
    graph_break()
    return y.cos()


def nested(x: Tensor) -> Tensor:
    y = x + 1
    return _breaks_inside(y) * 2


def _breaks_first(x: Tensor) -> Tensor:
    graph_break()
    return x.cos()


def nested_first(x: Tensor) -> Tensor:
    y = x + 1
    return _breaks_first(y) * 2


def _calls_one_that_breaks(x: Tensor) -> Tensor:
    y = x * 3
    return _breaks_inside(y) - 1


def nested2(x: Tensor) -> Tensor:
    y = x + 1
    return _calls_one_that_breaks(y) * 2


def loop_gb(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x.sin()
        graph_break()
    return x


def loop_in_nested(x: Tensor) -> Tensor:
    y = x + 1
    return loop_gb(y) * 2


def call_in_loop(x: Tensor) -> Tensor:
    for _ in range(3):
        x = _breaks_inside(x)
    return x


def with_nograd(x: Tensor) -> Tensor:
    y = x.sin()
    with torch.no_grad():
        z = y.cos()
        graph_break()
        w = z.sin()
    return w + 1


@contextlib.contextmanager
def _custom() -> Iterator[None]:
    yield


def with_custom(x: Tensor) -> Tensor:
    y = x.sin()
    with _custom():
        z = y.cos()
        graph_break()
        w = z.sin()
    return w + 1


def try_gb(x: Tensor) -> Tensor:
    y = x.sin()
    try:
        graph_break()
        z = y.cos()
    except ValueError:
        z = y
    return z


def _yields(x: Tensor) -> Iterator[Tensor]:
    yield x.sin()
    graph_break()
    yield x.cos()


def generator(x: Tensor) -> Tensor:
    y = x + 1
    return torch.stack(list(_yields(y)))


@torch.compiler.disable
def _disabled(x: Tensor) -> Tensor:
    return x.cos()


def disabled(x: Tensor) -> Tensor:
    y = x.sin()
    return _disabled(y).sin()


@torch.compiler.disable(recursive=False)
def _disabled_alone(x: Tensor) -> Tensor:
    return clean(x)


def disabled_nonrec(x: Tensor) -> Tensor:
    y = x.sin()
    return _disabled_alone(y).sin()


def item(x: Tensor) -> Tensor:
    n = x.sum().item()
    return x * n


def prnt(x: Tensor) -> Tensor:
    y = x.sin()
    print(end="")
    return y.cos()


def ddbranch(x: Tensor) -> Tensor:
    y = x.sin()
    if y.sum() > 0:
        return y.cos()
    return y * 2


def is_comp(x: Tensor) -> Tensor:
    return x.sin() if torch.compiler.is_compiling() else x.sin() * 1


def builtin_unsup(x: Tensor) -> Tensor:
    y = x.sin()
    memoryview(b"ab")
    return y.cos()


def id_call(x: Tensor) -> Tensor:
    y = x.sin()
    n = id(y) * 0
    return y.cos() + n


def nontensor(_x: Tensor) -> int:
    return 5


def skipped_step(x: Tensor) -> Tensor:
    y = x.sin()
    skip_frame()
    return y.cos()


def bw_hook(x: Tensor) -> Tensor | None:
    w = x.clone().requires_grad_()
    w.register_hook(lambda grad: grad * 2)
    w.sin().sum().backward()
    return w.grad


def nonzero(x: Tensor) -> Tensor:
    y = x.sin()
    return y[y > 0].cos()


def except_raise(x: Tensor) -> Tensor:
    try:
        raise ValueError(x.shape)  # noqa: TRY301
    except ValueError:
        return x.sin()


def numpy_call(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sin(x.numpy())) + 1


def dict_print_twice(x: Tensor) -> dict[str, Tensor]:
    y = x.sin()
    print(end="")
    z = y.cos()
    print(end="")
    return {"y": y, "z": z}


# What follows is not of the table: places and callers of all kinds.


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.sin()
        print(end="")  # in Inner
        return y.cos()


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x + 1) * 2


class OuterBreaksToo(nn.Module):
    """Two instances of one class, and a break of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Inner()
        self.second = Inner()

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x + 1) * 2
        print(end="")  # in OuterBreaksToo
        return self.second(y)


class Derived(Inner):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 1) * 2


class BreaksInTraining(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.sin()
        if self.training:
            print(end="")  # in training
        return y.cos()


class Scaled(nn.Module):
    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor + 1


def recursive(x: Tensor, depth: int) -> Tensor:
    y = x.sin()
    print(end="")  # at every depth
    return recursive(y, depth - 1) if depth else y.cos()


def calls_lambda(x: Tensor) -> Tensor:
    loud = lambda t: (print(end=""), t.cos())[1]  # noqa: E731
    return loud(x.sin())


def _loud(t: Tensor) -> Tensor:
    print(end="")  # in _loud
    return t.sin()


def comprehension(x: Tensor) -> Tensor:
    parts = [_loud(x + i) for i in range(3)]
    return torch.stack(parts)


def _doubling(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    @functools.wraps(function)
    def wrapper(x: Tensor) -> Tensor:
        return function(x) * 2

    return wrapper


def _loudly(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    @functools.wraps(function)
    def wrapper(x: Tensor) -> Tensor:
        print(end="")  # in the wrapper
        return function(x) * 2

    return wrapper


@_doubling
def decorated(x: Tensor) -> Tensor:
    y = x.sin()
    print(end="")  # below the decorator
    return y.cos()


@_loudly
def decorated_loudly(x: Tensor) -> Tensor:
    y = x.sin()
    print(end="")  # below the loud decorator
    return y.cos()


def closure(x: Tensor) -> Tensor:
    def inner(t: Tensor) -> Tensor:
        print(end="")  # in the closure
        return t.cos()

    return inner(x.sin())


def two_on_a_line(x: Tensor) -> Tensor:
    y = x.sin()
    a, b = y.sum().item(), y.mean().item()
    return y * a + b


def after_a_branch(x: Tensor) -> Tensor:
    y = x.sin()
    if y.sum() > 0:
        y = y + 1
    print(end="")  # after both branches
    return y.cos()


def breaks_if_asked(x: Tensor, loud: bool) -> Tensor:  # noqa: FBT001
    y = x.sin()
    if loud:
        print(end="")  # only if asked
    return y.cos()


def _splits_by_value(x: Tensor) -> Tensor:
    size = int(x.sum().item())
    return torch.zeros(size).split(2)[0].sum()


def splits_by_value_twice(x: Tensor) -> Tensor:
    """Breaks only where numbers read from tensors are captured, at one line of the helper."""
    offset = int(x.mean().item())  # a symbol more than the helper has by itself
    return x * _splits_by_value(x) + offset


def without_source() -> tuple[Any, Any]:
    """Two functions of code that stands in no file; the second calls the first."""
    space: dict[str, Any] = {}
    text = "def made(x):\n    y = x.sin()\n    print(end='')\n    return y.cos()\n"
    text += "def calls_made(x):\n    return made(x + 1) * 2\n"
    exec(text, space)  # noqa: S102
    return space["made"], space["calls_made"]
