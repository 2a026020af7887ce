"""Processes that time on one GPU at once: with the lock each reads what it reads alone.

Without the lock, a call that launches limit waits for its turn behind the kernels of the other
process, on both sides alike, and so the ratio goes to 1. One that only the GPU limits reads the
same even then, as short blocks fall between the turns of the other process.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

import pytest

pytestmark = pytest.mark.gpu

READINGS = 4
TARGETS = ("large", "mlp")
CHILD = """
import json, sys, tempfile
import torch
from pytest_compileguard.speed import speed
from pytest_compileguard.timing.measuring import sample_speed

def transform(x):
    return torch.relu((x + 1) * 2)

def make(name):
    if name == "large":
        return transform, 8192, 8192
    first, second = (torch.nn.Linear(1024, 1024) for _ in range(2))
    return torch.nn.Sequential(first, torch.nn.ReLU(), second), 32, 1024

torch.set_grad_enabled(False)
target, rows, columns = make(sys.argv[1])
if isinstance(target, torch.nn.Module):
    target.cuda()
x = torch.randn(rows, columns, device="cuda")
compiled = torch.compile(target)
compiled(x)
print("ready", flush=True)
for line in sys.stdin:
    readings, tempfile.tempdir = line.strip().split(" ", 1)  # how many, and where the lock lies
    ratios = []
    for _ in range(int(readings) + 1):
        both = []
        for clock in ("wall", "device"):
            seen = sample_speed(
                lambda: target(x), lambda: compiled(x), device="cuda:0", call=0, warmup=5,
                max_time_s=0.5, limit=None, compile_count=lambda: 0, clock=clock,
            )
            found = speed(seen, clock)
            both.append(found and found.speedup)
        ratios.append(both)
    print(json.dumps(ratios[1:]), flush=True)  # the first one finds an idle GPU
"""

Process = subprocess.Popen[str]
Ratio = float | None


@pytest.fixture
def processes() -> Iterator[dict[str, Process]]:
    """One for each target, that has compiled, and waits for the folder in which to lock."""
    started = {
        name: subprocess.Popen(
            [sys.executable, "-c", CHILD, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in TARGETS
    }
    try:
        for process in started.values():
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.communicate()


def read(
    processes: Mapping[str, Process], folders: Mapping[str, Path]
) -> dict[str, dict[str, list[Ratio]]]:
    """Let processes time at once, each locking in its folder; return ratios by target and clock."""
    for name, folder in folders.items():
        folder.mkdir(exist_ok=True)
        stdin = processes[name].stdin
        assert stdin is not None
        # The large call is read faster; it goes on until the other one is through.
        readings = 4 * READINGS if name == "large" and len(folders) > 1 else READINGS
        stdin.write(f"{readings} {folder}\n")
        stdin.flush()
    answers = {}
    for name in folders:
        stdout = processes[name].stdout
        assert stdout is not None
        wall, device = zip(*json.loads(stdout.readline()), strict=True)
        answers[name] = {"wall": list(wall), "device": list(device)}
    return answers


def worst(ratios: list[Ratio], truths: list[Ratio]) -> float:
    """Return by which factor the ratios are off at most; one that is missing by any."""
    truth = median(found for found in truths if found is not None)
    return max(math.inf if r is None else max(r / truth, truth / r) for r in ratios)


def test_with_the_lock_processes_read_what_each_reads_alone(
    processes: dict[str, Process], tmp_path: Path
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    alone = {name: read(processes, {name: one})[name] for name in TARGETS}
    locked = read(processes, dict.fromkeys(TARGETS, one))
    unlocked = read(processes, {"large": one, "mlp": other})

    for name in TARGETS:
        for clock, truths in alone[name].items():
            print(name, clock, truths, locked[name][clock], unlocked[name][clock], sep="\n  ")  # noqa: T201
    # A call that launches limit varies on the wall clock by what the processor does, also alone.
    allowed = (("large", "wall", 1.02), ("large", "device", 1.01), ("mlp", "device", 1.02))
    for name, clock, factor in allowed:
        truths = alone[name][clock]
        assert worst(truths, truths) < factor
        assert worst(locked[name][clock], truths) < factor
    truths = alone["mlp"]["wall"]
    assert worst(locked["mlp"]["wall"], truths) < 1.4
    assert worst(unlocked["mlp"]["wall"], truths) > 2
