"""The script that one would write by hand for the checks of ``price.py``: the same work, plainly.

For each target it compiles, makes the same calls on both sides, compares them by
``torch.testing``, and takes as many interleaved pairs as the plugin did, in blocks of as many
calls. It prints what each part took, as JSON.

    python price_by_hand.py work.json DEVICE BACKEND
"""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BEGIN_S = time.perf_counter()

import torch  # noqa: E402  # its import is timed

Call = Callable[[], object]
PARTS = defaultdict[str, float](float, {"importing": time.perf_counter() - BEGIN_S})


@contextmanager
def part(name: str) -> Iterator[None]:
    begin_s = time.perf_counter()
    yield
    PARTS[name] += time.perf_counter() - begin_s


class Clock:
    """Times a block of calls: by events on a GPU, behind a sleeping kernel if gaps are hidden."""

    def __init__(self, device: str) -> None:
        self.cuda: Any = torch.cuda if device == "cuda" else None
        if self.cuda:
            self.events = [self.cuda.Event(enable_timing=True) for _ in range(2)]

    def block_s(self, call: Call, calls: int, sleep_cycles: int = 0) -> float:
        if not self.cuda:
            begin_s = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - begin_s) / calls
        start, end = self.events
        self.cuda.synchronize()
        if sleep_cycles:
            self.cuda._sleep(sleep_cycles)
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / calls


def pairs(clock: Clock, sides: tuple[Call, Call], count: int, calls: int, sleep: int = 0) -> float:
    """Take interleaved pairs; the median of their ratios, if there are any."""
    ratios = []
    for _ in range(count):
        taken = {}
        for side in random.sample((0, 1), 2):
            taken[side] = clock.block_s(sides[side], calls, sleep)
        ratios.append(taken[0] / taken[1])
    return statistics.median(ratios) if ratios else math.nan


def check(work: dict[str, int], device: str, backend: str) -> float | None:
    """Do for one target what one check does."""
    from price_made import (  # type: ignore[import-not-found]  # noqa: PLC0415  # made by price.py
        make,
        make_inputs,
    )

    target: Any = make(work["number"], device)
    compiled: Any = torch.compile(target, backend=backend)
    inputs = make_inputs(work["number"], device)
    for x in inputs:
        with part("eager calls"):
            expected = target(x)
        with part("compiling"):
            actual = compiled(x)
            if device == "cuda":
                torch.cuda.synchronize()
        with part("comparing"):
            torch.testing.assert_close(actual, expected)
    if not work["pairs"]:
        return None
    with part("timing"):
        clock, x = Clock(device), inputs[-1]
        sides = (lambda: target(x)), (lambda: compiled(x))
        pairs(clock, sides, work["warmup"], 1)
        ratio = pairs(clock, sides, work["pairs"], work["calls"])
        pairs(clock, sides, work["device_pairs"], min(work["calls"], 10), 1_500_000)
    return ratio


def main() -> None:
    file, device, backend = sys.argv[1:]
    with torch.no_grad():
        speedups = [check(work, device, backend) for work in json.loads(Path(file).read_bytes())]
    sys.stdout.write(json.dumps({"parts_s": PARTS, "speedups": speedups}) + "\n")


if __name__ == "__main__":
    main()
