"""Classes, modules and members of enumerations that a call reaches as values.

They have no copies, so what a call keeps in them is put back for each side, and compared.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.compiler import is_compiling

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

X = torch.ones(3)
Made = tuple[Any, tuple[Any, ...], Callable[[], Any]]
"""A target, its arguments, and what its call counts."""


def step(more: int) -> int:
    return 1 + (more if is_compiling() else 0)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # Dynamo refuses some of them
def add(owner: Any, steps: int) -> int:
    owner.calls += steps
    return int(owner.calls)


def family() -> Any:
    class Stats:
        total = torch.zeros(3)
        calls = 0

    return Stats


class Uses(nn.Module):
    def __init__(self, held: Any, more: int) -> None:
        super().__init__()
        self.held = held
        self.more = more

    def forward(self, x: torch.Tensor) -> Any:
        self.held["a"].total.add_(1)
        return x * 2 + add(self.held["a"], step(self.more))


def in_a_dict_of_a_module(more: int) -> Made:
    stats = family()
    return Uses({"a": stats}, more), (X,), lambda: (stats.calls, stats.total.tolist())


def in_an_argument(more: int) -> Made:
    stats = family()

    def target(x: torch.Tensor, owners: list[Any]) -> Any:
        return x * 2 + add(owners[0], step(more))

    return target, (X, [stats]), lambda: stats.calls


def in_a_closure(more: int) -> Made:
    stats = family()
    table = {"a": stats}

    def target(x: torch.Tensor) -> Any:
        return x * 2 + add(table["a"], step(more))

    return target, (X,), lambda: stats.calls


TABLE: dict[str, Any] = {}


def uses_a_table(x: torch.Tensor, more: int) -> Any:
    return x * 2 + add(TABLE["a"], step(more))


def in_a_global_dict(more: int) -> Made:
    TABLE["a"] = stats = family()
    return uses_a_table, (X, more), lambda: stats.calls


def in_a_default(more: int) -> Made:
    stats = family()

    def target(x: torch.Tensor, owner: Any = stats) -> Any:
        return x * 2 + add(owner, step(more))

    return target, (X,), lambda: stats.calls


def in_a_member(more: int) -> Made:
    class Kind(enum.Enum):
        ONE = 1
        MANY = (1, 2)

    kind: Any = Kind
    kind.ONE.calls = 0

    def target(x: torch.Tensor, member: Any) -> Any:
        return x * 2 + add(member, step(more))

    return target, (X, kind.ONE), lambda: kind.ONE.calls


def in_the_value_of_a_member(more: int) -> Made:
    stats = types.SimpleNamespace(calls=0)

    class Kind(enum.Enum):
        ONE = stats

    def target(x: torch.Tensor, members: list[Any]) -> Any:
        return x * 2 + add(members[0].value, step(more))

    return target, (X, [Kind.ONE]), lambda: stats.calls


class OfModule(nn.Module):
    def __init__(self, held: Any, more: int) -> None:
        super().__init__()
        self.held = held
        self.more = more

    def forward(self, x: torch.Tensor) -> Any:
        self.held.STATE["n"] += step(self.more)
        return x * 2 + add(self.held, step(self.more))


def in_a_python_module(more: int) -> Made:
    module: Any = types.ModuleType("made_by_hand")
    module.STATE, module.calls = {"n": 0}, 0
    return OfModule(module, more), (X,), lambda: (module.STATE["n"], module.calls)


WAYS = (
    *(in_a_dict_of_a_module, in_an_argument, in_a_closure, in_a_global_dict, in_a_default),
    *(in_a_member, in_the_value_of_a_member, in_a_python_module),
)


@pytest.mark.parametrize("way", WAYS)
def test_it_is_left_as_the_call_leaves_it(way: Callable[[int], Made]) -> None:
    target, arguments, counted = way(0)
    target(*arguments)
    expected = counted()

    target, arguments, counted = way(0)
    checked = check(target, arguments)

    assert checked.verdict.outcome == "passed", checked.told
    assert counted() == expected


@pytest.mark.parametrize("way", WAYS)
def test_it_is_compared(way: Callable[[int], Made]) -> None:
    target, arguments, _ = way(1)
    told = check(target, arguments, locates=False).told
    assert "compiled differs from eager" in told
    assert "after the call" in told, told


def test_classes_of_others_are_left_alone() -> None:
    def target(x: torch.Tensor, kinds: tuple[Any, ...]) -> torch.Tensor:
        return x * len(kinds)

    kinds = (nn.Linear, dict, enum.Enum, pytest.Item, torch, torch.ops, torch.nn.functional)
    checked = check(target, (X, kinds))
    assert checked.verdict.outcome == "passed", checked.told
