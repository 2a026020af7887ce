"""What of a verdict is stored: its entries for the files of a baseline. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from pytest_compileguard.baseline.entries import (
    FactsEntry,
    Recorded,
    TimingEntry,
    printable,
    significant,
)
from pytest_compileguard.environment import Environment
from pytest_compileguard.errors import BaselineError
from pytest_compileguard.finding import Speed, Verdict
from pytest_compileguard.metrics import facts_of
from pytest_compileguard.observation import (
    BreakSite,
    CompileObservation,
    NotObserved,
    SpeedObservation,
)

_INSTALLED = ("/site-packages/", "/dist-packages/")
_MOST_INPUTS = 20
_DIGEST_LENGTH = 12
_NOISY = 1.3
"""How many times the lower end of its interval the upper end of a timing worth storing is."""


def facts_entry(verdict: Verdict, rootpath: Path, commit: str | None = None) -> FactsEntry:
    """Reduce a verdict to its facts; places in them are relative, as machines differ.

    Raises:
        BaselineError: The verdict saw no compilation.
    """
    seen = verdict.observation.compile
    if isinstance(seen, NotObserved):
        raise BaselineError(f"{printable(verdict.key)}: no facts to record: {seen.reason}")
    sites = sorted(seen.break_sites, key=lambda site: (site.file, site.line))
    numbers: dict[str, Any] = facts_of(seen)
    return FactsEntry(
        **numbers,
        breaks=tuple(_break_line(site, rootpath) for site in sites),
        backend=printable(verdict.backend),
        mode=verdict.mode,
        calls=seen.calls,
        inputs=inputs_of(seen.inputs),
        recorded=_recorded(verdict, commit),
    )


def timing_entry(verdict: Verdict, commit: str | None = None) -> TimingEntry | str | None:
    """Reduce a verdict to its timing.

    Returns:
        The entry; or why this timing can't serve as a baseline; or ``None`` if nothing was timed.
    """
    speed, seen, compiled = verdict.speed, verdict.observation.speed, verdict.observation.compile
    if isinstance(seen, SpeedObservation) and seen.void is not None:
        return f"the samples don't count: {seen.void}"
    if speed is None:
        return None
    if isinstance(seen, SpeedObservation) and seen.disturbed:
        return f"the samples were disturbed: {' and '.join(seen.disturbed)}"
    if not _is_sound(speed):
        return f"{speed.pairs} pairs give no interval"
    return TimingEntry(
        speedup=significant(speed.speedup),
        speedup_low=significant(speed.speedup_low),
        speedup_high=significant(speed.speedup_high),
        eager_ms=significant(speed.eager_ms),
        compiled_ms=significant(speed.compiled_ms),
        pairs=speed.pairs,
        clock=speed.clock,
        backend=printable(verdict.backend),
        mode=verdict.mode,
        recorded=_recorded(verdict, commit),
        inputs=None if isinstance(compiled, NotObserved) else inputs_of(compiled.inputs),
        code=None if isinstance(compiled, NotObserved) else _code(compiled),
        device_speedup=_device_speedup(verdict.device_speed),
    )


def _code(seen: CompileObservation) -> dict[str, str] | None:
    return {code.key: code.digest for code in seen.code} or None


def _device_speedup(speed: Speed | None) -> float | None:
    return significant(speed.speedup) if speed is not None and _is_sound(speed) else None


def why_noisy(entry: TimingEntry) -> str:
    """Say why later runs can hardly be held to a timing; empty: they can."""
    factor = entry.speedup_high / entry.speedup_low
    return f"its interval spans a factor of {factor:.2f}" if factor > _NOISY else ""


def environment_of(verdict: Verdict) -> Environment:
    """Say where a verdict was made.

    Raises:
        BaselineError: It does not know.
    """
    if verdict.environment is None:
        raise BaselineError(f"{printable(verdict.key)}: nothing to record: no device was seen")
    return verdict.environment


def _is_sound(speed: Speed) -> bool:
    """Whether every number is a positive finite one, in order."""
    numbers = (speed.speedup_low, speed.speedup, speed.speedup_high)
    times = (speed.eager_ms, speed.compiled_ms)
    finite = all(0 < number < math.inf for number in (*numbers, *times))
    return finite and sorted(numbers) == list(numbers)


def inputs_of(calls: Sequence[str]) -> tuple[str, ...]:
    """Shorten the inputs of a call sequence; what is left out still counts, by a digest."""
    grouped = [(text, sum(1 for _ in equal)) for text, equal in groupby(calls)]
    lines = [text if count == 1 else f"{count} x {text}" for text, count in grouped]
    shown = [printable(line) for line in lines[:_MOST_INPUTS]]
    if rest := "\n".join(lines[_MOST_INPUTS:]):
        digest = hashlib.sha256(rest.encode("utf-8", "backslashreplace")).hexdigest()
        shown.append(f"{len(lines) - _MOST_INPUTS} more: {digest[:_DIGEST_LENGTH]}")
    return tuple(shown)


def _recorded(verdict: Verdict, commit: str | None) -> Recorded:
    environment = environment_of(verdict)
    return Recorded(
        torch=environment.torch,
        python=environment.python,
        plugin=environment.plugin,
        device=environment.device_name,
        triton=environment.triton,
        cuda=environment.cuda,
        driver=environment.driver,
        platform=environment.platform,
        commit=commit,
        limits=verdict.limits,
    )


def _break_line(site: BreakSite, rootpath: Path) -> str:
    place = f"{portable(site.file, rootpath)}:{site.line} in {site.function}"
    identifier = f" ({site.id})" if site.id else ""
    allowed = ", allowed" if site.allowed else ""
    return printable(f"{place}: {' '.join(site.reason.split())}{identifier}{allowed}")


def portable(file: str, rootpath: Path) -> str:
    """Cut off what differs between machines: the root folder, or where packages are installed."""
    path = file.replace("\\", "/")
    for folder in _INSTALLED:
        if folder in path:
            return path.rpartition(folder)[2]
    for root in _roots(rootpath):
        path = path.removeprefix(root)
    return path


@lru_cache(maxsize=8)
def _roots(rootpath: Path) -> tuple[str, ...]:
    return tuple(f"{root.as_posix().rstrip('/')}/" for root in (rootpath, rootpath.resolve()))
