"""Helpers of another module that look at gradients, or drop them."""

from __future__ import annotations

import functools
import operator
from types import SimpleNamespace
from typing import Any

import torch


def drop(tensor: torch.Tensor) -> None:
    tensor.grad = None


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.grad is not None
    return tensor.grad * 2


def differentiate(loss: torch.Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


def deeper(loss: torch.Tensor) -> None:
    differentiate(loss)


def halve(tensor: torch.Tensor, factor: float = 0.5) -> None:
    assert tensor.grad is not None
    tensor.grad.mul_(factor)


class Halving:
    """Leads to it by methods of every kind, and when it is called."""

    table = (halve,)

    def __call__(self, tensor: torch.Tensor) -> None:
        halve(tensor)

    def by_method(self, tensor: torch.Tensor) -> None:
        halve(tensor)

    @staticmethod
    def by_static(tensor: torch.Tensor) -> None:
        halve(tensor)

    @classmethod
    def by_class(cls, tensor: torch.Tensor) -> None:
        halve(tensor)

    @property
    def given(self) -> Any:
        return halve


class Inheriting(Halving):
    pass


class Slotted:
    __slots__ = ("halves",)

    def __init__(self) -> None:
        self.halves = halve


def wrapping(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def by_default(tensor: torch.Tensor, halves: Any = halve) -> None:
    halves(tensor)


def by_keyword(tensor: torch.Tensor, *, halves: Any = halve) -> None:
    halves(tensor)


def named(name: str, tensor: torch.Tensor) -> None:
    globals()[name](tensor)


def by_attribute(tensor: torch.Tensor) -> None:
    by_attribute.halves(tensor)  # type: ignore[attr-defined]


by_attribute.halves = halve  # type: ignore[attr-defined]
partial = functools.partial(halve, factor=0.25)
nested = functools.partial(functools.partial(halve), factor=0.25)
of_method = Halving().by_method
calling = Halving()
inheriting = Inheriting()
slotted = Slotted()
table = {"halve": halve}
pairs = [("halve", (halve, 1))]
space = SimpleNamespace(halve=halve)
wrapped = wrapping(halve)
gradient_of = operator.attrgetter("grad")
differentiated = operator.methodcaller("backward")


@functools.lru_cache
def cached(number: int) -> Any:
    return (halve, number)
