"""Enters the samples of both sides into pytest-benchmark's session, if there is one.

So its tables, ``--benchmark-json``, ``--benchmark-compare``, ``--benchmark-histogram`` and all
tools that read its files work on the times of checks. Each check is a group of two benchmarks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pytest_compileguard.finding import Verdict
from pytest_compileguard.metrics import facts_of
from pytest_compileguard.observation import CompileObservation, SpeedObservation

_WANTED = ("json", "save", "autosave", "compare", "compare_fail", "histogram", "only", "verbose")
"""Options of pytest-benchmark by which a user asks for what it makes of the times."""


@dataclass(frozen=True)
class TimedSide:
    """What pytest-benchmark asks of the fixture of a benchmark, for one side of a check."""

    name: str
    fullname: str
    group: str
    extra_info: dict[str, Any]
    param: str | None = None
    params: dict[str, Any] | None = None
    cprofile_stats: None = None
    has_error: bool = False
    samples_s: tuple[float, ...] = field(default=(), repr=False)


def enter(session: Any, verdict: Verdict) -> None:
    """Enter both sides of a check into a ``BenchmarkSession``; nothing if its samples don't count.

    ``session`` is that of pytest-benchmark, which has no public way to take samples in; it is
    ``None`` where the plugin is absent. Where benchmarks are switched off (``--benchmark-disable``,
    ``--benchmark-skip``, or by pytest-xdist), nothing is entered; nor where nobody asked for its
    files and no test is a benchmark of the user's: its tables would be all that comes of it.
    """
    if session is None or session.disabled or session.skip:
        return
    if not session.benchmarks and not any(getattr(session, name, None) for name in _WANTED):
        return
    from pytest_benchmark import stats  # noqa: PLC0415  # absent with -p no:benchmark

    metadata: Any = stats.Metadata  # untyped

    for side, iterations in _sides(verdict):
        options = {"timer": side.extra_info["clock"], "disable_gc": True, "warmup": True}
        entry = metadata(side, iterations=iterations, options=options)
        for sample_s in side.samples_s:
            entry.update(sample_s * iterations)  # it divides by them
        session.benchmarks.append(entry)


def _sides(verdict: Verdict) -> Iterator[tuple[TimedSide, int]]:
    seen = verdict.observation.speed
    if not isinstance(seen, SpeedObservation) or seen.void is not None or not seen.eager_s:
        return
    test = verdict.nodeid.rpartition("::")[2]
    group = f"{verdict.nodeid} {verdict.name}"
    for side, samples_s in (("eager", seen.eager_s), ("compiled", seen.compiled_s)):
        label = f"[{verdict.name}, {side}]"
        yield (
            TimedSide(
                name=test + label,
                fullname=verdict.nodeid + label,
                group=group,
                extra_info={"side": side, **_facts(verdict, seen)},
                samples_s=samples_s,
            ),
            seen.calls_per_block,
        )


def _facts(verdict: Verdict, seen: SpeedObservation) -> dict[str, Any]:
    compiled, speed = verdict.observation.compile, verdict.speed
    facts: dict[str, Any] = {
        "plugin": "compileguard",
        "outcome": verdict.outcome,
        "backend": verdict.backend,
        "mode": verdict.mode,
        "clock": seen.clock,
        "device": seen.device,
    }
    if isinstance(compiled, CompileObservation):
        facts |= facts_of(compiled)
    if speed is not None:
        facts["speedup"] = speed.speedup
        facts["speedup_interval"] = [speed.speedup_low, speed.speedup_high]
    if verdict.device_speed is not None:
        facts["device_speedup"] = verdict.device_speed.speedup
    return facts
