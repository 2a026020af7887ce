"""Turns torch's trace events into compile facts: no torch, no logging.

The rules are those that torch's own tools follow (``TORCH_LOGS``, tlparse), except
for the number of graph breaks. Torch reports one break again for each caller of an
inlined helper and for the helper itself, for each branch that leads to it, and for each
recompile. All of these are one site: the number is that of the places to be edited.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from typing import Any

import msgspec

from pytest_compileguard.code_origin import StackLine, is_users, nearest_line
from pytest_compileguard.observation import (
    BreakSite,
    CodeLine,
    EntryReason,
    Fallback,
    Recompile,
    RecompileKind,
    Record,
)
from pytest_compileguard.trace.break_text import (
    BreakEvent,
    merged_sites,
    plain_function,
    read_break,
    with_callers,
)
from pytest_compileguard.trace.compile_error import raised_at
from pytest_compileguard.trace.dynamic_inputs import became_dynamic, free_inputs, input_values
from pytest_compileguard.trace.event import TraceEvent
from pytest_compileguard.trace.recompile_reasons import CacheEntries

WRAPPER_FILE = "external_utils.py"
"""Holds the frame that torch puts around a module whose class is torch's own, and around what
is disabled."""
_STACK_LINE = re.compile(r"Line: (?P<line>\d+), Name: (?P<name>.+?), Filename: (?P<file>.+)")
_BREAK = "dynamo_graph_break_reason"
RECOMPILE_LIMIT = re.compile(r"(?:recompile|cache[ _]?size)[ _]?limit", re.IGNORECASE)


class Frame(Record):
    """The code that one compile id stands for."""

    name: str
    file: str
    line: int
    called_from: CodeLine | None = None
    """Where it is code of others: the user's line that leads to it."""


class TraceFacts(Record):
    """What the trace says, before it is checked against torch's counters."""

    graph_ids: tuple[str, ...]
    """Compile ids that produced a graph and did not fail afterwards."""
    ops: tuple[int, ...]
    """Of each graph."""
    guards: int
    backward_graphs: int
    break_sites: tuple[BreakSite, ...]
    break_events: int
    recompiles: tuple[Recompile, ...]
    """With the guard that failed. A compile id above ``n/0`` alone is none: torch also counts on
    for closures that it keeps apart, and for instances that it matches by identity."""
    skipped: tuple[Fallback, ...]
    raised: tuple[Fallback, ...]
    """Frames whose compilation ended in an error that Dynamo hands on, unless told otherwise."""
    limit_hit: bool
    compile_time_s: float
    failed: frozenset[str]
    """Compile ids that left no code, for whatever reason."""
    failed_graphs: int
    """Those of them that had captured a graph."""


def read_trace(events: Sequence[TraceEvent], *, target: str, dynamic: bool | None) -> TraceFacts:
    """Reduce the events of one call sequence, in order, to facts.

    ``target`` names the frame that torch wraps around modules of its own classes;
    ``dynamic`` is what the test asked of ``torch.compile``.
    """
    frames = _frames(events, target)
    graphs = free_inputs(events)
    failed = {e.compile_id: e for e in events if e.metrics and _failure(e.metrics)}
    graph_ids = tuple(cid for cid in graphs if cid not in failed)
    limit = {cid for cid, e in failed.items() if RECOMPILE_LIMIT.search(_failure(e.metrics or {}))}
    given_up = [e for cid, e in failed.items() if cid not in limit]
    given_up += _left_at_a_break(events, failed)
    breaks = _distinct_breaks(events, limit, frames)
    recompiles = _recompiles(events, frames, graphs, limit, dynamic=dynamic)
    return TraceFacts(
        graph_ids=graph_ids,
        ops=_of_each(events, graph_ids, "graph_op_count"),
        guards=sum(_of_each(events, graph_ids, "guard_count")),
        backward_graphs=len({e.compile_id for e in events if "aot_backward_graph" in e.metadata}),
        break_sites=merged_sites(breaks),
        break_events=sum(event.of_first_compile for event in breaks),
        recompiles=recompiles,
        skipped=tuple(_skip(e, frames) for e in given_up if _is_given_up(e)),
        raised=tuple(_swallowed(e, frames, events) for e in given_up if not _is_given_up(e)),
        limit_hit=bool(limit),
        compile_time_s=_compile_time_s(events),
        failed=frozenset(failed),
        failed_graphs=len(graphs.keys() & failed.keys()),
    )


