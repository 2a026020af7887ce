"""Calls that raise on both sides what Dynamo met while it traced: a test of input validation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.observation import CompileObservation, NotObserved
from pytest_compileguard.options import Options
from pytest_compileguard.report.failure import failure_text
from pytest_compileguard.spec import CompileCheck
from pytest_compileguard.verdict import judge
from tests.dynamo.checked import Checked

pytestmark = pytest.mark.usefixtures("compiler_loaded")

GOOD, OTHER, BAD = torch.ones(3), torch.ones(2, 3), torch.ones(4)
STRICT = CompileCheck(backend="eager", max_graph_breaks=0, max_recompiles=1)


def validated(x: torch.Tensor) -> torch.Tensor:
    if x.shape[-1] != 3:
        raise ValueError("needs 3")
    return x * 2


def words_it(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if x.shape[-1] != 3:
        raise TypeError(f"needs 3, got {tuple(x.shape)}")
    return y


def looks_up(x: torch.Tensor) -> torch.Tensor:
    return x * {3: 1.0}[x.shape[-1]]


def within(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return validated(x) + 1


class Validating(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return validated(x)


def breaks_first(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    return validated(x)


def raises_as_compiled(x: torch.Tensor) -> torch.Tensor:
    if x.shape[-1] != 3 and torch.compiler.is_compiling():
        raise ValueError("only while it is traced")
    return validated(x) if x.shape[-1] == 3 else x


def prints_first(x: torch.Tensor) -> torch.Tensor:
    for _ in range(1):
        with contextlib.suppress(KeyError):
            x = x + 1
            print(end="")  # noqa: T201  # a break in a loop and a with: the frame is given up
    return validated(x)


_ASSERT = "def asserted(x):\n    assert x.shape[-1] == 3, 'needs 3'\n    return x"


def called(
    target: Callable[..., Any], *arguments: torch.Tensor, spec: CompileCheck = STRICT
) -> Checked:
    """Guard a target and make the calls, each of which may raise."""
    options = Options(no_timing=True, no_locate=True)
    guard = CompileGuard(nodeid="test_suite.py::test", spec=spec, options=options)
    guarded = guard(target)
    try:
        for argument in arguments:
            with contextlib.suppress(ValueError, TypeError, KeyError, AssertionError):
                guarded(argument)
        ((made, observation),) = guard.finish()
    finally:
        guard.close()
    return Checked(judge(made.plan, observation, None, NotObserved(reason="no baseline here")))


def fallbacks_told(run: Checked) -> str:
    (told,) = [f.message for f in run.verdict.findings if f.metric == "fallbacks"]
    return told


@pytest.mark.parametrize(
    ("target", "error"),
    (
        (validated, "ValueError"),
        (words_it, "TypeError"),
        (looks_up, "KeyError"),
        (within, "ValueError"),
        (Validating(), "ValueError"),
    ),
)
def test_an_input_that_both_sides_refuse_is_no_fallback(target: Any, error: str) -> None:
    run = called(target, GOOD, BAD)

    assert run.told == ""
    assert run.verdict.outcome == "passed"
    assert run.sites == []
    assert f"given up where both sides raise {error}" in fallbacks_told(run)
    assert "eager in all later calls" in fallbacks_told(run)


def test_nor_is_one_that_an_assert_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asserting_model.py").write_text(_ASSERT + " * 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import asserting_model  # type: ignore[import-not-found]  # noqa: PLC0415

    run = called(asserting_model.asserted, GOOD, BAD)

    assert run.told == ""
    assert "both sides raise AssertionError" in fallbacks_told(run)


def test_a_break_besides_still_counts() -> None:
    run = called(breaks_first, GOOD, BAD)

    assert run.sites == ["torch._dynamo.graph_break()"]
    assert "graph breaks" in run.told
    assert not run.facts.fallbacks


@pytest.mark.parametrize("inputs", ((GOOD, BAD, GOOD), (GOOD, BAD, OTHER), (BAD, GOOD)))
@pytest.mark.parametrize("target", (validated, breaks_first))
def test_torch_runs_the_function_eager_from_then_on_which_is_told(
    target: Any, inputs: tuple[torch.Tensor, ...]
) -> None:
    lax = CompileCheck(backend="eager", max_graph_breaks=3)
    run = called(target, *inputs, spec=CompileCheck(backend="eager"))

    assert run.verdict.outcome == "failed"
    assert "frame skipped" in run.told
    assert "make calls that raise the last ones" in run.told
    assert "loop, try" not in run.told
    assert "TORCH_COMPILE_DISABLE" not in run.told
    assert called(target, *inputs, spec=lax).verdict.outcome == "failed"


def test_a_frame_given_up_for_another_reason_still_fails_where_the_call_raises() -> None:
    run = called(prints_first, GOOD, BAD, spec=CompileCheck(backend="eager"))

    assert run.verdict.outcome == "failed"
    assert next(f.met for f in run.facts.fallbacks if f.kind == "frame_skipped") == ""


def test_an_exception_that_eager_does_not_raise_still_fails() -> None:
    run = called(raises_as_compiled, GOOD, BAD)

    assert run.verdict.outcome == "failed"
    assert run.facts.raised_alike == ()


def test_calls_that_all_raise_leave_nothing_compiled() -> None:
    run = called(validated, BAD, BAD)

    assert run.verdict.outcome == "failed"
    assert "each call raised ValueError on both sides before anything was compiled" in run.told


def test_a_call_that_returned_is_timed_by_code_compiled_anew() -> None:
    spec = CompileCheck(backend=lambda graph, _inputs: graph.forward, max_time_s=0.05, warmup=1)
    guard = CompileGuard(nodeid="test_suite.py::test", spec=spec, options=Options())
    guarded = guard(validated)
    try:
        guarded(GOOD)
        with pytest.raises(ValueError, match="needs 3"):
            guarded(BAD)
        ((made, observation),) = guard.finish()
    finally:
        guard.close()

    verdict = judge(made.plan, observation, None, NotObserved(reason="no baseline here"))
    assert isinstance(observation.compile, CompileObservation)
    assert not isinstance(observation.speed, NotObserved), observation.speed
    assert observation.speed.void is None
    assert failure_text([verdict], rootpath=None) == ""
