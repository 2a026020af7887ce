"""How exact are the samples, and the decisions made from them? Held against what people use.

One compiled function stands on both sides, so the truth is known: a ratio of 1, or 1 / 1.03 where
a slowdown of 3 % on the clock that decides is planted in the compiled side.

    python -m tests.benchmarks.timing_accuracy --json timing_accuracy.json

prints two Markdown tables. Readings, when the truth is 1:

- spread: standard deviation of the ratio, with the worst reading, on the clock that decides;
  NVBench has no pairs, so its spread is that of the ratio of two runs one after the other;
- seconds a reading takes, of both sides.

Decisions, by our rule, of a limit 2 % below the truth without the slowdown (so 0.98):

- false alarms: how often it fails without the slowdown; and how often that stays undecided;
- caught: how often it fails with the slowdown; and the ratio that is read then.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple

import msgspec
import torch

from pytest_compileguard.environment import make_environment
from pytest_compileguard.observation import Clock
from pytest_compileguard.speed import speed
from pytest_compileguard.timing.measuring import sample_speed
from tests.benchmarks.other_timers import nvbench_times_s, textbook, triton_median
from tests.benchmarks.timing_workloads import Call, Workload, make_workloads

LIMIT = 0.98
NVBENCH = ("MLP",)
"""Of what it times: one that launches limit. It takes 7 s a run."""
CLOCKS: tuple[Clock, ...] = ("wall", "device")


class Key(NamedTuple):
    """What is timed, and by what."""

    workload: str
    mode: str
    method: str


@dataclass
class Readings:
    """Ratios that one method read where the truth is 1."""

    ratios: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


@dataclass
class Decisions:
    """What was decided of the limit on one clock, and from which ratios."""

    decided: list[str] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def share(self, decision: str) -> str:
        return f"{self.decided.count(decision)}/{len(self.decided)}"


@dataclass
class Benchmark:
    """All that is measured of all workloads."""

    device: str
    max_time_s: float
    readings: dict[Key, Readings] = field(default_factory=lambda: defaultdict(Readings))
    alarms: dict[Key, Decisions] = field(default_factory=lambda: defaultdict(Decisions))
    caught: dict[Key, Decisions] = field(default_factory=lambda: defaultdict(Decisions))

    def read(self, workload: Workload) -> None:
        """Read the ratio once by each method; called in turn, so slow phases hit all of them."""
        self.read_scripts(workload)
        for clock in CLOCKS if self.device == "cuda" else CLOCKS[:1]:
            self.read_pairs(workload, clock)

    def read_scripts(self, workload: Workload) -> None:
        """Read it as people do instead."""
        call = workload.call
        begin_s = time.perf_counter()
        self._note(workload, "mean of 100", textbook(call, call, self.device), begin_s)
        if self.device == "cuda":
            begin_s = time.perf_counter()
            self._note(workload, "do_bench", triton_median(call, call), begin_s)

    def read_pairs(self, workload: Workload, gated: Clock) -> None:
        """Read it on one clock as a check does."""
        begin_s = time.perf_counter()
        for clock, ratio, _ in self._sampled(workload.call, workload.call, None, gated):
            if clock == gated:
                self._note(workload, f"pairs, {clock}", ratio, begin_s)

    def _note(self, workload: Workload, method: str, ratio: float, begin_s: float) -> None:
        found = self.readings[Key(workload.name, workload.mode, method)]
        found.ratios.append(ratio)
        found.seconds.append(time.perf_counter() - begin_s)

    def decide(self, workload: Workload, clock: Clock, *, slowed: bool) -> None:
        """Make one check of the limit on one clock."""
        compiled = workload.slowed[clock] if slowed else workload.call
        where = self.caught if slowed else self.alarms
        found = where[Key(workload.name, workload.mode, clock)]
        begin_s = time.perf_counter()
        for seen_clock, ratio, decision in self._sampled(workload.call, compiled, LIMIT, clock):
            if seen_clock == clock:
                found.decided.append(decision)
                found.ratios.append(ratio)
                found.seconds.append(time.perf_counter() - begin_s)
        if slowed:
            workload.slowed[clock].adjust(found.ratios[-1])

    def _sampled(
        self, eager: Call, compiled: Call, limit: float | None, gated: Clock
    ) -> Iterator[tuple[Clock, float, str]]:
        seen = sample_speed(
            eager,
            compiled,
            device=self.device,
            call=0,
            warmup=10,
            max_time_s=self.max_time_s,
            limit=limit,
            compile_count=lambda: 0,
            clock=gated,
        )
        if seen.void is not None:
            raise SystemExit(f"void: {seen.void}")
        for clock in CLOCKS:
            if (told := speed(seen, clock)) is not None:
                yield clock, told.speedup, decision(told.speedup_low, told.speedup_high)

    def read_nvbench(self, workloads: Sequence[Workload], runs: int) -> None:
        """Let NVBench time the calls; two runs in succession make a ratio."""
        chosen = [w for w in workloads if w.mode == "default" and w.name in NVBENCH]
        begin_s = time.perf_counter()
        times: dict[tuple[str, str], list[float]] = defaultdict(list)
        for name, clock, taken_s in nvbench_times_s(chosen, runs):
            times[name, clock].append(taken_s)
        run_s = (time.perf_counter() - begin_s) / (len(chosen) * runs)
        for (name, clock), taken in times.items():
            found = self.readings[Key(name, "default", f"NVBench, {clock}")]
            found.ratios = [a / b for a, b in pairwise(taken)]
            found.seconds = [2 * run_s]


def decision(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "undecided"
    if low > LIMIT:
        return "above"
    return "below" if high < LIMIT else "undecided"


def reading_table(readings: dict[Key, Readings]) -> Iterator[str]:
    yield "| workload | mode | method | spread (worst), % | s | n |"
    yield "|---|---|---|---|---|---|"
    for key, found in sorted(readings.items()):
        errors = [100 * math.log(ratio) for ratio in found.ratios]
        spread = f"{stdev(errors):.2f} ({max(map(abs, errors)):.2f})" if len(errors) > 1 else ""
        yield f"| {' | '.join(key)} | {spread} | {mean(found.seconds):.2f} | {len(errors)} |"


def decision_table(alarms: dict[Key, Decisions], caught: dict[Key, Decisions]) -> Iterator[str]:
    yield "| workload | mode | clock | false alarms | undecided | s | caught | read as | s |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for key, without in sorted(alarms.items()):
        cells = [*key, without.share("below"), without.share("undecided")]
        cells.append(f"{mean(without.seconds):.2f}")
        if (slowed := caught.get(key)) is not None:
            cells += [slowed.share("below"), f"{median(slowed.ratios):.4f}"]
            cells.append(f"{mean(slowed.seconds):.2f}")
        yield f"| {' | '.join((*cells, '', '', '')[:9])} |"


def total(found: Iterable[Decisions], wanted: str) -> str:
    decided = [one for decisions in found for one in decisions.decided]
    return f"{decided.count(wanted)} of {len(decided)}"


def caught_on(benchmark: Benchmark, clock: Clock) -> str:
    return total((v for key, v in benchmark.caught.items() if key.method == clock), "below")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    found = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=found)
    parser.add_argument("--readings", type=int, default=5, help="of each workload and mode")
    parser.add_argument(
        "--wall-readings", type=int, default=11, help="where launching is what the wall clock shows"
    )
    parser.add_argument("--alarms", type=int, default=15, help="checks of each, on each clock")
    parser.add_argument("--slowdowns", type=int, default=10, help="checks of each, on each clock")
    parser.add_argument("--nvbench", type=int, default=3, help="runs of each workload")
    parser.add_argument("--max-time-s", type=float, default=0.97, help="budget of one check")
    parser.add_argument("--budget-s", type=float, default=348.0, help="when to begin nothing more")
    parser.add_argument("--workload", action="append", default=[], help="only this one; may repeat")
    parser.add_argument("--json", type=Path, help="write all readings there")
    return parser.parse_args()


def measured(arguments: argparse.Namespace, begin_s: float) -> Iterator[Benchmark]:
    """Take all in rounds, so that a slow phase hits all alike; stop when the time is over.

    Yields:
        What was measured so far, after each round.
    """
    benchmark = Benchmark(arguments.device, arguments.max_time_s)
    workloads = list(make_workloads(arguments.device, arguments.workload))
    end_s = begin_s + arguments.budget_s
    if arguments.nvbench and arguments.device == "cuda":
        try:
            benchmark.read_nvbench(workloads, arguments.nvbench)
        except Exception as error:  # noqa: BLE001  # it is not there, or does not fit the driver
            sys.stderr.write(f"NVBench: {type(error).__name__}: {error}\n")
    for number in range(max(arguments.readings, arguments.alarms, arguments.slowdowns)):
        for workload in workloads:
            if time.perf_counter() < end_s:
                one_round(benchmark, workload, number, arguments)
        yield benchmark


def one_round(
    benchmark: Benchmark, workload: Workload, number: int, arguments: argparse.Namespace
) -> None:
    clocks = CLOCKS if arguments.device == "cuda" else CLOCKS[:1]
    if number < arguments.alarms:
        for clock in clocks:
            benchmark.decide(workload, clock, slowed=False)
    if number < arguments.slowdowns:
        for clock in workload.slowed:
            benchmark.decide(workload, clock, slowed=True)
    if number < arguments.readings:
        benchmark.read(workload)
    elif number < arguments.wall_readings and workload.launch_bound:
        benchmark.read_pairs(workload, "wall")


def kept(benchmark: Benchmark, arguments: argparse.Namespace, took_s: float) -> dict[str, Any]:
    """Return what there is so far."""
    return {
        "command": " ".join(("timing_accuracy", *(Path(a).name for a in sys.argv[1:]))),
        "environment": msgspec.to_builtins(make_environment(arguments.device)),
        "seconds": took_s,
        "max_time_s": arguments.max_time_s,
        "readings": {" / ".join(k): asdict(v) for k, v in benchmark.readings.items()},
        "without": {" / ".join(k): asdict(v) for k, v in benchmark.alarms.items()},
        "slowed": {" / ".join(k): asdict(v) for k, v in benchmark.caught.items()},
    }


@torch.inference_mode()
def main() -> None:
    arguments = parse()
    begin_s = time.perf_counter()
    for benchmark in measured(arguments, begin_s):
        took_s = time.perf_counter() - begin_s
        if arguments.json:
            text = json.dumps(kept(benchmark, arguments, took_s), indent=1)
            arguments.json.write_text(f"{text}\n", encoding="utf-8")
    lines = [
        *reading_table(benchmark.readings),
        "",
        *decision_table(benchmark.alarms, benchmark.caught),
        "",
        f"false alarms {total(benchmark.alarms.values(), 'below')}",
        *(f"caught on the {clock} clock: {caught_on(benchmark, clock)}" for clock in CLOCKS),
        f"{took_s:.0f} s in all",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
