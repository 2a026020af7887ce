"""A check leaves the process as it was, and sees the same in any order."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable

import msgspec
import pytest
import torch

from pytest_compileguard.dynamo import self_test
from pytest_compileguard.observation import CompileObservation
from tests.conftest import RunSuite
from tests.dynamo import break_functions
from tests.dynamo.checked import check
from tests.dynamo.global_state import changes, snapshot

pytestmark = pytest.mark.usefixtures("compiler_loaded")

# 12 makes some 200 checks in one process.
ORDERS = int(os.environ.get("COMPILEGUARD_ORDERS", "4"))

# Before the first snapshot the compiler is loaded for good, and its trace has been tried out.
SUITE = """
import contextlib
import pytest
import torch
from torch import nn
from library import double_relu, printing, Net
from pytest_compileguard import compile_check
from tests.dynamo.global_state import changes, snapshot


@pytest.fixture(autouse=True)
def leaves_the_process_as_it_was(request):
    before = snapshot()
    request.getfixturevalue("compileguard")  # so that it is torn down before this one
    yield
    assert changes(before, snapshot()) == {}


@contextlib.contextmanager
def unchanged(random_numbers=True):
    before = snapshot(random_numbers=random_numbers)
    yield
    assert changes(before, snapshot(random_numbers=random_numbers)) == {}


def raising(graph, inputs):
    raise RuntimeError("no backend")


def refuses(x):
    y = x.sin()
    raise ValueError("refused")


@compile_check(backend="aot_eager")
def test_passes(compileguard):
    found = torch.get_rng_state()
    net = Net()
    torch.set_rng_state(found)
    with unchanged():
        compileguard(net)(torch.ones(3, 4))


@compile_check(backend="aot_eager", max_graph_breaks=0)
def test_fails(compileguard):
    with unchanged():
        compileguard(printing)(torch.ones(3))


@compile_check(backend=raising)
def test_compiler_raises(compileguard):
    with unchanged():
        compileguard(double_relu)(torch.ones(3))


@compile_check(backend="aot_eager")
def test_target_raises(compileguard):
    with unchanged(), pytest.raises(ValueError, match="refused"):
        compileguard(refuses)(torch.ones(3))


@compile_check(backend="aot_eager")
def test_body_raises_later(compileguard):
    with unchanged():
        compileguard(double_relu)(torch.ones(3))
    raise RuntimeError("later")


@compile_check(backend="aot_eager", max_recompiles=0)
def test_limit_is_hit(compileguard):
    with torch._dynamo.config.patch(recompile_limit=2), unchanged():
        guarded = compileguard(double_relu, dynamic=False)
        for size in (2, 3, 4):
            guarded(torch.ones(size))


@compile_check(backend="aot_eager")
def test_isolation_fails(compileguard):
    class Stubborn(nn.Module):
        def __deepcopy__(self, memo):
            raise TypeError("one of a kind")

        def forward(self, x):
            return x.sin()

    with unchanged():
        compileguard(Stubborn())(torch.ones(3))


@compile_check(backend="inductor", max_time_s=0.05)
def test_inductor_with_timing(compileguard):
    with unchanged():
        compileguard(double_relu)(torch.ones(64))


@compile_check(backend="aot_eager")
def test_random_numbers_drawn(compileguard):
    net, found = nn.Dropout(0.5), torch.get_rng_state()
    torch.manual_seed(3)
    net(torch.ones(8))
    expected = torch.get_rng_state()
    torch.manual_seed(3)
    with unchanged(random_numbers=False):
        compileguard(net)(torch.ones(8))
    assert torch.equal(torch.get_rng_state(), expected)
    torch.set_rng_state(found)
"""


OUTCOMES = {
    "test_passes": "passed",
    "test_fails": "failed",
    "test_compiler_raises": "failed",
    "test_target_raises": "failed",
    "test_body_raises_later": "not_checked",
    "test_limit_is_hit": "failed",
    "test_isolation_fails": "passed",
    "test_inductor_with_timing": "passed",
    "test_random_numbers_drawn": "passed",
}


def test_suite_leaves_the_process_as_it_was(run_suite: RunSuite) -> None:
    # Torch itself sets environment variables when its own compiler is used for the first time.
    torch.compile(lambda x: torch.relu(x * 2 + 1))(torch.ones(64))
    torch.compiler.reset()
    before = snapshot()
    run = run_suite(SUITE, timing=True)

    assert "errors" not in run.result.parseoutcomes(), run.text
    assert "AssertionError" not in run.text
    seen = {check["nodeid"].partition("::")[2]: check["outcome"] for check in run.checks}
    assert seen == OUTCOMES
    assert changes(before, snapshot()) == {}


TIMED = """
import torch

