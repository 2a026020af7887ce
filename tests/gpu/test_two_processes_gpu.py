"""Two processes that time on one GPU at once: with the lock each reads what it reads alone."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

READINGS = 6
CHILD = """
import json, sys, tempfile
import torch
from pytest_compileguard.speed import speed
from pytest_compileguard.timing.measuring import sample_speed

def transform(x):
    return torch.relu((x + 1) * 2)

x = torch.randn(8192, 8192, device="cuda")
compiled = torch.compile(transform)
compiled(x)
print("ready", flush=True)
for line in sys.stdin:
    tempfile.tempdir = line.strip()  # where the lock lies
    ratios = []
    for _ in range({readings} + 1):
        seen = sample_speed(
            lambda: transform(x), lambda: compiled(x), device="cuda:0", call=0, warmup=5,
            max_time_s=0.5, limit=None, compile_count=lambda: 0,
        )
        ratios.append(speed(seen, "wall").speedup)
    print(json.dumps(ratios[1:]), flush=True)  # the first one finds an idle GPU
"""

Process = subprocess.Popen[str]


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """Two that have compiled, and wait for the folder in which to lock."""
    command = [sys.executable, "-c", CHILD.format(readings=READINGS)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def read(processes: list[Process], folders: list[Path]) -> list[list[float]]:
    """Let the processes time at once, each locking in its folder."""
    for process, folder in zip(processes, folders, strict=True):
        folder.mkdir(exist_ok=True)
        assert process.stdin is not None
        process.stdin.write(f"{folder}\n")
        process.stdin.flush()
    answers = []
    for process in processes:
        assert process.stdout is not None
        answers.append(json.loads(process.stdout.readline()))
    return answers


def worst(ratios: list[list[float]], truth: float) -> float:
    return max(abs(math.log(ratio / truth)) for of_one in ratios for ratio in of_one)


def test_with_the_lock_two_processes_read_what_one_reads(
    processes: list[Process], tmp_path: Path
) -> None:
    (alone,) = read(processes[:1], [tmp_path / "one"])
    truth = sorted(alone)[READINGS // 2]
    locked = worst(read(processes, [tmp_path / "one", tmp_path / "one"]), truth)
    unlocked = worst(read(processes, [tmp_path / "one", tmp_path / "two"]), truth)

    print(f"{truth:.3f} alone; at once off by {locked:.2%} locked, {unlocked:.2%} not")  # noqa: T201
    assert worst([alone], truth) < 0.02
    assert locked < 0.02
    assert unlocked > 2 * locked
