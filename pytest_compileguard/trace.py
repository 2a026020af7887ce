"""Turns torch's trace events into compile facts. Pure: no torch, no logging.

The rules are those that torch's own tools follow (``TORCH_LOGS``, tlparse), except
for the number of graph breaks: a break in an inlined helper is reported once for
each caller and again for the helper itself. Those echoes are merged, so that the
number is that of the places somebody has to edit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_compileguard.break_text import BreakEvent, plain_function, read_break
from pytest_compileguard.guard_text import read_guard
from pytest_compileguard.observation import BreakSite, Fallback, Recompile, Record, RecompileKind
from pytest_compileguard.source import enclosing_function, source_line

# The frame that torch puts around a module whose class is torch's own.
_WRAPPER_FILE = "external_utils.py"


class TraceEvent(Record):
    """One record of torch's structured trace, and the call in which it came."""

    call: int
    metadata: dict[str, Any]
    payload: str

    @property
    def compile_id(self) -> str:
        """``frame/compile``, as in torch's logs; empty for events outside of a compile."""
        frame, number = self.metadata.get("frame_id"), self.metadata.get("frame_compile_id")
        return "" if frame is None else f"{frame}/{number}"

    @property
    def artifact(self) -> str:
        artifact = self.metadata.get("artifact")
        return str(artifact.get("name", "")) if isinstance(artifact, dict) else ""

    @property
    def metrics(self) -> dict[str, Any] | None:
        value = self.metadata.get("compilation_metrics")
        return value if isinstance(value, dict) else None


class Frame(Record):
    """The code that one compile id stands for."""

    name: str
    file: str
    line: int


class TraceFacts(Record):
    """What the trace says, before it is checked against torch's counters."""

    graph_ids: tuple[str, ...]
    """Compile ids that produced a graph and did not fail afterwards."""
    ops: int
    break_sites: tuple[BreakSite, ...]
    break_events: int
    recompiles: tuple[Recompile, ...]
    skipped: tuple[Fallback, ...]
    limit_hit: bool
    compile_time_s: float
    unexplained: tuple[str, ...]
    """Compile ids above ``n/0`` that came without a failed guard."""


def read_trace(events: Sequence[TraceEvent], *, target: str, dynamic: bool | None) -> TraceFacts:
    """Reduce the events of one call sequence, in order, to facts.

    ``target`` names the frame that torch wraps around modules of its own classes;
    ``dynamic`` is what the test asked of ``torch.compile``.
    """
    frames = _frames(events, target)
    graphs = _graphs(events)
    failed = {e.compile_id: e for e in events if e.metrics and _failure(e.metrics)}
    graph_ids = tuple(cid for cid in graphs if cid not in failed)
    breaks = _distinct_breaks(events)
    limit = {cid for cid, e in failed.items() if "limit" in _failure(e.metrics or {}).lower()}
    recompiles = _recompiles(events, frames, graphs, limit, dynamic)
    explained = {r.compile_id for r in recompiles}
    return TraceFacts(
        graph_ids=graph_ids,
        ops=_ops(events, graph_ids),
        break_sites=merge_breaks(breaks, frames),
        break_events=len(breaks),
        recompiles=recompiles,
        skipped=tuple(_skip(e, frames) for cid, e in failed.items() if cid not in limit),
        limit_hit=bool(limit),
        compile_time_s=_compile_time_s(events),
        unexplained=tuple(
            e.compile_id
            for e in events
            if e.metrics and not _is_first(e.compile_id) and e.compile_id not in explained
        ),
    )


def merge_breaks(events: Iterable[BreakEvent], frames: dict[str, Frame]) -> tuple[BreakSite, ...]:
    """Merge distinct break events of first compiles into sites.

    An event is *own* if its line lies in the function that was compiled; each own
    event is a site. An event of a caller (an echo) is a site only if the callee
    never reported the same file, line and reason, and then only once.
    """
    events = tuple(events)
    total = Counter(event.site for event in events)
    own = {event.site for event in events if _is_own(event, frames)}
    sites: list[BreakSite] = []
    seen: set[tuple[str, int, str]] = set()
    for event in events:
        again = event.site in seen
        if _is_own(event, frames) or (event.site not in own and not again):
            sites.append(_site(event, 1 if again else total[event.site]))
            seen.add(event.site)
    return tuple(sites)


def _distinct_breaks(events: Iterable[TraceEvent]) -> tuple[BreakEvent, ...]:
    """Break events of first compiles; torch may report one twice for the same compile."""
    found: dict[tuple[str, tuple[str, int, str]], BreakEvent] = {}
    for event in events:
        if event.artifact == "dynamo_graph_break_reason" and _is_first(event.compile_id):
            parsed = read_break(event.payload, compile_id=event.compile_id, call=event.call)
            found.setdefault((parsed.compile_id, parsed.site), parsed)
    return tuple(found.values())


def _site(event: BreakEvent, events: int) -> BreakSite:
    return BreakSite(
        file=event.file,
        line=event.line,
        function=event.function,
        source=source_line(event.file, event.line),
        reason=event.reason,
        id=event.id,
        hint=event.hint,
        events=events,
        call=event.call,
    )


