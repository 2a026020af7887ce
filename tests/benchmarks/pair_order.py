"""What does the order inside a pair do to the ratio? Strict turns against chance.

One compiled function stands on both sides, so the true ratio is 1. Sides that take turns strictly
fall into step with what else repeats, and then differ in one direction for as long as a run lasts.

    python -m tests.benchmarks.pair_order --json pair_order.json

prints, for each workload, clock and order, the standard deviation of the ratio over the runs.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, stdev

import msgspec
import torch

from pytest_compileguard.environment import make_environment
from pytest_compileguard.timing.clock import BlockClock, CpuClock, CudaDeviceClock, CudaWallClock
from pytest_compileguard.timing.sampling import Order, Pairs, Sampler, Side
from tests.benchmarks.timing_workloads import Workload, make_workloads

CALLS = {"cuda": 10, "cpu": 20}


class StrictTurns(Order):
    """Eager first, compiled first, and so on."""

    def __init__(self) -> None:
        super().__init__()
        self._compiled_first = True

    def compiled_first(self) -> bool:
        self._compiled_first = not self._compiled_first
        return self._compiled_first


def clocks(device: str) -> Iterator[tuple[str, BlockClock]]:
    if device == "cpu":
        yield "wall", CpuClock()
    else:
        yield "wall", CudaWallClock(lead_in=True)
        yield "device", CudaDeviceClock()


def log_ratio(workload: Workload, clock: BlockClock, order: Order, device: str, s: float) -> float:
    """Read the ratio once, as its logarithm in percent."""
    sides = (Side(name=name, call=workload.call) for name in ("eager", "compiled"))
    eager, compiled = sides
    sampler = Sampler(
        eager=eager, compiled=compiled, clock=clock, calls=CALLS[device], order=order, tight=0.0
    )
    pairs, end_s = Pairs(), time.perf_counter() + s
    sampler.sample(pairs, end_s=end_s, limit=None, at_look=lambda: None)
    logs = [math.log(e / c) for e, c in zip(pairs.eager_s, pairs.compiled_s, strict=True)]
    return 100 * median(logs)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    found = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=found)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each run")
    parser.add_argument("--workload", action="append", default=[], help="only this one; may repeat")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


@torch.inference_mode()
def main() -> None:
    arguments = parse()
    read: dict[str, list[float]] = {}
    workloads = list(make_workloads(arguments.device, arguments.workload))
    for _ in range(arguments.runs):
        for workload in (w for w in workloads if w.mode == "default"):
            for clock_name, clock in clocks(arguments.device):
                for order in (StrictTurns(), Order()):
                    key = f"{workload.name} / {clock_name} / {type(order).__name__}"
                    value = log_ratio(workload, clock, order, arguments.device, arguments.seconds)
                    read.setdefault(key, []).append(value)
    for key, values in sorted(read.items()):
        sys.stdout.write(f"{key:50}{stdev(values):8.3f} %\n")
    if arguments.json:
        environment = msgspec.to_builtins(make_environment(arguments.device))
        report = {"environment": environment, "log_ratios_percent": read}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
