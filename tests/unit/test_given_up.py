"""Frames that Dynamo gives up, as traces of torch 2.9 and 2.10 show them: by what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_compileguard.trace.compiles import read_trace
from pytest_compileguard.trace.event import TraceEvent

BREAK = """\
Graph break in user code at net.py:4
Graph Break Reason: Call to `torch._dynamo.graph_break()`
User code traceback:
  File "net.py", line 4, in loop
    graph_break()
"""


def events(*, breaks: bool, guards: int | None) -> list[TraceEvent]:
    frame = {"frame_id": 0, "frame_compile_id": 0}
    metrics: dict[str, Any] = {
        "co_name": "loop",
        "co_filename": "net.py",
        "co_firstlineno": 3,
        "fail_type": None,
        "has_guarded_code": True,
        "guard_count": guards,
    }
    broken = {**frame, "artifact": {"name": "dynamo_graph_break_reason"}}
    ended = {**frame, "compilation_metrics": metrics}
    told = [TraceEvent(call=0, metadata=broken, payload=BREAK)] if breaks else []
    return [*told, TraceEvent(call=0, metadata=ended, payload="")]


@pytest.mark.parametrize(
    ("breaks", "guards", "given_up"),
    (
        (True, None, ["frame_skipped"]),
        (True, 8, []),  # it resumed after the break
        (False, None, []),  # it has no tensor operation
    ),
)
def test_a_frame_with_a_break_and_no_guards_was_given_up(
    breaks: bool,  # noqa: FBT001
    guards: int | None,
    given_up: list[str],
) -> None:
    facts = read_trace(events(breaks=breaks, guards=guards), target="loop", dynamic=None)
    assert [skip.kind for skip in facts.skipped] == given_up
    assert len(facts.break_sites) == breaks
