"""A timing that is too noisy to hold later runs to is stored, and said."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import RunSuite

UPDATE = "--compileguard-update-baseline"
LIBRARY = """
import os, time

def double(x):
    return x * 2

def uneven(graph, inputs):
    def run(*args):
        time.sleep(0.0005 * 2 ** (os.urandom(1)[0] % 8))
        return graph(*args)
    return run
"""
SUITE = """
import pytest, torch
from library import double, uneven
from pytest_compileguard import compile_check

@compile_check(backend=uneven, max_time_s=0.2, warmup=1)
@pytest.mark.parametrize("n", range(5))
def test_uneven(compileguard, n):
    compileguard(double)(torch.ones(3))
"""


def test_a_noisy_timing_is_stored_and_said_once(run_suite: RunSuite) -> None:
    run = run_suite(SUITE, UPDATE, library=LIBRARY, timing=True)
    run.result.assert_outcomes(passed=5)
    noisy = (
        "noisy: 5 timings are stored as measured, but later runs can hardly be held to them: "
        "raise max_time_s, or time on a quieter machine, and record again"
    )
    run.result.stdout.fnmatch_lines(
        [
            "compileguard baseline: 5 added, *",
            noisy,
            "  test_suite.py::test_uneven?0?::double: its interval spans a factor of *",
            "  test_suite.py::test_uneven?1?::double: *",
            "  test_suite.py::test_uneven?2?::double: *",
            "  and 2 more",
        ]
    )
    assert len(list(Path("__compileguard__/timings").glob("*.json"))) == 1

    again = run_suite(SUITE, f"{UPDATE}=new", library=LIBRARY, timing=True)
    assert "noisy: " not in again.text, "nothing was stored"
    untimed = run_suite(SUITE, UPDATE, library=LIBRARY)
    assert "noisy: " not in untimed.text
