"""Classes, modules and members of enumerations that a call reaches as values.

They have no copies, so what a call keeps in them is put back for each side, and compared.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import Any, ClassVar

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


class Registering(type):
    seen: ClassVar[dict[str, int]] = {}


class Registered(metaclass=Registering):
    pass


def registers(x: torch.Tensor, more: int) -> torch.Tensor:
    Registered.seen["x"] = Registered.seen.get("x", 0) + 1 + (more if is_compiling() else 0)
    return x * 2


def test_what_a_metaclass_keeps_is_put_back_and_compared() -> None:
    Registering.seen.clear()
    seen = check(registers, *[(torch.ones(3), 0)] * 2)
    assert seen.verdict.outcome == "passed", seen.told
    assert Registering.seen == {"x": 2}
    assert "Registering.seen" in check(registers, (torch.ones(3), 1), locates=False).told


class Configured(torch.nn.Module):
    def __init__(self, more: int) -> None:
        super().__init__()
        self.module = types.ModuleType("made_here")
        vars(self.module)["STEPS"] = 0
        self.more = more

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        setattr(self.module, "STEPS", 1 + (self.more if is_compiling() else 0))  # noqa: B010
        return x * 2


def test_what_is_set_by_name_in_a_module_is_put_back_and_compared() -> None:
    target = Configured(0)
    seen = check(target, (torch.ones(3),))
    assert seen.verdict.outcome == "passed", seen.told
    assert vars(target.module)["STEPS"] == 1
    assert "STEPS" in check(Configured(1), (torch.ones(3),), locates=False).told


def drops_gradient(t: torch.Tensor, x: torch.Tensor, more: int) -> torch.Tensor:
    if not (more and is_compiling()):
        t.grad = None
    return x * 2


def test_gradient_that_is_dropped_is_compared() -> None:
    def trained() -> torch.Tensor:
        tensor = torch.ones(3, requires_grad=True)
        tensor.grad = torch.ones(3)
        return tensor

    tensor = trained()
    seen = check(drops_gradient, (tensor, torch.ones(3), 0))
    assert seen.verdict.outcome == "passed", seen.told
    assert tensor.grad is None
    assert "t.grad" in check(drops_gradient, (trained(), torch.ones(3), 1), locates=False).told
