"""What compiled code costs: each limit with a fault that it must catch."""

from __future__ import annotations

import pytest

from tests.conftest import RunSuite

SLEEPY = """
import time
import torch

def double_relu(x):
    return torch.relu(x * 2 + 1)

def sleepy(graph, inputs):
    time.sleep(0.25)
    return graph.forward
"""

COMPILES = """
import torch
from library import double_relu, sleepy

def test_it(compileguard):
    guarded = compileguard(double_relu, backend=sleepy, dynamic=False, max_compile_time_s={limit})
    for size in (3, 4):
        guarded(torch.randn(size))
"""


def test_compiling_that_takes_longer_than_its_limit_fails(run_suite: RunSuite) -> None:
    run = run_suite(COMPILES.format(limit=0.4), library=SLEEPY)
    (finding,) = run.findings("compile_time")

    run.result.assert_outcomes(failed=1)
    # Both compiles count, and the backend's sleep is part of each.
    assert finding["observed"] > 0.5
    assert "2 graphs, 1 recompile" in finding["evidence"][0]
    run.result.stdout.re_match_lines([r"  compile time +observed \d.* s +limit 0.4 s"])


def test_compiling_within_its_limit_passes_and_its_baseline_can_be_recorded(
    run_suite: RunSuite,
) -> None:
    run = run_suite(COMPILES.format(limit=60), library=SLEEPY)

    run.result.assert_outcomes(passed=1)
    assert run.status("compile_time") == "passed"
    assert run.check["observed"]["cache_state"] == "cold"
    assert run.check["recordable"]


@pytest.mark.parametrize("limit", (0, -1, "True", "float('inf')", "'short'"))
def test_a_limit_that_is_no_time_is_refused(run_suite: RunSuite, limit: object) -> None:
    run = run_suite(COMPILES.format(limit=limit), library=SLEEPY)

    run.result.assert_outcomes(failed=1)
    assert "must be a finite number above 0" in run.text


ON_THE_CPU = """
import torch
from library import double_relu
from pytest_compileguard import compile_check

@compile_check(max_peak_memory_ratio=2, max_kernels_per_call=3, backend="aot_eager", max_time_s=0.1)
def test_it(compileguard):
    compileguard(double_relu)(torch.randn(3))
"""


def test_on_the_cpu_memory_and_kernels_are_not_checked_and_strict_fails(
    run_suite: RunSuite,
) -> None:
    run = run_suite(ON_THE_CPU, timing=True)

    run.result.assert_outcomes(passed=1)
    for metric in ("peak_memory", "kernels_per_call"):
        (finding,) = run.findings(metric)
        assert finding["status"] == "not_checked"
        assert "GPU" in finding["message"]
    assert run.check["recordable"]
    assert run.check["observed"]["peak_memory_bytes"] is None
    assert run.check["observed"]["eager_kernels_per_call"] is None
    run_suite(ON_THE_CPU, "--compileguard-strict", timing=True).result.assert_outcomes(failed=1)


ONLY_ON_A_GPU = """
import torch
from library import double_relu
from pytest_compileguard import compile_check

@compile_check(min_speedup=1e-6, backend="aot_eager", max_time_s=0.1, {argument})
def test_it(compileguard):
    compileguard(double_relu)(torch.randn(3))
"""


@pytest.mark.parametrize("argument", ("clock='device'", "cache='cold'"))
def test_what_timing_on_a_cpu_can_not_give_is_not_checked(
    run_suite: RunSuite, argument: str
) -> None:
    run = run_suite(ONLY_ON_A_GPU.format(argument=argument), timing=True)
    (finding,) = run.findings("speedup")

    run.result.assert_outcomes(passed=1)
    assert finding["status"] == "not_checked"
    assert argument.replace("'", '"') in finding["message"]
    assert run.check["observed"]["speedup"] is None
    assert run.check["recordable"]


@pytest.mark.parametrize("argument", ("clock='cpu'", "cache=True", "setup=3"))
def test_a_way_of_timing_that_does_not_exist_is_refused(run_suite: RunSuite, argument: str) -> None:
    run = run_suite(ONLY_ON_A_GPU.format(argument=argument), timing=True)

    assert run.result.ret == pytest.ExitCode.USAGE_ERROR
    assert "must be" in run.text


def test_what_observing_cost_in_earlier_checks_is_not_taken_off(run_suite: RunSuite) -> None:
    # Every check compiles under the ids 0/0 and 0/1, under which torch adds that cost up.
    many = COMPILES.format(limit=0.4).replace("def test_it(", "@MANY\ndef test_it(n, ")
    many = "import pytest\nMANY = pytest.mark.parametrize('n', range(4))\n" + many
    run = run_suite(many, library=SLEEPY)

    assert len(run.findings("compile_time")) == 4
    assert all(finding["observed"] > 0.5 for finding in run.findings("compile_time"))