def _left_at_a_break(events: Iterable[TraceEvent], failed: Container[str]) -> list[TraceEvent]:
    """Find frames that were given up though nothing says so: torch 2.9 only has no guards of them.

    A frame without any tensor operation has none either, but no break.
    """
    broken = {e.compile_id for e in events if e.artifact == _BREAK}
    return [
        event
        for event in events
        if event.compile_id in broken
        and event.compile_id not in failed
        and (event.metrics or {}).get("guard_count", 0) is None
    ]


def _distinct_breaks(
    events: Sequence[TraceEvent], limit: set[str], frames: dict[str, Frame]
) -> tuple[BreakEvent, ...]:
    """Break events, each place once for a frame: its recompiles, and torch, repeat them.

    One that only a recompile meets is told as well: the first compile went another way.
    """
    again = {event.compile_id for event in events if event.artifact == "recompile_reasons"}
    found: dict[tuple[str, tuple[str, int, str]], BreakEvent] = {}
    for event in events:
        if event.artifact != _BREAK or event.compile_id in limit:
            continue
        frame = frames.get(event.compile_id)
        parsed = read_break(event.payload, call=event.call, frame=frame.name if frame else "?")
        if parsed is not None:
            key = (event.compile_id.partition("/")[0], parsed.site)
            known = with_callers(found.get(key, parsed), [parsed])
            first = event.compile_id not in again or (key in found and known.of_first_compile)
            found[key] = msgspec.structs.replace(known, of_first_compile=first)
    return tuple(found.values())


def _frames(events: Iterable[TraceEvent], target: str) -> dict[str, Frame]:
    frames: dict[str, Frame] = {}
    for event in events:
        metrics = event.metrics
        if metrics is None or not metrics.get("co_name"):
            continue
        name, file = str(metrics["co_name"]), str(metrics.get("co_filename") or "?")
        if name == "inner" and file.endswith(WRAPPER_FILE):
            name = target
        frames[event.compile_id] = Frame(
            name=plain_function(name),
            file=file,
            line=int(metrics.get("co_firstlineno") or 0),
            called_from=None if is_users(file) else nearest_line(_stack(metrics)),
        )
    return frames


def _stack(metrics: dict[str, Any]) -> list[StackLine]:
    """Read from where a frame was called; torch before 2.11 does not tell."""
    found = (_STACK_LINE.fullmatch(str(text)) for text in metrics.get("stack_trace") or ())
    return [(m["file"], int(m["line"]), plain_function(m["name"])) for m in found if m]


def _failure(metrics: dict[str, Any]) -> str:
    if metrics.get("fail_type"):
        return f"{metrics['fail_type']}: {metrics.get('fail_reason') or ''}".strip()
    return "SkipFrame" if metrics.get("has_guarded_code") is False else ""


def _of_each(
    events: Iterable[TraceEvent], graph_ids: tuple[str, ...], number: str
) -> tuple[int, ...]:
    """Read one of torch's numbers for each graph."""
    found = {e.compile_id: e.metrics.get(number) or 0 for e in events if e.metrics}
    return tuple(int(found.get(compile_id, 0)) for compile_id in graph_ids)


def _compile_time_s(events: Iterable[TraceEvent]) -> float:
    total_us = 0
    for event in events:
        for name in ("compilation_metrics", "bwd_compilation_metrics"):
            metrics = event.metadata.get(name)
            if isinstance(metrics, dict):
                duration_us = int(metrics.get("duration_us") or 0)
                observing_us = int(metrics.get("structured_logging_overhead_us") or 0)
                # Torch also counts what it logged outside of this compile.
                total_us += duration_us - (observing_us if observing_us < duration_us else 0)
    return total_us / 1e6


