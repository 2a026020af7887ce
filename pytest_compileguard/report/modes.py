"""The comparison of the modes that one test was run in: which one wins, by what memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import inf

from pytest_compileguard.finding import Verdict
from pytest_compileguard.findings.speed import speed_text
from pytest_compileguard.findings.wording import bytes_text, factor_text, seconds_text
from pytest_compileguard.observation import (
    CompileObservation,
    LaunchObservation,
    MemoryObservation,
)
from pytest_compileguard.report.labels import verdict_label
from pytest_compileguard.report.plain_text import plain_line

_UNKNOWN = "-"
_HEADING = ("mode", "speedup", "compiled", "compiling", "peak memory", "kernels", "verdict")
_NOT_COMPARED = (
    "compiling: a mode may take from the cache what an earlier one has compiled, so these times "
    "don't compare"
)
_MOST = 240
_GAP = "  "


def mode_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Make one table for each check that was made in several modes; empty if none was."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        if (test := _without_mode(verdict)) is not None:
            groups.setdefault((test, verdict.name), []).append(verdict)
    lines = []
    for (test, name), group in groups.items():
        if len({verdict.mode for verdict in group}) > 1:
            lines += [f"modes of {test} ({name})", *_table(group), f"{_GAP}{_winner(group)}"]
            lines += [f"{_GAP}{_NOT_COMPARED}"] if sum(map(_compiled, group)) > 1 else []
    return [plain_line(line, _MOST) for line in lines]


def _without_mode(verdict: Verdict) -> str | None:
    """Take the mode out of the parameters of a node id; ``None`` if it is none of them."""
    head, bracket, tail = verdict.nodeid.partition("[")
    parameters, mode = tail.removesuffix("]"), verdict.mode
    if not bracket or mode is None:
        return None
    if parameters == mode:
        return head
    if parameters.startswith(f"{mode}-"):
        return f"{head}[{parameters.removeprefix(f'{mode}-')}]"
    if parameters.endswith(f"-{mode}"):
        return f"{head}[{parameters.removesuffix(f'-{mode}')}]"
    before, between, after = parameters.partition(f"-{mode}-")
    return f"{head}[{before}-{after}]" if between else None


def _table(group: Sequence[Verdict]) -> list[str]:
    rows = [_HEADING, *map(_row, group)]
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    return [_GAP + _GAP.join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _row(verdict: Verdict) -> tuple[str, ...]:
    speed, seen = verdict.speed, verdict.observation
    compiled, memory, launches = seen.compile, seen.memory, seen.launches
    return (
        str(verdict.mode),
        _UNKNOWN if speed is None else speed_text(speed),
        _UNKNOWN if speed is None else f"{speed.compiled_ms:.3f} ms",
        seconds_text(compiled.compile_time_s)
        if isinstance(compiled, CompileObservation)
        else _UNKNOWN,
        bytes_text(memory.compiled_bytes) if isinstance(memory, MemoryObservation) else _UNKNOWN,
        str(launches.compiled_kernels) if isinstance(launches, LaunchObservation) else _UNKNOWN,
        verdict_label(verdict.outcome, fails=verdict.fails, expected=verdict.expected),
    )


def _winner(group: Sequence[Verdict]) -> str:
    """Name the fastest mode of those that do not fail, if the intervals tell one."""
    timed = [v for v in group if v.speed is not None and not v.fails]
    if not timed:
        that = "that passed " if any(v.fails for v in group) else ""
        lacks = "passed" if all(v.fails for v in group) else f"{that}was timed"
        return f"no mode {lacks}, so none wins"
    among = " of those that passed" if any(v.fails for v in group) else ""
    best = max(timed, key=_speedup)
    # Eager is the same in all modes: the greatest speedup is that of the fastest code.
    rivals = [v for v in timed if v is not best and _high(v) >= _low(best)]
    text = f"fastest{among}: {best.mode}, {factor_text(_speedup(best))}"
    if rivals:
        names = " and ".join(str(v.mode) for v in rivals)
        text = (
            f"fastest within noise{among}: {best.mode}, {factor_text(_speedup(best))}, "
            f"as is {names}"
        )
    return text + _price(best, group)


def _price(best: Verdict, group: Sequence[Verdict]) -> str:
    """Say what memory the fastest mode needs beside the one that needs least."""
    least = min((v for v in group if not v.fails), key=_memory_bytes)
    more_bytes = _memory_bytes(best) - _memory_bytes(least)
    if not 0 < more_bytes < inf:
        return ""
    return f"; needs {bytes_text(int(more_bytes))} more memory than {least.mode}"


def _memory_bytes(verdict: Verdict) -> float:
    memory = verdict.observation.memory
    return memory.compiled_bytes if isinstance(memory, MemoryObservation) else inf


def _speedup(verdict: Verdict) -> float:
    return 0.0 if verdict.speed is None else verdict.speed.speedup


def _low(verdict: Verdict) -> float:
    return 0.0 if verdict.speed is None else verdict.speed.speedup_low


def _high(verdict: Verdict) -> float:
    return 0.0 if verdict.speed is None else verdict.speed.speedup_high


def _compiled(verdict: Verdict) -> bool:
    return isinstance(verdict.observation.compile, CompileObservation)
