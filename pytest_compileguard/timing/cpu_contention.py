"""Tells when threads of this process had to wait for processors that others kept busy.

A parallel region is as slow as its slowest thread. If that one waits for a processor, which takes
a time slice of some milliseconds, a call of 50 us takes 8 ms: it was seen that eager code ran in
parallel, compiled code did not, and two busy processes on two CPUs made 0.7x be read as 20x to
50x in nearly all pairs. So such samples are taken again, and then don't count, whatever the ratio.

The scheduler of Linux keeps how long each thread ran, and how long it was ready to run and did not
(``/proc/<pid>/task/<tid>/schedstat``, in nanoseconds; see sched-stats.rst of its documentation).
Other systems tell no such thing. Where one thread alone computes, a wait makes a block of either
side an outlier, and those are few, as a time slice is as long as many blocks.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from pytest_compileguard.timing.conditions import usable_cpus
from pytest_compileguard.timing.disturbance import Conditions

_TASKS = Path("/proc/self/task")
_NS_PER_S = 1e9
_COMPUTES = 0.05
"""Part of the time that a thread runs at least, if it has a part in what is timed."""
_HARMLESS = 0.1
"""Part of the time for which threads may wait, all together. Blocks in which one waits are longer
than others, so they are a smaller part of all blocks than of the time; a median needs half."""
_FEWER = "let fewer threads compute (OMP_NUM_THREADS=1), in the test and beside it"
_ADVICE = (
    "time on a quieter machine, without other workers (-n 0), or with fewer threads "
    "(OMP_NUM_THREADS=1)"
)


class ThreadTimes(NamedTuple):
    """How long a thread has run, and how long it waited for a processor, since it began."""

    ran_s: float
    waited_s: float


Threads = dict[str, ThreadTimes]


class CpuWatch:
    """Looks at the threads of this process before and after a measurement."""

    def __init__(self) -> None:
        self._before: Threads = {}
        self._begin_s = 0.0

    def begin(self) -> None:
        """Read their times before."""
        self._before, self._begin_s = _read(), time.monotonic()

    def end(self, *, patient: bool = False) -> Conditions:  # noqa: ARG002  # nothing comes late
        """Read their times after, and judge both."""
        elapsed_s = time.monotonic() - self._begin_s
        return Conditions(void=contention(self._before, _read(), elapsed_s, usable_cpus()))


def contention(
    before: Threads, after: Threads, elapsed_s: float, cpus: int | None = None
) -> str | None:
    """Say why samples between the two don't count; ``None``: nothing is wrong.

    ``cpus`` is how many processors this process may run on, if that is known.
    """
    spent = [_since(before.get(name), times) for name, times in after.items()]
    computing = sum(times.ran_s + times.waited_s > _COMPUTES * elapsed_s for times in spent)
    waited_s = sum(times.waited_s for times in spent)
    if computing <= 1 or waited_s <= _HARMLESS * elapsed_s:
        return None
    told = (
        "threads of this process waited for a processor, together "
        f"{waited_s / elapsed_s:.2g} s of each second"
    )
    if cpus is not None and computing > cpus:
        return f"{told}, as {computing} of them compute on {_count(cpus)}; {_FEWER}"
    return f"{told}, as others kept the CPUs busy; {_ADVICE}"


def _count(cpus: int) -> str:
    return "one CPU" if cpus == 1 else f"{cpus} CPUs"


def _since(before: ThreadTimes | None, after: ThreadTimes) -> ThreadTimes:
    earlier = before or ThreadTimes(0.0, 0.0)
    return ThreadTimes(after.ran_s - earlier.ran_s, after.waited_s - earlier.waited_s)


def _read() -> Threads:
    """Read the times of all threads; nothing where the system does not tell."""
    found = {}
    try:
        for task in _TASKS.iterdir():
            if (times := _times_of(task)) is not None:
                found[task.name] = times
    except OSError:
        return {}
    return found


def _times_of(task: Path) -> ThreadTimes | None:
    try:
        ran_ns, waited_ns, _ = (task / "schedstat").read_text().split()
        return ThreadTimes(int(ran_ns) / _NS_PER_S, int(waited_ns) / _NS_PER_S)
    except (OSError, ValueError):  # it has ended meanwhile, or this kernel keeps no such times
        return None