def _skip(event: TraceEvent, frames: dict[str, Frame]) -> Fallback:
    metrics = event.metrics or {}
    frame = frames.get(event.compile_id) or Frame(name="?", file="?", line=0)
    definition = CodeLine(
        file=frame.file, line=frame.line, function=frame.name, source="", role="definition"
    )
    return Fallback(
        kind="frame_skipped",
        call=event.call,
        frame=frame.name,
        file=str(metrics.get("fail_user_frame_filename") or frame.file),
        line=int(metrics.get("fail_user_frame_lineno") or frame.line),
        reason=_first_sentence(_failure(metrics).partition(": ")[2]) or "Dynamo skipped the frame",
        definition=definition,
        called_from=frame.called_from,
    )


def _swallowed(
    event: TraceEvent, frames: dict[str, Frame], events: Iterable[TraceEvent]
) -> Fallback:
    """Tell an error of compiling that did not reach the caller, and where it was raised."""
    skip = _skip(event, frames)
    tracebacks = [
        e.payload
        for e in events
        if e.artifact == "dynamo_error" and (e.compile_id, e.call) == (event.compile_id, event.call)
    ]
    suppressed = (event.metrics or {}).get("config_suppress_errors")
    return msgspec.structs.replace(
        skip,
        kind="error_suppressed" if suppressed else "error_caught",
        raised=raised_at(tracebacks[-1]) if tracebacks else None,
    )


def _is_given_up(event: TraceEvent) -> bool:
    """Whether Dynamo itself lets the frame run eager; other failures are errors."""
    fail_type = (event.metrics or {}).get("fail_type")
    return fail_type in {None, "Unsupported", "SkipFrame", "UserError"}


def _first_sentence(text: str) -> str:
    """Take the first line, and the next one where it only announces that."""
    first, _, rest = text.strip().partition("\n")
    return f"{first} {_first_sentence(rest)}".strip() if first.endswith(":") else first


def _recompiles(
    events: Iterable[TraceEvent],
    frames: dict[str, Frame],
    graphs: dict[str, int],
    limit: set[str],
    *,
    dynamic: bool | None,
) -> tuple[Recompile, ...]:
    found = []
    events = list(events)
    guards = {e.compile_id: e.payload for e in events if "dynamo_cpp_guards_str" in e.metadata}
    entries = CacheEntries(guards, input_values(events))
    for event in events:
        if event.artifact != "recompile_reasons":
            continue
        frame_id = event.compile_id.split("/")[0]
        frame = frames.get(event.compile_id) or frames.get(f"{frame_id}/0")
        reasons = entries.reasons(event.compile_id, event.payload)
        kind = reasons[0].kind
        if (
            kind in {"size", "value"}
            and not reasons[0].subject.startswith("len(")
            and dynamic is not False
            and (
                became_dynamic(event.compile_id, graphs)
                or entries.became_free(event.compile_id, reasons[0])
            )
        ):
            kind = "automatic_dynamic"
        found.append(_recompile(event, frame, reasons, kind, refused=event.compile_id in limit))
    return tuple(found)


def _recompile(
    event: TraceEvent,
    frame: Frame | None,
    reasons: Sequence[EntryReason],
    kind: RecompileKind,
    *,
    refused: bool,
) -> Recompile:
    telling, *others = reasons
    return Recompile(
        call=event.call,
        frame=frame.name if frame else "?",
        file=frame.file if frame else "?",
        line=frame.line if frame else 0,
        compile_id=event.compile_id,
        guard=telling.guard,
        subject=telling.subject,
        before=telling.before,
        after=telling.after,
        kind=kind,
        refused=refused,
        entry=telling.entry,
        called_from=frame.called_from if frame else None,
        other_reasons=tuple(others),
    )
