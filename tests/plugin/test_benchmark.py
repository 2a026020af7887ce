"""Times of checks as benchmarks of pytest-benchmark, and what switches them off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunSuite

SUITE = """
import pytest
import torch
from library import double_relu, printing

@pytest.mark.compile_check(backend="aot_eager", max_time_s=0.1, min_speedup=1e-4)
@pytest.mark.parametrize("size", [64, 128])
def test_timed(compileguard, size):
    compileguard(double_relu)(torch.ones(size))

@pytest.mark.compile_check(backend="aot_eager", max_time_s=0.1, min_speedup=1000)
def test_too_slow(compileguard):
    compileguard(double_relu)(torch.ones(64))

def wrong(graph, inputs):
    return lambda *args: [out + 1 for out in graph(*args)]

@pytest.mark.compile_check(backend=wrong)
def test_wrong(compileguard):
    compileguard(double_relu)(torch.ones(64))

@pytest.mark.compile_check(backend="eager", max_time_s=0.1, min_speedup=1e-4)
def test_beside_another(compileguard, benchmark):
    benchmark(double_relu, torch.ones(3))
    compileguard(printing)(torch.ones(64))
"""


def benchmarks(path: str = "bench.json") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(path).read_text("utf-8"))["benchmarks"]
    return found


@pytest.fixture(autouse=True)
def _in_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest-benchmark switches itself off in a worker; the suites of these tests are in none."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


def test_both_sides_are_benchmarks_of_a_group(run_suite: RunSuite) -> None:
    run = run_suite(SUITE, "--benchmark-json=bench.json", "--benchmark-columns=median", timing=True)

    by_name = {entry["name"]: entry for entry in benchmarks()}
    assert set(by_name) == {
        "test_timed[64][double_relu, eager]",
        "test_timed[64][double_relu, compiled]",
        "test_timed[128][double_relu, eager]",
        "test_timed[128][double_relu, compiled]",
        "test_too_slow[double_relu, eager]",
        "test_too_slow[double_relu, compiled]",
        "test_beside_another",
        "test_beside_another[printing, eager]",
        "test_beside_another[printing, compiled]",
    }
    eager = by_name["test_timed[64][double_relu, eager]"]
    compiled = by_name["test_timed[64][double_relu, compiled]"]
    assert eager["group"] == compiled["group"]
    (check,) = (c for c in run.checks if c["nodeid"].endswith("test_timed[64]"))
    seen = check["observed"]
    assert eager["stats"]["median"] * 1e3 == pytest.approx(seen["eager_ms"])
    assert compiled["stats"]["median"] * 1e3 == pytest.approx(seen["compiled_ms"])
    assert eager["stats"]["rounds"] == seen["pairs"]
    assert compiled["extra_info"]["speedup"] == seen["speedup"]
    assert (compiled["extra_info"]["graphs"], compiled["extra_info"]["graph_breaks"]) == (1, 0)
    assert "test_timed[64][double_relu, eager]" in run.text  # in its table


@pytest.mark.parametrize(
    "arguments",
    ((), ("--benchmark-disable",), ("-n1",), ("-p", "no:benchmark")),
    ids=("nobody asked", "disabled", "xdist", "absent"),
)
def test_nothing_is_entered_where_benchmarks_are_off(
    run_suite: RunSuite, arguments: tuple[str, ...]
) -> None:
    suite = SUITE.replace(", benchmark)", ")").replace("    benchmark(", "    double_relu(#")
    suite = suite.replace("double_relu(#double_relu, ", "double_relu(")
    run = run_suite(suite, *arguments, timing=True)
    assert run.result.parseoutcomes() == {"passed": 3, "failed": 2} | {
        name: count
        for name, count in run.result.parseoutcomes().items()
        if name.startswith("warning")
    }
    assert "eager]" not in run.text


def test_the_timer_of_the_gpu_says_where_there_is_none(run_suite: RunSuite) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    run = run_suite(
        "def test_it(benchmark):\n    benchmark(len, [])\n",
        "--benchmark-timer=pytest_compileguard.benchmark_timer.cuda_timer",
    )
    run.result.assert_outcomes(failed=1)
    assert "cuda_timer needs a CUDA device" in run.text
    assert "Traceback" not in run.text
