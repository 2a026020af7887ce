"""Which code each compile id stands for, and how its compilation ended, from torch's trace."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pytest_compileguard.code_origin import StackLine, is_users, nearest_line
from pytest_compileguard.observation import CodeLine, Record
from pytest_compileguard.trace.break_text import plain_function
from pytest_compileguard.trace.event import TraceEvent

WRAPPER_FILE = "external_utils.py"
"""Holds the frame that torch puts around a module whose class is torch's own, and around what
is disabled."""
_STACK_LINE = re.compile(r"Line: (?P<line>\d+), Name: (?P<name>.+?), Filename: (?P<file>.+)")


class Frame(Record):
    """The code that one compile id stands for."""

    name: str
    file: str
    line: int
    called_from: CodeLine | None = None
    """Where it is code of others: the user's line that leads to it."""


def read_frames(events: Iterable[TraceEvent], target: str) -> dict[str, Frame]:
    """Read the code of each compile id; ``target`` names what torch wraps."""
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


def failure(metrics: dict[str, Any]) -> str:
    """Say how a compilation failed; empty: it did not."""
    if metrics.get("fail_type"):
        return f"{metrics['fail_type']}: {metrics.get('fail_reason') or ''}".strip()
    return "SkipFrame" if metrics.get("has_guarded_code") is False else ""
