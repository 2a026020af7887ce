"""How exact are the samples? Compared with what people use instead.

Every workload is compiled once, and that one function stands on both sides, so the true ratio is
known: 1, or 1.03 where a slowdown of 3 % is planted in the eager side. Where a call is bound by
launches the processor is kept busy for those 3 %, elsewhere the GPU. Both sides carry the
planting code, the one with nothing to do, so that it costs both the same.

    python tests/benchmarks/timing_accuracy.py --json timing_accuracy.json

prints a Markdown table:

- spread: standard deviation of the ratio read when the truth is 1, with the worst reading;
- read as: mean and standard deviation of what is read of the planted 3 %;
- told apart: readings above 1.015 with the slowdown, and without it (false alarms);
- proved: the same for intervals that lie wholly above 1, where a method has an interval;
- seconds a reading takes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import msgspec
import torch

from pytest_compileguard.environment import make_environment
from pytest_compileguard.observation import Clock
from pytest_compileguard.speed import speed
from pytest_compileguard.timing.clock import CpuClock, CudaDeviceClock, CudaWallClock
from pytest_compileguard.timing.measuring import sample_speed

PLANTED = 0.03
HALFWAY = 1 + PLANTED / 2
LAUNCH_BOUND = 0.8
"""GPU time / wall time below which a call is bound by launches."""

Call = Callable[[], object]
Function = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Reading:
    """What one method said once."""

    ratio: float
    low: float | None
    seconds: float


@dataclass
class Row:
    """All readings of one method on one workload."""

    workload: str
    method: str
    without: list[Reading] = field(default_factory=list)
    planted: list[Reading] = field(default_factory=list)


@dataclass(frozen=True)
class Workload:
    """A compiled call, and the call with the slowdown planted."""

    name: str
    call: Call
    slowed: Call
    clocks: tuple[Clock, ...]
    """Those on which the slowdown shows."""


def transform(x: torch.Tensor) -> torch.Tensor:
    return torch.relu((x + 1) * 2)


def product(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ x)


def make_functions(device: str) -> Iterator[tuple[str, Function, tuple[Any, ...]]]:
    """Name functions and arguments, from launch-bound to compute-bound."""
    large, matrix = (8192, 8192) if device == "cuda" else (1024, 512)
    half = torch.bfloat16 if device == "cuda" else torch.float32
    width = 1024 if device == "cuda" else 128
    mlp = torch.nn.Sequential(
        torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width)
    )
    tokens = (8, 512, 512) if device == "cuda" else (1, 32, 128)
    encoder = torch.nn.TransformerEncoderLayer(tokens[-1], 8, batch_first=True, dropout=0.0)
    yield "transform small", transform, (torch.randn(32, 1024, device=device),)
    yield "MLP", mlp.eval().to(device), (torch.randn(32, width, device=device),)
    yield (
        "encoder layer",
        encoder.eval().to(device, half),
        (torch.randn(*tokens, device=device, dtype=half),),
    )
    yield "transform large", transform, (torch.randn(large, large, device=device),)
    yield "matmul", product, (torch.randn(matrix, matrix, device=device, dtype=half),)


def make_workloads(device: str, names: Iterable[str]) -> Iterator[Workload]:
    for name, function, arguments in make_functions(device):
        if names and name not in names:
            continue
        compiled = torch.compile(function, dynamic=False)

        def call(compiled: Function = compiled, arguments: tuple[Any, ...] = arguments) -> object:
            return compiled(*arguments)

        for _ in range(20):
            call()
        yield (plant_on_gpu if device == "cuda" else plant_on_processor)(name, call)


def plant_on_processor(name: str, call: Call) -> Workload:
    clock = CpuClock()
    call_s = median(clock.block_s(call, 20) for _ in range(20))
    return Workload(name, spinning(call, 0.0), spinning(call, PLANTED * call_s), ("wall",))


def plant_on_gpu(name: str, call: Call) -> Workload:
    wall, device = CudaWallClock(), CudaDeviceClock()
    wall_s = median(wall.block_s(call, 20) or math.nan for _ in range(20))
    device_s = median([s for _ in range(30) if (s := device.block_s(call, 5))])
    if device_s < LAUNCH_BOUND * wall_s:
        return Workload(name, spinning(call, 0.0), spinning(call, PLANTED * wall_s), ("wall",))
    cycles = int(PLANTED * device_s * device._cycles_per_s)
    return Workload(name, sleeping(call, 0), sleeping(call, cycles), ("wall", "device"))


def spinning(call: Call, extra_s: float) -> Call:
    def busy() -> None:
        call()
        end_s = time.perf_counter() + extra_s
        while time.perf_counter() < end_s:
            pass

    return busy


def sleeping(call: Call, cycles: int) -> Call:
    cuda: Any = torch.cuda  # untyped there

    def slowed() -> None:
        cuda._sleep(cycles)
        call()

    return slowed


def textbook(eager: Call, compiled: Call, device: str) -> float:
    """Warm up with 20 calls, then take the mean of 100, one side after the other."""

    def mean_s(call: Call) -> float:
        for _ in range(20):
            call()
        wait(device)
        begin_s = time.perf_counter()
        for _ in range(100):
            call()
        wait(device)
        return (time.perf_counter() - begin_s) / 100

    return mean_s(eager) / mean_s(compiled)


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def triton_median(eager: Call, compiled: Call) -> float:
    from triton.testing import do_bench  # noqa: PLC0415  # only there with a GPU

    times_ms = [float(do_bench(call, return_mode="median")) for call in (eager, compiled)]
    return times_ms[0] / times_ms[1]


def has_triton(device: str) -> bool:
    if device != "cuda":
        return False
    try:
        import triton.testing  # noqa: PLC0415  # only there with a GPU
    except ImportError:
        return False
    return bool(triton.testing)


def plain_readings(
    eager: Call, compiled: Call, device: str
) -> Iterator[tuple[str, Clock, Reading]]:
    """Read by the methods that people use; all of them mean the wall clock."""
    begin_s = time.perf_counter()
    ratio = textbook(eager, compiled, device)
    yield "mean of 100", "wall", Reading(ratio, None, time.perf_counter() - begin_s)
    if has_triton(device):
        begin_s = time.perf_counter()
        ratio = triton_median(eager, compiled)
        yield "do_bench", "wall", Reading(ratio, None, time.perf_counter() - begin_s)


def our_readings(
    eager: Call, compiled: Call, device: str, max_time_s: float
) -> Iterator[tuple[str, Clock, Reading]]:
    begin_s = time.perf_counter()
    seen = sample_speed(
        eager,
        compiled,
        device=device,
        call=0,
        warmup=10,
        max_time_s=max_time_s,
        limit=None,
        compile_count=lambda: 0,
    )
    seconds = time.perf_counter() - begin_s
    if seen.void is not None:
        raise SystemExit(f"void: {seen.void}")
    clocks: tuple[Clock, ...] = ("wall", "device")
    for clock in clocks:
        if (told := speed(seen, clock)) is not None:
            yield f"pairs, {clock}", clock, Reading(told.speedup, told.speedup_low, seconds)


def measure(
    workload: Workload, device: str, arguments: argparse.Namespace, end_s: float
) -> list[Row]:
    """Repeat all methods in turn, so that a slow phase of the machine hits all of them."""
    rows: dict[str, Row] = {}
    for repeat in range(arguments.repeats):
        if repeat > 1 and time.perf_counter() > end_s:
            break
        for eager in (workload.call, workload.slowed):
            for method, clock, reading in (
                *plain_readings(eager, workload.call, device),
                *our_readings(eager, workload.call, device, arguments.max_time_s),
            ):
                row = rows.setdefault(method, Row(workload.name, method))
                if eager is workload.call:
                    row.without.append(reading)
                elif clock in workload.clocks:
                    row.planted.append(reading)
    return list(rows.values())


def table(rows: Iterable[Row]) -> Iterator[str]:
    yield "| workload | method | spread (worst), % | 3 % read as | told apart | proved | s | n |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        cells = (
            row.workload,
            row.method,
            spread(row.without),
            read_as(row.planted),
            versus(row, lambda reading: reading.ratio > HALFWAY),
            versus(row, lambda reading: reading.low is not None and reading.low > 1)
            if row.without[0].low is not None
            else "",
            f"{mean(reading.seconds for reading in row.without):.2f}",
            str(len(row.without)),
        )
        yield f"| {' | '.join(cells)} |"


def spread(readings: list[Reading]) -> str:
    errors = [100 * (reading.ratio - 1) for reading in readings]
    return f"{stdev(errors):.2f} ({max(map(abs, errors)):.2f})" if len(errors) > 1 else ""


def read_as(readings: list[Reading]) -> str:
    effects = [100 * (reading.ratio - 1) for reading in readings]
    return f"{mean(effects):.2f} ± {stdev(effects):.2f}" if len(effects) > 1 else ""


def versus(row: Row, hit: Callable[[Reading], bool]) -> str:
    if not row.planted:
        return ""
    found, alarms = (sum(map(hit, readings)) for readings in (row.planted, row.without))
    return f"{found}/{len(row.planted)}, false {alarms}/{len(row.without)}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    found = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=found)
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--max-time-s", type=float, default=0.6, help="budget of our sampling")
    parser.add_argument("--budget-s", type=float, default=180.0, help="for all readings together")
    parser.add_argument("--workload", action="append", default=[], help="only this one; may repeat")
    parser.add_argument("--json", type=Path, help="write all readings there")
    return parser.parse_args()


@torch.inference_mode()
def main() -> None:
    arguments = parse()
    workloads = list(make_workloads(arguments.device, arguments.workload))
    rows: list[Row] = []
    end_s = time.perf_counter()
    for workload in workloads:
        end_s = max(end_s, time.perf_counter()) + arguments.budget_s / len(workloads)
        rows += measure(workload, arguments.device, arguments, end_s)
    if arguments.json:
        report = {
            "environment": msgspec.to_builtins(make_environment(arguments.device)),
            "planted": PLANTED,
            "rows": [asdict(row) for row in rows],
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write("\n".join(table(rows)) + "\n")


if __name__ == "__main__":
    main()
