"""Frames that Dynamo gave up, and those whose compile error was kept from the caller."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

import msgspec

from pytest_compileguard.observation import CodeLine, Fallback
from pytest_compileguard.trace.compile_error import raised_at
from pytest_compileguard.trace.event import TraceEvent
from pytest_compileguard.trace.frames import Frame, failure

BREAK = "dynamo_graph_break_reason"
"""The artifact that tells of a graph break."""
_MET = re.compile(r"Observed exception\b.*\braised exception (\w+)\(", re.DOTALL)
_ASSERTED = "Assertion failed on symbolic shapes"


def left_at_a_break(events: Iterable[TraceEvent], failed: Container[str]) -> list[TraceEvent]:
    """Find frames that were given up though nothing says so: torch 2.9 only has no guards of them.

    A frame without any tensor operation has none either, but no break.
    """
    broken = {e.compile_id for e in events if e.artifact == BREAK}
    return [
        event
        for event in events
        if event.compile_id in broken
        and event.compile_id not in failed
        and (event.metrics or {}).get("guard_count", 0) is None
    ]


def skipped_frame(event: TraceEvent, frames: dict[str, Frame]) -> Fallback:
    """Tell of a frame that Dynamo gave up, and why."""
    metrics = event.metrics or {}
    told = failure(metrics).partition(": ")[2]
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
        reason=_first_sentence(told) or "Dynamo skipped the frame",
        definition=definition,
        called_from=frame.called_from,
        met=_exception_met(told),
    )


def _exception_met(told: str) -> str:
    """Name the type of the exception that Dynamo met and nothing in the frame caught."""
    if told.startswith(_ASSERTED):
        return AssertionError.__name__
    found = _MET.match(told)
    return found[1] if found else ""


def swallowed_error(
    event: TraceEvent, frames: dict[str, Frame], events: Iterable[TraceEvent]
) -> Fallback:
    """Tell an error of compiling that did not reach the caller, and where it was raised."""
    skip = skipped_frame(event, frames)
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


def is_given_up(event: TraceEvent) -> bool:
    """Whether Dynamo itself lets the frame run eager; other failures are errors."""
    fail_type = (event.metrics or {}).get("fail_type")
    return fail_type in {None, "Unsupported", "SkipFrame", "UserError"}


def _first_sentence(text: str) -> str:
    """Take the first line, and the next one where it only announces that."""
    first, _, rest = text.strip().partition("\n")
    return f"{first} {_first_sentence(rest)}".strip() if first.endswith(":") else first
