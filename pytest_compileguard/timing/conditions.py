"""The conditions under which samples count: what voids them, and what is to be noted."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.timing import stats

_PACE_WORTH_A_NOTE = 1.5
_WIDE = 0.25
_TOTALS_WORTH_A_NOTE = 1.1
_TAILS_WORTH_A_NOTE = 1.3
_LEAST_PAIRS_OF_TOTALS = 20
_MONITORING_TOOLS = range(6)  # the identifiers that sys.monitoring has


class VoidError(CompileGuardError):
    """The samples don't count; the message says why."""


def refuse_tracers() -> None:
    """Let nothing be timed that a tracer slows down.

    A tracer hooks into Python frames. Compiled calls run some of those (guards, wrappers of
    kernels) where eager calls run C++, so it slows one side only and bends the ratio.

    Raises:
        VoidError: A debugger, a profiler or a coverage tool is active in this thread.
    """
    if tracers := active_tracers():
        raise VoidError(
            f"{' and '.join(tracers)}: that slows compiled calls and not eager ones; "
            "time without coverage, debugger and profiler"
        )


def active_tracers() -> tuple[str, ...]:
    """Name what watches the Python frames of this thread."""
    return (
        *_hook("sys.settrace", sys.gettrace()),
        *_hook("sys.setprofile", sys.getprofile()),
        *_monitoring(),
    )


def _hook(setter: str, hook: Any) -> tuple[str, ...]:
    if hook is None:
        return ()
    kind = hook if hasattr(hook, "__qualname__") else type(hook)
    return (f"{setter} is active ({kind.__module__}.{kind.__qualname__})",)


def _monitoring() -> tuple[str, ...]:
    monitoring: Any = getattr(sys, "monitoring", None)  # from Python 3.12 on
    if monitoring is None:
        return ()
    return tuple(
        f"sys.monitoring is active ({tool})"
        for identifier in _MONITORING_TOOLS
        if (tool := monitoring.get_tool(identifier)) and monitoring.get_events(identifier)
    )


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Keep the collector from running inside a sample; ``collect_young`` takes its place."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def collect_young() -> None:
    """Free the cycles that timed calls left, between samples, lest device memory runs full."""
    gc.collect(0)


def usable_cpus() -> int | None:
    """Count the logical CPUs that this process may run on, where the system tells."""
    affinity: Any = getattr(os, "sched_getaffinity", None)  # not on every system
    return os.cpu_count() if affinity is None else len(affinity(0))


def shortfall(
    eager_s: Sequence[float],
    compiled_s: Sequence[float],
    *,
    calls: int,
    warmup: int,
    max_time_s: float,
) -> tuple[str, ...]:
    """Say which budget would have given an interval."""
    pairs = len(eager_s)
    if not pairs or stats.ratio_interval(eager_s, compiled_s, looks=stats.LOOKS).defined:
        return ()
    pair_s = calls * (eager_s[-1] + compiled_s[-1])
    enough_s = max(pair_s * (2 * stats.fewest_pairs() + warmup), 2 * max_time_s)
    note = f"{pairs} pairs of {pair_s:.2g} s have no interval"
    return (f"{note}: max_time_s={max_time_s:g} is too short, take {enough_s:.2g}",)


def change_of_pace(eager_s: Sequence[float], compiled_s: Sequence[float]) -> tuple[str, ...]:
    """Warn of absolute times; the ratio of pairs mostly survives a change of pace."""
    change = max(stats.pace_change(side_s) for side_s in (eager_s, compiled_s))
    if change < _PACE_WORTH_A_NOTE:
        return ()
    note = f"the pace changed by a factor of {change:.1f} while sampling"
    interval = stats.ratio_interval(eager_s, compiled_s, looks=stats.LOOKS)
    ratio = "the ratio is as sure as its interval is narrow"
    if interval.half_width > _WIDE:
        ratio = "and the interval of the ratio is wide"
    return (f"{note}: absolute times are doubtful, {ratio}",)


def slow_minority(eager_s: Sequence[float], compiled_s: Sequence[float]) -> tuple[str, ...]:
    """Tell what the median does not see: calls that are slow now and then."""
    if len(eager_s) < _LEAST_PAIRS_OF_TOTALS:
        return ()
    ratio = stats.ratio_interval(eager_s, compiled_s, looks=stats.LOOKS).ratio
    totals = stats.ratio_of_totals(eager_s, compiled_s)
    tails = stats.tail(compiled_s) / stats.tail(eager_s)  # noise gives both sides one
    agree = max(ratio / totals, totals / ratio) < _TOTALS_WORTH_A_NOTE
    if agree or max(tails, 1 / tails) < _TAILS_WORTH_A_NOTE:
        return ()
    side = "compiled" if totals < ratio else "eager"
    note = f"some blocks of {side} calls take much longer than most: by total time the speedup is"
    return (f"{note} {totals:.2f}x (without the slowest 5 %), by the median {ratio:.2f}x",)


def doubts(device_type: str) -> tuple[str, ...]:
    """Name settings under which the numbers are true but not those of production."""
    import torch  # never at plugin load

    blocking = os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")
    found = []
    if device_type == "cuda" and blocking:
        found.append("CUDA_LAUNCH_BLOCKING is set: each launch waits for its kernel")
    if torch.is_anomaly_enabled():
        found.append("autograd's anomaly detection is on: it slows both sides")
    return tuple(found)
