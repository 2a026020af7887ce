"""Who binds a name of a module: the call, on either side, or what compiles it."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.compiler import is_compiling

from tests.dynamo import named_settings
from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded", "settings_as_new")

SETTINGS: Any = named_settings
NAMES = ("A",)


def ones() -> torch.Tensor:
    return torch.ones(3)


def bound() -> set[str]:
    return {name for name in vars(named_settings) if not name.startswith("__")}


def inverting(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
    return lambda *args: [~o if o.dtype == torch.bool else o for o in graph(*args)]


def flags(x: torch.Tensor) -> torch.Tensor:
    setattr(named_settings, NAMES[0], bool((x * 2).sum() > 0))
    return x + 1


@pytest.mark.parametrize("before", (True, 0))
def test_a_wrong_value_where_eager_binds_what_was_there(before: object) -> None:
    SETTINGS.A = before
    told = check(flags, (ones(),), backend=inverting, locates=False).told
    assert "named_settings.A after the call" in told
    assert SETTINGS.A is True


def test_so_in_a_later_call() -> None:
    def late(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        calls = iter(range(9))

        def run(*args: Any) -> Any:
            found = graph(*args)
            return inverting(graph, None)(*args) if next(calls) else found

        return run

    told = check(flags, (ones(),), (ones(),), backend=late, locates=False).told
    assert "call 2, tests.dynamo.named_settings.A after the call" in told
    assert SETTINGS.A is True


@torch.compiler.disable  # type: ignore[untyped-decorator]
def by_the_compiled_side_alone(compiling: bool) -> None:  # noqa: FBT001
    if compiling:
        vars(named_settings)[NAMES[0]] = 9
        vars(named_settings)[f"NEW_{NAMES[0]}"] = 9


def test_what_only_compiled_code_binds_by_computed_names() -> None:
    def target(x: torch.Tensor) -> torch.Tensor:
        by_the_compiled_side_alone(is_compiling())
        return x * 2 + len(named_settings.__name__)

    before = bound(), SETTINGS.A
    told = check(target, (ones(),), locates=False).told
    assert "named_settings.A after the call" in told
    assert "named_settings.NEW_A after the call" in told
    assert before == (bound(), SETTINGS.A)


def fivefold(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
    return lambda *args: [o * 5 if float(o.flatten()[0]) == 6 else o for o in graph(*args)]


def binds_a_function(x: torch.Tensor) -> torch.Tensor:
    y = x * 6
    SETTINGS.made = lambda: y
    return x + 1


def binds_underscores(x: torch.Tensor) -> torch.Tensor:
    SETTINGS.__last__ = x * 6
    return x + 1


@torch.compiler.disable  # type: ignore[untyped-decorator]
def binds_a_module(compiling: bool) -> None:  # noqa: FBT001
    SETTINGS.made = cmath if compiling else math


def another_module(x: torch.Tensor) -> torch.Tensor:
    binds_a_module(is_compiling())
    return x + len(named_settings.__name__)


KINDS: dict[str, tuple[Callable[..., Any], str]] = {
    "a function": (binds_a_function, "made"),
    "underscores": (binds_underscores, "__last__"),
    "a module": (another_module, "made"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_it_is_that_is_bound(kind: str) -> None:
    target, name = KINDS[kind]
    told = check(target, (ones(),), backend=fivefold, locates=False).told
    assert f"named_settings.{name}" in told
    assert kind != "a module" or "compiled binds the module cmath, eager the module math" in told
    left = getattr(SETTINGS, name)
    assert left is math or (left() if callable(left) else left).tolist() == [6] * 3


def wider(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
    """Keeps more digits than eager, so that a run in float64 decides."""
    return lambda *args: [out.half() for out in graph(*(arg.float() for arg in args))]


def test_runs_that_only_judge_leave_nothing() -> None:
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def note(x: torch.Tensor) -> None:
        vars(named_settings)[f"seen_{x.dtype}"] = 1
        SETTINGS.made = lambda: x

    def target(x: torch.Tensor) -> torch.Tensor:
        note(x)
        return torch.exp(x * 0.3 + 10.6) * 1.001

    before, x = bound(), torch.randn(64, 64).clamp(-1, 1).half()
    seen = check(target, (x,), backend=wider, locates=False)
    assert seen.verdict.outcome == "passed", seen.told
    assert bound() - before == {"seen_torch.float16", "made"}
    assert SETTINGS.made() is x


def test_nor_does_another_implementation() -> None:
    def other(x: torch.Tensor) -> torch.Tensor:
        SETTINGS.made = 1
        return x * 2

    def target(x: torch.Tensor) -> torch.Tensor:
        return x * (2 + 0 * len(named_settings.__name__))

    before = bound()
    seen = check(target, (ones(),), reference=other)
    assert seen.verdict.outcome == "passed", seen.told
    assert bound() == before


class Counting(nn.Module):
    """Counts its calls under a name that the backend uses too."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * 2 + len(named_settings.__name__)


def test_what_a_backend_counts_is_its_own_by_any_name() -> None:
    def counting(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        SETTINGS.calls += 1
        return graph.forward

    SETTINGS.calls = 0
    seen = check(Counting(), (ones(),), (torch.ones(4),), (ones(),), backend=counting)
    assert seen.verdict.outcome == "passed", seen.told
    assert SETTINGS.calls == seen.facts.graphs > 0


@torch.compiler.disable  # type: ignore[untyped-decorator]
def by_eager_alone(compiling: bool) -> None:  # noqa: FBT001
    if not compiling:
        SETTINGS.A = 5


def test_what_eager_binds_is_the_calls_though_a_backend_binds_it_too() -> None:
    def binding(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        SETTINGS.A = 7
        return graph.forward

    def target(x: torch.Tensor) -> torch.Tensor:
        by_eager_alone(is_compiling())
        return x * 2 + len(named_settings.__name__)

    told = check(target, (ones(),), backend=binding, locates=False).told
    assert "named_settings.A after the call: compiled 7, eager 5" in told
    assert SETTINGS.A == 5
