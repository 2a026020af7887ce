"""Turns torch's trace events into compile facts: no torch, no logging.

The rules are those that torch's own tools follow (``TORCH_LOGS``, tlparse), except
for the number of graph breaks. Torch reports one break again for each caller of an
inlined helper and for the helper itself, for each branch that leads to it, and for each
recompile. All of these are one site: the number is that of the places to be edited.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
from collections.abc import Iterable, Sequence

import msgspec

from pytest_compileguard.observation import (
    BreakSite,
    EntryReason,
    Fallback,
    Recompile,
    RecompileKind,
    Record,
)
from pytest_compileguard.trace.break_text import (
    BreakEvent,
    merged_sites,
    read_break,
    with_callers,
)
from pytest_compileguard.trace.dynamic_inputs import became_dynamic, free_inputs, input_values
from pytest_compileguard.trace.event import TraceEvent
from pytest_compileguard.trace.frames import Frame, failure, read_frames
from pytest_compileguard.trace.given_up import (
    BREAK,
    is_given_up,
    left_at_a_break,
    skipped_frame,
    swallowed_error,
)
from pytest_compileguard.trace.recompile_reasons import CacheEntries

RECOMPILE_LIMIT = re.compile(r"(?:recompile|cache[ _]?size)[ _]?limit", re.IGNORECASE)


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
    failed: int
    """Compiles that left no code, for whatever reason."""
    failed_again: int
    """Those of them that were to follow a guard failure."""
    failed_graphs: int
    """Those of them that had captured a graph."""
    graph_calls: tuple[int, ...]
    """The call in which each graph was compiled, at its last attempt."""


def read_trace(events: Sequence[TraceEvent], *, target: str, dynamic: bool | None) -> TraceFacts:
    """Reduce the events of one call sequence, in order, to facts.

    ``target`` names the frame that torch wraps around modules of its own classes;
    ``dynamic`` is what the test asked of ``torch.compile``. Events from before a reset are read
    apart from those after it, as torch gives the same compile ids to other code then.
    """
    parts = [list(part) for _, part in itertools.groupby(events, lambda event: event.resets)]
    read = [_read(part, target=target, dynamic=dynamic) for part in parts or [[]]]
    added = {
        name: functools.reduce(operator.add, (getattr(facts, name) for facts, _ in read))
        for name in TraceFacts.__struct_fields__
    }
    added["break_sites"] = merged_sites([event for _, breaks in read for event in breaks])
    return TraceFacts(**(added | {"limit_hit": bool(added["limit_hit"])}))


def _read(
    events: Sequence[TraceEvent], *, target: str, dynamic: bool | None
) -> tuple[TraceFacts, tuple[BreakEvent, ...]]:
    """Read events in which each compile id stands for one compile; break sites come apart."""
    frames = read_frames(events, target)
    graphs = free_inputs(events)
    failed = {e.compile_id: e for e in events if e.metrics and failure(e.metrics)}
    graph_ids = tuple(cid for cid in graphs if cid not in failed)
    limit = {cid for cid, e in failed.items() if RECOMPILE_LIMIT.search(failure(e.metrics or {}))}
    given_up = [e for cid, e in failed.items() if cid not in limit]
    given_up += left_at_a_break(events, failed)
    breaks = _distinct_breaks(events, limit, frames)
    recompiles = _recompiles(events, frames, graphs, limit, dynamic=dynamic)
    captured = {e.compile_id: e.call for e in events if "dynamo_output_graph" in e.metadata}
    facts = TraceFacts(
        graph_ids=graph_ids,
        ops=_of_each(events, graph_ids, "graph_op_count"),
        guards=sum(_of_each(events, graph_ids, "guard_count")),
        backward_graphs=len({e.compile_id for e in events if "aot_backward_graph" in e.metadata}),
        break_sites=(),
        break_events=sum(event.of_first_compile for event in breaks),
        recompiles=recompiles,
        skipped=tuple(skipped_frame(e, frames) for e in given_up if is_given_up(e)),
        raised=tuple(swallowed_error(e, frames, events) for e in given_up if not is_given_up(e)),
        limit_hit=bool(limit),
        compile_time_s=_compile_time_s(events),
        failed=len(failed),
        failed_again=len(failed.keys() & {recompile.compile_id for recompile in recompiles}),
        failed_graphs=len(graphs.keys() & failed.keys()),
        graph_calls=tuple(captured[compile_id] for compile_id in graph_ids),
    )
    return facts, breaks


def _distinct_breaks(
    events: Sequence[TraceEvent], limit: set[str], frames: dict[str, Frame]
) -> tuple[BreakEvent, ...]:
    """Break events, each place once for a frame: its recompiles, and torch, repeat them.

    One that only a recompile meets is told as well: the first compile went another way.
    """
    again = {event.compile_id for event in events if event.artifact == "recompile_reasons"}
    found: dict[tuple[str, tuple[str, int, str]], BreakEvent] = {}
    for event in events:
        if event.artifact != BREAK or event.compile_id in limit:
            continue
        frame = frames.get(event.compile_id)
        parsed = read_break(event.payload, call=event.call, frame=frame.name if frame else "?")
        if parsed is not None:
            key = (event.compile_id.partition("/")[0], parsed.site)
            known = with_callers(found.get(key, parsed), [parsed])
            first = event.compile_id not in again or (key in found and known.of_first_compile)
            found[key] = msgspec.structs.replace(known, of_first_compile=first)
    return tuple(found.values())


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
