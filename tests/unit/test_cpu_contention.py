"""Threads that wait for processors which other processes keep busy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pytest_compileguard.observation import SpeedObservation
from pytest_compileguard.timing.conditions import usable_cpus
from pytest_compileguard.timing.cpu_contention import ThreadTimes, contention
from pytest_compileguard.timing.measuring import sample_speed

IDLE = ThreadTimes(3.0, 0.5)


@pytest.mark.parametrize(
    ("spent", "told"),
    (
        ({"1": (1.0, 0.0), "2": (0.9, 0.0)}, None),
        ({"1": (1.0, 0.04), "2": (0.9, 0.05)}, None),
        ({"1": (0.5, 0.5)}, None),
        ({"1": (0.5, 0.5), "2": (0.01, 0.0)}, None),
        ({"1": (0.8, 0.2), "2": (0.9, 0.0)}, "together 0.2 s of each second"),
        ({"1": (0.9, 0.0), "2": (0.04, 0.9)}, "together 0.9 s of each second"),
        ({"1": (0.5, 0.5), "2": (0.5, 0.5)}, "together 1 s of each second"),
    ),
    ids=(
        "no wait",
        "little wait",
        "one thread",
        "another one that does little",
        "the first one waits",
        "one that hardly runs waits",
        "both wait",
    ),
)
def test_waiting_counts_where_several_threads_compute(
    spent: dict[str, tuple[float, float]], told: str | None
) -> None:
    before = dict.fromkeys(spent, IDLE)
    after = {
        name: ThreadTimes(IDLE.ran_s + ran_s, IDLE.waited_s + waited_s)
        for name, (ran_s, waited_s) in spent.items()
    }
    found = contention(before, after, 1.0)
    assert (found is None) == (told is None)
    assert told is None or (found is not None and told in found)
    assert contention({}, dict(spent_since_start(spent)), 1.0) == found  # threads that are new


def spent_since_start(
    spent: dict[str, tuple[float, float]],
) -> Iterator[tuple[str, ThreadTimes]]:
    yield from ((name, ThreadTimes(*times)) for name, times in spent.items())


def test_own_threads_are_named_where_they_are_more_than_processors() -> None:
    after = {name: ThreadTimes(0.5, 0.5) for name in "abc"}
    found = contention({}, after, 1.0, cpus=2)
    assert found is not None
    assert "as 3 of them compute on 2 CPUs" in found
    assert "others" not in found
    assert "as others kept" in (contention({}, after, 1.0, cpus=4) or "")


def test_nothing_is_said_where_the_system_does_not_tell() -> None:
    assert contention({}, {}, 1.0) is None


@pytest.fixture
def busy_processors() -> Iterator[None]:
    """Other processes, twice as many as there are processors."""
    count = 2 * (usable_cpus() or 1)
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def timed() -> SpeedObservation:
    values = torch.randn(512, 512)

    def call() -> object:
        return torch.log_softmax(values, -1)

    return sample_speed(
        call,
        call,
        device="cpu",
        call=0,
        warmup=1,
        max_time_s=0.3,
        limit=0.01,
        compile_count=lambda: 0,
    )


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not tell")
@pytest.mark.usefixtures("busy_processors")
def test_samples_of_parallel_code_on_busy_processors_count_for_nothing() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        parallel = timed()
        torch.set_num_threads(1)
        serial = timed()
    finally:
        torch.set_num_threads(threads)
    assert parallel.void is not None
    assert "waited for a processor" in parallel.void
    assert "OMP_NUM_THREADS=1" in parallel.void
    assert parallel.attempts > 1
    assert serial.void is None