def _is_own(event: BreakEvent, frames: dict[str, Frame]) -> bool:
    """Whether the line that breaks belongs to the function that was being compiled.

    Names do not tell: all modules call theirs ``forward``. They serve only where the
    source can't be read.
    """
    frame = frames.get(event.compile_id)
    if frame is None:
        return True
    if frame.file != event.file:
        return False
    compiled = enclosing_function(frame.file, frame.line)
    breaking = enclosing_function(event.file, event.line)
    if compiled is None or breaking is None:
        return frame.name == event.function
    return compiled == breaking


def _is_first(compile_id: str) -> bool:
    """Whether this is the first compile of its frame; a break of a recompile is no new one."""
    return compile_id == "" or compile_id.endswith("/0")


def _frames(events: Iterable[TraceEvent], target: str) -> dict[str, Frame]:
    frames: dict[str, Frame] = {}
    for event in events:
        metrics = event.metrics
        if metrics is None or not metrics.get("co_name"):
            continue
        name, file = str(metrics["co_name"]), str(metrics.get("co_filename") or "?")
        if name == "inner" and file.endswith(_WRAPPER_FILE):
            name = target
        frames[event.compile_id] = Frame(
            name=plain_function(name), file=file, line=int(metrics.get("co_firstlineno") or 0)
        )
    return frames


def _graphs(events: Iterable[TraceEvent]) -> dict[str, dict[str, Any]]:
    """Sizes of the last attempt of each compile id: Dynamo may restart the analysis."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        if "dynamo_output_graph" in event.metadata:
            graph = event.metadata["dynamo_output_graph"]
            found[event.compile_id] = graph.get("sizes", {}) if isinstance(graph, dict) else {}
    return found


def _failure(metrics: dict[str, Any]) -> str:
    if metrics.get("fail_type"):
        return f"{metrics['fail_type']}: {metrics.get('fail_reason') or ''}".strip()
    return "SkipFrame" if metrics.get("has_guarded_code") is False else ""


def _ops(events: Iterable[TraceEvent], graph_ids: tuple[str, ...]) -> int:
    counts = {e.compile_id: e.metrics.get("graph_op_count") or 0 for e in events if e.metrics}
    return sum(int(counts.get(compile_id, 0)) for compile_id in graph_ids)


def _compile_time_s(events: Iterable[TraceEvent]) -> float:
    total_us = 0
    for event in events:
        for name in ("compilation_metrics", "bwd_compilation_metrics"):
            metrics = event.metadata.get(name)
            if isinstance(metrics, dict):
                observing_us = int(metrics.get("structured_logging_overhead_us") or 0)
                total_us += max(int(metrics.get("duration_us") or 0) - observing_us, 0)
    return total_us / 1e6


def _skip(event: TraceEvent, frames: dict[str, Frame]) -> Fallback:
    metrics = event.metrics or {}
    frame = frames.get(event.compile_id) or Frame(name="?", file="?", line=0)
    return Fallback(
        kind="frame_skipped",
        call=event.call,
        frame=frame.name,
        file=str(metrics.get("fail_user_frame_filename") or frame.file),
        line=int(metrics.get("fail_user_frame_lineno") or frame.line),
        reason=_failure(metrics).partition(": ")[2].split("\n")[0] or "Dynamo skipped the frame",
    )


def _recompiles(
    events: Iterable[TraceEvent],
    frames: dict[str, Frame],
    graphs: dict[str, dict[str, Any]],
    limit: set[str],
    dynamic: bool | None,
) -> tuple[Recompile, ...]:
    found = []
    for event in events:
        if event.artifact != "recompile_reasons":
            continue
        frame_id = event.compile_id.split("/")[0]
        frame = frames.get(f"{frame_id}/0") or frames.get(event.compile_id)
        failure = read_guard(event.payload)
        kind = failure.kind
        if dynamic is not False and _became_dynamic(event.compile_id, graphs):
            kind = "automatic_dynamic"
        found.append(_recompile(event, frame, failure, kind, refused=event.compile_id in limit))
    return tuple(found)


def _recompile(
    event: TraceEvent, frame: Frame | None, failure: Any, kind: RecompileKind, *, refused: bool
) -> Recompile:
    return Recompile(
        call=event.call,
        frame=frame.name if frame else "?",
        file=frame.file if frame else "?",
        line=frame.line if frame else 0,
        compile_id=event.compile_id,
        guard=failure.text,
        subject=failure.subject,
        before=failure.before,
        after=failure.after,
        kind=kind,
        refused=refused,
    )


def _became_dynamic(compile_id: str, graphs: dict[str, dict[str, Any]]) -> bool:
    """Whether this compile has a symbolic size, or a number as input, that none before had."""
    frame, _, number = compile_id.partition("/")
    before = [graphs.get(f"{frame}/{n}", {}) for n in range(int(number or 0))]
    return _freedom(graphs.get(compile_id, {})) > max(map(_freedom, before), default=0)


def _freedom(sizes: dict[str, Any]) -> int:
    """Count symbolic sizes and lifted numbers among the inputs of a graph."""
    symbols = {s for size in sizes.values() for s in _symbols(size)}
    lifted = [name for name, size in sizes.items() if name.startswith("l_") and size == []]
    return len(symbols) + len(lifted)


def _symbols(size: object) -> list[str]:
    dimensions = size if isinstance(size, list) else []
    return [s for s in map(str, dimensions) if re.search(r"\b[su]\d+\b", s)]
