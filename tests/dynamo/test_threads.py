"""Guarded calls beside other threads: theirs is never counted, and is told of."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.observation import CompileObservation
from pytest_compileguard.options import Options
from pytest_compileguard.spec import CompileCheck
from tests.dynamo import break_functions
from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

X = torch.ones(4)


def breaks_elsewhere(x: Tensor) -> Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


@pytest.fixture
def other() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_compiles_of_another_thread_are_left_out_and_told(other: ThreadPoolExecutor) -> None:
    def waits(graph: torch.fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
        """Code that runs until the other thread has compiled.

        Meanwhile this thread compiles nothing: torch itself crashes now and then where two do.
        """

        def run(*args: Any) -> Any:
            other.submit(_compile_anew).result(timeout=60)
            return graph(*args)

        return run

    unlimited = check(break_functions.clean, (X,), backend=waits)

    assert not unlimited.facts.break_sites
    assert unlimited.facts.graphs == 1
    assert any("another thread" in why for why in unlimited.facts.unreliable)
    limited = check(break_functions.clean, (X,), backend=waits, max_graph_breaks=0)
    assert limited.verdict.outcome == "failed"


def _compile_anew() -> None:
    fresh = types.FunctionType(breaks_elsewhere.__code__.replace(), globals())
    torch.compile(fresh, backend="eager")(X)


def test_guarded_calls_of_several_threads_are_one_sequence() -> None:
    guard = CompileGuard(nodeid="t.py::t", spec=CompileCheck(backend="eager"), options=Options())
    guarded = guard(break_functions.one_gb, dynamic=False)
    try:
        with ThreadPoolExecutor(4) as pool:
            sizes = (3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5)
            results = list(pool.map(guarded, [torch.ones(size) for size in sizes]))
        ((_, observation),) = guard.finish()
    finally:
        guard.close()
    facts = observation.compile
    assert isinstance(facts, CompileObservation), facts
    assert [len(result) for result in results] == list(sizes)
    assert (facts.calls, facts.graphs, len(facts.recompiles)) == (12, 6, 4)
    assert not facts.unreliable
    assert not facts.fallbacks


def test_checks_of_two_threads_see_what_is_theirs_or_say_that_they_cannot() -> None:
    targets: tuple[Callable[..., Any], ...] = (break_functions.two_gb, break_functions.nested2)
    alone = {target: _facts(target) for target in targets}

    for _ in range(3):
        with ThreadPoolExecutor(2) as pool:
            together = dict(zip(targets, pool.map(_facts, targets), strict=True))
        for target in targets:
            seen = together[target]
            assert seen == alone[target] or seen.error or seen.unreliable, seen


def _facts(target: Callable[..., Any]) -> CompileObservation:
    return msgspec.structs.replace(check(target, (X,), (torch.ones(5),)).facts, compile_time_s=0.0)
