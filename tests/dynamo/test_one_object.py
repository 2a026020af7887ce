"""What is one object in eager is one where it is compiled, and shares memory with what it did."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.dynamo.checked import Checked, check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

KEPT: dict[str, torch.Tensor] = {}
RUNNING = torch.zeros(3)


class Pair:
    def __init__(self, value: Any) -> None:
        self.value = value


class Model(nn.Module):
    """Runs what is under test on itself, with a fault planted or not."""

    def __init__(self, run: Callable[[Any, torch.Tensor, bool], Any], *, planted: bool) -> None:
        super().__init__()
        self.run = run
        self.planted = planted
        self.history: list[Any] = [1]

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(self, x, self.planted and torch.compiler.is_compiling())


Run = Callable[[Any, torch.Tensor, bool], Any]


def binds_twice(make: Callable[[torch.Tensor], Any]) -> Run:
    def run(model: Any, x: torch.Tensor, wrong: bool) -> torch.Tensor:  # noqa: FBT001
        model.one = made = make(x)
        model.other = make(x) if wrong else made
        return x * 2

    return run


def returns_twice(_model: Any, x: torch.Tensor, wrong: bool) -> Any:  # noqa: FBT001
    made = [x * 2]
    return made, [x * 2] if wrong else made


def returns_nested(_model: Any, x: torch.Tensor, wrong: bool) -> Any:  # noqa: FBT001
    made = {"a": x * 2}
    return [made, {"b": {"a": x * 2} if wrong else made}]


def returns_what_it_keeps(model: Any, x: torch.Tensor, wrong: bool) -> Any:  # noqa: FBT001
    model.one = [x * 2]
    return [x * 2] if wrong else model.one


def returns_what_it_had(model: Any, x: torch.Tensor, wrong: bool) -> Any:  # noqa: FBT001
    return x * 2, list(model.history) if wrong else model.history


def binds_what_it_had(model: Any, x: torch.Tensor, wrong: bool) -> Any:  # noqa: FBT001
    model.one = list(model.history) if wrong else model.history
    return x * 2


def keeps_in_global(_model: Any, x: torch.Tensor, wrong: bool) -> torch.Tensor:  # noqa: FBT001
    y = x * 2
    KEPT["y"] = y.clone() if wrong else y
    return y


def returns_global(_model: Any, x: torch.Tensor, wrong: bool) -> torch.Tensor:  # noqa: FBT001
    RUNNING.add_(x)
    return RUNNING.clone() if wrong else RUNNING


RUNS: dict[str, Run] = {
    "a list under two attributes": binds_twice(lambda x: [x * 2]),
    "a dictionary": binds_twice(lambda x: {"a": x * 2}),
    "a set": binds_twice(lambda _: {1}),
    "a deque": binds_twice(lambda x: collections.deque([x * 2])),
    "an object": binds_twice(Pair),
    "two results": returns_twice,
    "results within results": returns_nested,
    "a result and an attribute": returns_what_it_keeps,
    "a result that was an attribute": returns_what_it_had,
    "an attribute that another was": binds_what_it_had,
    "a result that a global keeps": keeps_in_global,
    "a global that is returned": returns_global,
}


def told(run: Run, *, planted: bool) -> Checked:
    calls = [(torch.ones(3),)] * (1 if planted else 2)
    return check(Model(run, planted=planted), *calls, locates=False)


@pytest.mark.parametrize("name", RUNS)
def test_two_where_eager_has_one_are_told(name: str) -> None:
    seen = told(RUNS[name], planted=True)
    assert "compiled differs from eager" in seen.told, seen.verdict
    assert any(words in seen.told for words in ("one object with", "shares memory with"))


@pytest.mark.parametrize("name", RUNS)
def test_one_on_both_sides_passes(name: str) -> None:
    seen = told(RUNS[name], planted=False)
    assert seen.verdict.outcome == "passed", seen.told
