"""What people use instead: a script by the textbook, Triton's do_bench, and NVBench for Python."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.timing_workloads import Call, Workload


def textbook(eager: Call, compiled: Call, device: str) -> float:
    """Warm up with 20 calls, then take the mean of 100, one side after the other."""
    return mean_s(eager, device) / mean_s(compiled, device)


def mean_s(call: Call, device: str) -> float:
    for _ in range(20):
        call()
    if device == "cpu":
        begin_s = time.perf_counter()
        for _ in range(100):
            call()
        return (time.perf_counter() - begin_s) / 100
    event: Any = torch.cuda.Event  # untyped there
    start, end = event(enable_timing=True), event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(100):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e5


def triton_median(eager: Call, compiled: Call) -> float:
    from triton.testing import do_bench  # noqa: PLC0415  # only there with a GPU

    times_ms = [float(do_bench(call, return_mode="median")) for call in (eager, compiled)]
    return times_ms[0] / times_ms[1]


def nvbench_times_s(workloads: Sequence[Workload], runs: int) -> Iterator[tuple[str, str, float]]:
    """Time each call several times, all calls in turn, as NVBench does by default.

    Yields:
        Name of the workload, clock (``batch``, calls back to back, or ``cold``), seconds a call.
    """
    nvbench: Any = import_module("cuda.bench")  # only there with a GPU
    external_stream: Any = torch.cuda.ExternalStream  # untyped there

    def register(name: str, call: Call) -> None:
        def timed(state: Any) -> None:
            stream = external_stream(state.get_stream().addressof())

            def launch(_launch: Any) -> None:
                with torch.cuda.stream(stream):
                    call()

            state.exec(launch)

        nvbench.register(timed).set_name(name)

    for run in range(runs):
        for workload in workloads:
            register(f"{workload.name} {run}", workload.call)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nvbench.json"
        nvbench.run_all_benchmarks([sys.argv[0], "--quiet", "--json", str(path)])
        found = json.loads(path.read_text(encoding="utf-8"))
    for benchmark in found["benchmarks"]:
        name = benchmark["name"].rpartition(" ")[0]
        for clock, tag in (
            ("batch", "nv/batch/time/gpu/mean"),
            ("cold", "nv/cold/time/gpu/mean"),
        ):
            yield from ((name, clock, taken_s) for taken_s in summaries(benchmark, tag))


def summaries(benchmark: dict[str, Any], tag: str) -> Iterator[float]:
    for state in benchmark["states"]:
        for summary in state["summaries"]:
            if summary["tag"] == tag:
                (value,) = (d["value"] for d in summary["data"] if d["name"] == "value")
                yield float(value)
