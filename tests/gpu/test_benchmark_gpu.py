"""The GPU's clock as the timer of pytest-benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

SUITE = """
import torch

def test_kernels(benchmark):
    x = torch.ones(8192, 8192, device="cuda")
    benchmark.pedantic(torch.add, (x, 1), rounds=30, iterations=10, warmup_rounds=3)
"""


def test_kernels_are_timed_until_the_gpu_is_done(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_suite=SUITE)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # the suite's own run is none
    timers = {
        "gpu": "pytest_compileguard.benchmark_timer.cuda_timer",
        "launches": "time.perf_counter",
    }
    median_s = {}
    for name, timer in timers.items():
        # In a process of its own, since pytest-benchmark 5.2 leaves the file open.
        run = pytester.runpytest_subprocess(
            f"--benchmark-timer={timer}", "--benchmark-json=bench.json"
        )
        run.assert_outcomes(passed=1)
        (entry,) = json.loads(Path("bench.json").read_text(encoding="utf-8"))["benchmarks"]
        median_s[name] = entry["stats"]["median"]
    # It reads and writes 256 MiB each, which takes ten times as long as launching it.
    assert median_s["gpu"] > 0.5 * 2 * 8192 * 8192 * 4 / 4.8e12
    assert median_s["gpu"] > 2 * median_s["launches"]
