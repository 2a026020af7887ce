"""Targets of which the test compiled only parts: these run as they would without the plugin."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pytest_compileguard.finding import Finding
from pytest_compileguard.spec import CompileCheck
from tests.dynamo.checked import Checked, check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Backend = str | Callable[..., Any]


def alters(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
    return lambda *args: tuple(1.01 * out for out in graph(*args))


class Decorated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @torch.compile(backend="aot_eager", dynamic=False)
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)  # type: ignore[no-any-return]


class WronglyDecorated(Decorated):
    @torch.compile(backend=alters, dynamic=False)
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).sin()  # type: ignore[no-any-return]


def in_place(backend: Backend) -> nn.Module:
    whole = nn.Sequential(Block(), Block())
    for block in whole:
        block.compile(backend=backend)
    return whole


def wrapped(backend: Backend) -> nn.Module:
    blocks: list[Any] = [torch.compile(Block(), backend=backend) for _ in range(2)]
    return nn.Sequential(*blocks)


def by_its_method(backend: Backend) -> nn.Module:
    block = Block()
    block.forward = torch.compile(block.forward, backend=backend)  # type: ignore[method-assign]
    return nn.Sequential(block)


MAKERS = (in_place, wrapped, by_its_method)
X = torch.randn(2, 4)


@torch.compile(backend=alters)
def helper(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def calls_helper(x: torch.Tensor) -> torch.Tensor:
    return helper(x) + 1


def as_it_is(target: Callable[..., Any], *calls: tuple[Any, ...]) -> Checked:
    return check(target, *calls, spec=CompileCheck())


def isolation(seen: Checked) -> str:
    return "".join(f.message for f in seen.verdict.findings if f.metric == "isolation")


def parity_of(seen: Checked) -> Finding:
    (found,) = [f for f in seen.verdict.findings if f.metric == "parity"]
    return found


def test_a_decorated_forward_keeps_its_own_arguments() -> None:
    seen = as_it_is(Decorated(), *[(torch.randn(size, 4),) for size in (2, 3, 4)])
    assert parity_of(seen).status == "passed"
    assert (seen.facts.graphs, len(seen.facts.recompiles)) == (3, 2)


def test_what_a_decorated_forward_does_wrong_is_found() -> None:
    seen = as_it_is(WronglyDecorated(), (X,))
    assert parity_of(seen).status == "failed"
    assert "parts of the target compile themselves" in seen.told


@pytest.mark.parametrize("make", MAKERS)
def test_compiled_parts_of_a_module_are_checked_as_they_are(
    make: Callable[[Backend], nn.Module],
) -> None:
    sound = as_it_is(make("aot_eager"), (X,))
    assert parity_of(sound).status == "passed", sound.told
    assert sound.facts.graphs == len(list(make("eager").children()))
    assert parity_of(as_it_is(make(alters), (X,))).status == "failed"


def test_parts_that_are_compiled_into_the_whole_are_told() -> None:
    seen = check(WronglyDecorated(), (X,), backend="aot_eager")
    assert parity_of(seen).status == "passed"
    assert "WronglyDecorated is compiled by itself in your code" in isolation(seen)


class CompiledMethod(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @torch.compile(backend=alters)
    def inner(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


def test_a_compiled_method_that_forward_calls_is_checked_as_it_is() -> None:
    assert parity_of(as_it_is(CompiledMethod(), (X,))).status == "failed"


NET: Any = torch.compile(nn.Linear(4, 4), backend=alters)


def test_a_compiled_module_that_a_function_names_is_told() -> None:
    seen = check(lambda x: NET(x) + 1, (X,), backend="aot_eager")
    assert "OptimizedModule is compiled by itself in your code" in isolation(seen)


class Holder:
    """Plain Python that keeps compiled functions where no name leads to them."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.held["steps"][0](x) + 1  # type: ignore[no-any-return]


class HolderModule(nn.Module):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.held["steps"][0](x) + 1  # type: ignore[no-any-return]


@dataclasses.dataclass
class Config:
    activation: Any


CONFIG = Config(helper)
STEPS = [helper]


def of_a_closure() -> Callable[[torch.Tensor], Any]:
    steps = {"first": (functools.partial(helper),)}
    return lambda x: steps["first"][0](x) + 1


HOLDERS: tuple[Callable[..., Any], ...] = (
    Holder({"steps": [helper]}),
    HolderModule({"steps": [helper]}),
    HolderModule({"steps": [Holder({"steps": [helper]})]}).forward,
    lambda x: CONFIG.activation(x) + 1,
    lambda x: STEPS[0](x) + 1,
    of_a_closure(),
)


@pytest.mark.parametrize("target", HOLDERS)
def test_a_compiled_helper_in_a_container_is_told(target: Callable[..., Any]) -> None:
    seen = check(target, (X,), backend="aot_eager")
    assert "helper is compiled by itself in your code, but here as a part" in isolation(seen)


def test_more_than_can_be_searched_is_told() -> None:
    many = [[index] for index in range(60_000)]
    seen = check(lambda x: x + len(many), (X,), backend="aot_eager")
    assert "holds too many objects to look for parts that compile themselves" in isolation(seen)


def test_a_compiled_helper_of_a_plain_function_is_told() -> None:
    seen = check(calls_helper, (X,), backend="aot_eager")
    assert "helper is compiled by itself in your code, but here as a part" in isolation(seen)
