"""The story of a call sequence, call by call: compiled, reused, recompiled, broke, differed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Literal

from pytest_compileguard.findings.breaks import caller_texts
from pytest_compileguard.findings.recompile_text import (
    reasons_text,
    recompile_phrase,
    recompile_place,
)
from pytest_compileguard.findings.wording import (
    counted,
    fallback_place,
    frame_text,
)
from pytest_compileguard.observation import Record
from pytest_compileguard.report.contract import CheckReport

EventKind = Literal["compiled", "reused", "unchanged", "recompiled", "broke", "eager", "differed"]
_SPARED = 1
"""So many calls in a row that reused everything are listed one by one."""


class Event(Record, frozen=True):
    """One thing that happened in a call."""

    kind: EventKind
    text: str
    place: str = ""
    source: str = ""
    allowed: bool = False


class Chapter(Record, frozen=True):
    """One call, or several in a row in which nothing new happened."""

    title: str
    events: tuple[Event, ...]


def story(check: CheckReport) -> tuple[Chapter, ...]:
    """Tell what happened in each call; empty if nothing was observed."""
    calls = check.observed.calls or 0
    by_call = [(call, tuple(_events(check, call))) for call in range(calls)]
    chapters: list[Chapter] = []
    for _, group in groupby(by_call, key=lambda pair: _quiet(pair[1])):
        members = list(group)
        events = members[0][1]
        if _quiet(events) and len(members) > _SPARED:
            first, last = members[0][0] + 1, members[-1][0] + 1
            chapters.append(Chapter(title=f"calls {first} to {last}", events=events))
        else:
            chapters += [Chapter(title=f"call {call + 1}", events=e) for call, e in members]
    return tuple(chapters)


def _quiet(events: tuple[Event, ...]) -> bool:
    return [event.kind for event in events] in (["reused"], ["unchanged"])


def _events(check: CheckReport, call: int) -> Iterator[Event]:
    found = [*_breaks(check, call), *_recompiles(check, call)]
    yield from _compiled(check, call)
    yield from found
    yield from _fallbacks(check, call)
    if not found and not _graphs(check, call):
        yield _nothing_new(check)
    for mismatch in check.mismatches:
        if mismatch.call == call:
            yield Event(kind="differed", text=f"{mismatch.path}: {mismatch.message}")


def _graphs(check: CheckReport, call: int) -> int:
    return check.graphs_per_call[call] if call < len(check.graphs_per_call) else 0


def _compiled(check: CheckReport, call: int) -> Iterator[Event]:
    if graphs := _graphs(check, call):
        yield Event(kind="compiled", text=counted(graphs, "graph"))


def _breaks(check: CheckReport, call: int) -> Iterator[Event]:
    for site in check.graph_breaks:
        if site.call == call:
            why = f"{site.reason} ({site.id})" if site.id else site.reason
            yield Event(
                kind="broke",
                text="; ".join((f"{why}: {site.hint}" if site.hint else why, *caller_texts(site))),
                place=frame_text(site.file, site.line, site.function),
                source=site.source,
                allowed=site.allowed,
            )


def _recompiles(check: CheckReport, call: int) -> Iterator[Event]:
    for recompile in check.recompiles:
        if recompile.call == call:
            refused = "refused by the recompile limit: " if recompile.refused else ""
            yield Event(
                kind="recompiled",
                text=f"{refused}{recompile_phrase(recompile).partition(', ')[2]}",
                place=recompile_place(recompile),
                source=reasons_text(recompile),
            )


def _fallbacks(check: CheckReport, call: int) -> Iterator[Event]:
    for fallback in check.fallbacks:
        if fallback.call == call or (fallback.call is None and call == 0):
            yield Event(
                kind="eager",
                text=f"{fallback.kind.replace('_', ' ')}: {fallback.reason}",
                place=fallback_place(fallback),
            )


def _nothing_new(check: CheckReport) -> Event:
    """Say that code was reused only where nothing tells of eager calls."""
    kinds = {fallback.kind for fallback in check.fallbacks}
    sound = check.observed.graphs and not kinds - {"frame_skipped"} and not check.observed.error
    if sound:
        return Event(kind="reused", text="the compiled code")
    return Event(kind="unchanged", text="nothing new was compiled")
