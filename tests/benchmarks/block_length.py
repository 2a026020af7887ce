"""How long should a block be? The spread of the ratio, by how many calls make a block.

One compiled function stands on both sides, so the true ratio is 1. What a block costs beside the
calls it times (a lead-in, a sleep) is paid less often in longer blocks; in shorter ones there are
more pairs, and what makes the processor slow for a moment hits fewer of them.

    python -m tests.benchmarks.block_length --json block_length.json

prints, for each workload, clock and length, the standard deviation of the ratio over the runs, how
many pairs a run had, and what the pairs themselves let expect.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median, stdev
from typing import NamedTuple

import msgspec
import torch

from pytest_compileguard.environment import make_environment
from pytest_compileguard.observation import Clock
from pytest_compileguard.timing.clock import BlockClock, CudaDeviceClock, CudaWallClock
from pytest_compileguard.timing.clock import GapsShowError as Gaps
from pytest_compileguard.timing.sampling import Pairs, Sampler, Side
from tests.benchmarks.timing_workloads import Workload, make_workloads

LENGTHS: dict[Clock, tuple[int, ...]] = {"wall": (4, 8, 16), "device": (50, 100, 200, 400)}
RESAMPLED = 100


class Key(NamedTuple):
    workload: str
    clock: str
    calls: int


class Run(NamedTuple):
    """The logarithm of the ratio in percent, the number of pairs, and the expected spread."""

    error: float
    pairs: int
    expected: float


def clock_of(kind: Clock) -> BlockClock:
    return CudaDeviceClock() if kind == "device" else CudaWallClock(lead_in=True)


def run(workload: Workload, clock: BlockClock, calls: int, seconds: float) -> Run | None:
    """Read the ratio once; ``None``: the GPU can't be kept behind so many launches."""
    eager, compiled = (Side(name=name, call=workload.call) for name in ("eager", "compiled"))
    sampler = Sampler(eager=eager, compiled=compiled, clock=clock, calls=calls, tight=0.0)
    pairs, end_s = Pairs(), time.perf_counter() + seconds
    try:
        sampler.sample(pairs, end_s=end_s, limit=None, at_look=lambda: None)
    except Gaps:
        return None
    if not pairs.eager_s:
        return None
    logs = [100 * math.log(e / c) for e, c in zip(pairs.eager_s, pairs.compiled_s, strict=True)]
    medians = [median(random.choices(logs, k=len(logs))) for _ in range(RESAMPLED)]  # noqa: S311
    return Run(median(logs), len(logs), stdev(medians))


def table(runs: dict[Key, list[Run]]) -> Iterator[str]:
    yield "| workload | clock | calls | spread, % | expected, % | pairs | runs |"
    yield "|---|---|---|---|---|---|---|"
    for key, found in sorted(runs.items()):
        spread = f"{stdev(one.error for one in found):.3f}" if len(found) > 1 else ""
        means = (
            f"{mean(one.expected for one in found):.3f} | {mean(one.pairs for one in found):.0f}"
        )
        yield f"| {' | '.join(map(str, key))} | {spread} | {means} | {len(found)} |"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clock", choices=tuple(LENGTHS), action="append", default=[])
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.6, help="of each run")
    parser.add_argument("--workload", action="append", default=[], help="only this one; may repeat")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


@torch.inference_mode()
def main() -> None:
    arguments = parse()
    runs: dict[Key, list[Run]] = defaultdict(list)
    workloads = list(make_workloads("cuda", arguments.workload))
    for _ in range(arguments.runs):
        for workload in workloads:
            for kind in arguments.clock or LENGTHS:
                for calls in LENGTHS[kind]:
                    found = run(workload, clock_of(kind), calls, arguments.seconds)
                    if found is not None:
                        name = f"{workload.name}, {workload.mode}"
                        runs[Key(name, kind, calls)].append(found)
    sys.stdout.write("\n".join(table(runs)) + "\n")
    if arguments.json:
        report = {
            "environment": msgspec.to_builtins(make_environment("cuda")),
            "seconds": arguments.seconds,
            "runs": {", ".join(map(str, key)): found for key, found in runs.items()},
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