STATES = []


def test_timed(compileguard):
    net = torch.nn.Dropout(0.5)
    compileguard(net, backend="aot_eager", min_speedup=0.001, max_time_s=0.05)(torch.ones(8))
    STATES.append(torch.get_rng_state())


def test_next():
    assert torch.equal(torch.get_rng_state(), STATES[0])
"""


def test_timing_draws_no_random_numbers_for_the_next_test(run_suite: RunSuite) -> None:
    run = run_suite(TIMED, timing=True)
    run.result.assert_outcomes(passed=2)


def test_snapshot_sees_what_changes() -> None:
    before = snapshot()
    log = logging.getLogger("torch._dynamo")
    level = log.level
    try:
        log.setLevel(logging.ERROR)
        torch.rand(1)
        with (
            torch._dynamo.config.patch(recompile_limit=3),
            torch.no_grad(),
            torch.compiler.set_stance("force_eager"),
        ):
            found = changes(before, snapshot())
    finally:
        log.setLevel(level)
    assert set(found) == {
        "dynamo.recompile_limit",
        "grad mode",
        "log torch._dynamo",
        "random of torch",
        "stance",
    }


SOME = (
    "one_gb",
    "two_gb",
    "nested",
    "nested2",
    "loop_gb",
    "call_in_loop",
    "disabled",
    "item",
    "ddbranch",
    "nontensor",
    "bw_hook",
    "decorated",
    "after_a_branch",
    "Outer",
    "OuterBreaksToo",
    "Derived",
)
"""Many of them share code: helpers, decorators, the ``forward`` of one class."""

RECOMPILED = {"one_gb", "nested", "item", "Outer"}


def facts_of(name: str) -> CompileObservation:
    target = getattr(break_functions, name)
    target = target() if isinstance(target, type) else target
    calls = [(torch.ones(4),), (-torch.ones(5),)][: 2 if name in RECOMPILED else 1]
    facts = check(target, *calls).facts
    return msgspec.structs.replace(facts, compile_time_s=0.0)


def test_facts_do_not_depend_on_the_order_of_checks() -> None:
    in_order = {name: facts_of(name) for name in SOME}
    draw = random.Random(7)  # noqa: S311
    for _ in range(ORDERS):
        shuffled = draw.sample(SOME, len(SOME))
        assert {name: facts_of(name) for name in shuffled} == in_order


SHARED = """
import pytest
import torch


def loud(x):
    y = x.sin()
    print(end="")
    return y.cos()


def first(x):
    return loud(x + 1)


def second(x):
    return loud(x + 2)


def test_both(compileguard):
    compileguard(first, backend="eager")(torch.ones(4))
    compileguard(second, backend="eager", max_recompiles=0)(torch.ones(5))
"""


def test_helper_that_two_targets_of_one_test_share(run_suite: RunSuite) -> None:
    run_suite(SHARED).result.assert_outcomes(passed=1)


def test_trace_is_tried_out_once_nothing_hinders_it() -> None:
    self_test._try_out.cache_clear()
    with torch.compiler.set_stance("force_eager"):
        assert check(break_functions.clean, (torch.ones(4),)).verdict.outcome == "failed"
    assert self_test._try_out.cache_info().currsize == 0

    assert check(break_functions.clean, (torch.ones(4),)).verdict.outcome == "passed"
    assert self_test._try_out.cache_info().currsize == 1


@pytest.mark.parametrize("reset", (torch.compiler.reset, torch._dynamo.reset))
def test_torch_reset_between_the_calls_is_named(reset: Callable[[], None]) -> None:
    def before(call: int) -> None:
        if call == 1:
            reset()

    seen = check(break_functions.clean, (torch.ones(4),), (torch.ones(5),), before=before)
    assert seen.verdict.outcome == "failed"
    assert "torch was reset" in seen.told
