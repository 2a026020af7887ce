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
