"""Breaks after which Dynamo can't resume: the rest of the function runs eager, and that is told."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.observation import CompileObservation
from pytest_compileguard.options import Options
from pytest_compileguard.spec import CompileCheck
from tests.dynamo.checked import Checked, check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

X = torch.ones(2, 3)


class Scaled(nn.Module):
    """Reads a property that can't be traced."""

    @property
    def scale(self) -> float:
        print(end="")  # noqa: T201  # a graph break
        return 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x) + 1
        y = y * self.scale
        for _ in range(5):
            y = torch.sin(y) + y
        return y


def tries(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() + 1
    try:
        print(end="")  # noqa: T201  # a graph break
    except ValueError:
        y = y.tan()
    return y.cos()


def resumes(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() + 1
    print(end="")  # noqa: T201  # a graph break
    return y.cos()


def line_of(target: object, text: str) -> int:
    lines, first = inspect.getsourcelines(target)  # type: ignore[arg-type]
    return first + next(i for i, line in enumerate(lines) if text in line)


def told_rest(run: Checked) -> list[str]:
    return [
        f"{finding.status}: {finding.message}"
        for finding in run.verdict.findings
        if finding.metric == "rest_of_function"
    ]


def test_a_property_that_breaks_is_one_site_and_the_rest_is_told() -> None:
    run = check(Scaled(), (X,), (X,))

    assert run.sites == ['print(end="")  # noqa: T201  # a graph break']
    assert run.facts.graphs == 1
    (told,) = told_rest(run)
    assert told.startswith("not_checked: ")
    line = line_of(Scaled.forward, "y = y * self.scale")
    assert f"test_rest_eager.py:{line} in forward" in told
    assert "runs eager" in told


def test_breaks_of_which_one_is_allowed_count_one() -> None:
    spec = CompileCheck(backend="eager", max_graph_breaks=0, allow_graph_breaks=("*print(end=*",))
    one = CompileCheck(backend="eager", max_graph_breaks=1)

    assert check(Scaled(), (X,), spec=one).told == ""
    assert told_rest(check(Scaled(), (X,), spec=spec))


def test_a_break_in_a_try_block_too() -> None:
    run = check(tries, (X,))

    (told,) = told_rest(run)
    assert "in tries" in told
    assert len(run.sites) == 1


def test_after_an_ordinary_break_the_rest_is_compiled() -> None:
    run = check(resumes, (X,))

    assert run.facts.graphs == 2
    assert told_rest(run) == []


def test_it_is_told_of_the_check_that_it_belongs_to() -> None:
    guard = CompileGuard(nodeid="t.py::t", spec=CompileCheck(backend="eager"), options=Options())
    try:
        guard(tries)(X)
        guard(resumes)(X)
        seen = [observation.compile for _, observation in guard.finish()]
    finally:
        guard.close()

    left = [facts.left for facts in seen if isinstance(facts, CompileObservation)]
    assert [[line.function for line in lines] for lines in left] == [["tries"], []]


def test_a_watched_block_tells_of_it_too() -> None:
    guard = CompileGuard(nodeid="t.py::t", spec=CompileCheck(), options=Options())
    try:
        torch.compile(Scaled(), backend="eager")(X)
        with guard.watch():
            torch.compile(tries, backend="eager")(X)
        ((_, observation),) = guard.finish()
    finally:
        guard.close()

    facts = observation.compile
    assert isinstance(facts, CompileObservation), facts
    assert [line.function for line in facts.left] == ["tries"]
