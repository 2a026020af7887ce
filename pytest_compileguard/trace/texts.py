"""The texts that the compiler leaves in the trace: graphs, guards, generated code. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Literal

from pytest_compileguard.observation import Record
from pytest_compileguard.trace.event import TraceEvent

TextKind = Literal["graph", "guards", "code"]
_KINDS: dict[TextKind, str] = {
    "graph": "dynamo_output_graph",
    "guards": "dynamo_cpp_guards_str",
    "code": "inductor_output_code",
}
"""The event that carries each kind."""
_PART = re.compile(r"^# AOT ID: \['\d+_(?P<part>[a-z]+)'\]", re.MULTILINE)
_HEAD = 2000
_SUFFIXES = (".py", ".cpp")
"""Of generated code: a module of Python around the kernels, or C++ alone."""


class CompilerText(Record):
    """One text of the compiler."""

    kind: TextKind
    compile_id: str
    call: int
    text: str
    part: str = ""
    """``forward``, ``backward`` or ``inference`` where the text tells."""
    suffix: str = ".txt"


def compiler_texts(events: Iterable[TraceEvent]) -> tuple[CompilerText, ...]:
    """Give all texts of a call sequence: graphs, then guards, then code, as they came.

    Of a graph and its guards the last attempt counts, as Dynamo may start anew. Code is that of
    forward and of backward, under one compile id.
    """
    found = [text for event in events for text in _texts(event)]
    last = {(text.kind, text.compile_id): text for text in found if text.kind != "code"}
    code = dict.fromkeys(text for text in found if text.kind == "code")
    return tuple(text for kind in _KINDS for text in (*last.values(), *code) if text.kind == kind)


def _texts(event: TraceEvent) -> list[CompilerText]:
    return [
        CompilerText(
            kind=kind,
            compile_id=event.compile_id,
            call=event.call,
            text=event.payload,
            part=part_of(event.payload) if kind == "code" else "",
            suffix=_suffix(event.metadata[name]) if kind == "code" else ".txt",
        )
        for kind, name in _KINDS.items()
        if name in event.metadata and event.payload
    ]


def part_of(code: str) -> str:
    """Read of which part of a graph generated code is; empty where it does not tell."""
    found = _PART.search(code, 0, _HEAD)
    return found["part"] if found else ""


def _suffix(about: object) -> str:
    """Tell the language of generated code by the name of its file in torch's cache."""
    name = str(about.get("filename")) if isinstance(about, dict) else ""
    found = PurePath(name).suffix
    return found if found in _SUFFIXES else _SUFFIXES[0]
