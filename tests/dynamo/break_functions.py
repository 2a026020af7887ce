"""Small functions with a known number of graph breaks; compiled by tests, so not in a test module.

pytest rewrites the asserts of test modules, which Dynamo would trace.
"""
# ruff: noqa: T201, ANN201  # printing breaks the graph: it is what many of these are for

from __future__ import annotations

import contextlib
import warnings
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
    n = len(repr(memoryview(b"ab")))
    return y * n


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


def bw_hook(x: Tensor) -> Tensor:
    w = x.detach().requires_grad_()
    y = w.sin()
    y.register_hook(lambda grad: grad * 2)
    y.sum().backward()
    assert w.grad is not None
    return w.grad.cos()


def nonzero(x: Tensor) -> Tensor:
    y = x.sin()
    return y[y > 0].cos()


def except_raise(x: Tensor) -> Tensor:
    try:
        raise ValueError(x.shape)
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
