"""Reads the payload of the trace artifact ``dynamo_graph_break_reason``.

Its parts: a header with file and line, a sentence about what Dynamo did, the short
reason (a key of torch's registry), ``Explanation:`` and ``Hint:`` lines, a link with
the registry id, the user's stack, and Dynamo's own traceback. Where Dynamo gives up the
frame at once, header, reason and hints are missing; the reason ends its traceback.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from pytest_compileguard.code_origin import calling_lines, is_users
from pytest_compileguard.observation import BreakSite, CodeLine, Record
from pytest_compileguard.source import decorator_like, source_line


class BreakEvent(Record):
    """One break event: a frame that was split, or given up."""

    call: int
    file: str
    line: int
    function: str
    """The innermost user function, without Dynamo's decoration."""
    reason: str
    id: str | None
    hint: str
    hints: tuple[str, ...] = ()
    """What ``hint`` is made of: each is one remedy, as torch gives them."""
    called_from: tuple[CodeLine, ...] = ()
    """Where the place is in code of others: the user's line that leads to it."""
    call_chain: tuple[CodeLine, ...] = ()
    """All lines of the user's that lead to it, innermost first."""
    of_first_compile: bool = True
    """Whether the first compile of the frame meets it, and not a recompile alone."""

    @property
    def site(self) -> tuple[str, int, str]:
        return self.file, self.line, self.reason


_FRAME = re.compile(r'^\s*File "(.+?)", line (\d+), in (.+)$', re.MULTILINE)
_HEADER = re.compile(r"in user code at (.+?):(\d+)\s*$", re.MULTILINE)
_RESUME = re.compile(r"^torch_dynamo_resume_in_(.+)_at_\d+$")
# Sentences about what Dynamo did with the frame; the reason follows in the next lines.
_PREAMBLE = re.compile(r"^(?:Graph Break )?Reason: |^Graph break")
_GB_ID = re.compile(r"/gb/gb(\d{4})\.html")
_REPORT = re.compile(r"(?:file|report) an issue", re.IGNORECASE)
_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"^torch\._dynamo\.exc\.\w+: (.+)$", re.MULTILINE)
# Sent ahead of the break event proper where a backend can't compile a graph.
_FOREWORD = "WON'T CONVERT"
# What follows names symbols, which are numbered anew in every frame.
_EXPRESSION = re.compile(r"^(.*\bdata-dependent expression) (.+)$")
UNTRACED = "Dynamo can't trace"
"""Begins a hint that leaves out which function it is about."""
# The function that is meant, which hints of a general kind leave out.
_UNTRACED_NAME = re.compile(r"not know how to trace [^`.]*`([^`]+)`")
_DISABLED_NAME = re.compile(r"Skip \w+ function `?<function (\S+) at 0x")
_REMOVE_DISABLE = "Remove the `torch.compiler.disable` call"
BACKEND_FAILED = "Backend compiler exception"
"""Torch's reason where a backend can't compile a graph, which then runs eager."""
_COMPILED_FROM = re.compile(r"^ *Original traceback:\n((?: +.*\n)+)", re.MULTILINE)
_DETAIL = re.compile(r"^(Explanation|Hint|Caused by): (.*)$")


def plain_function(name: str) -> str:
    """Strip what Dynamo adds to the name of a continuation."""
    while match := _RESUME.match(name):
        name = match[1]
    return name


def read_break(payload: str, *, call: int, frame: str) -> BreakEvent | None:
    """Make sense of one payload; ``None`` if another one tells the same break.

    ``frame`` names the function that was being compiled. Unknown wordings keep their
    first line as the reason.
    """
    if payload.startswith(_FOREWORD):
        return None
    user = payload.split(_TRACEBACK, maxsplit=1)[0]
    head, _, stack = user.partition("User code traceback:")
    entries = _FRAME.findall(stack or user)
    file, line, function = (entries or [("?", "0", frame)])[-1]
    callers = entries[:-1]
    if (header := _HEADER.search(head)) and header.groups() != (file, line):
        (file, line), function = header.groups(), frame
        callers = entries  # the stack ends in the caller
    chain = calling_lines([(f, int(n), plain_function(name)) for f, n, name in callers])
    first = head.split("*** While handling this graph break")[0]
    raised = _RAISED.findall(payload)
    whole = first if header else payload
    reason = _reason(first) if header or not raised else raised[-1].strip()
    reason, expression = (_EXPRESSION.findall(reason) or [(reason, "")])[0]
    found = _GB_ID.search(whole)
    hints = _hints(whole, file) or ((expression,) if expression else ())
    return BreakEvent(
        call=call,
        file=file,
        line=int(line),
        function=plain_function(function),
        reason=reason,
        id=f"GB{found[1]}" if found else None,
        hint=" ".join(hints),
        hints=hints,
        called_from=() if is_users(file) else chain[:1],
        call_chain=chain,
    )


def merged_sites(events: Sequence[BreakEvent]) -> tuple[BreakSite, ...]:
    """Merge break events into the places where they happen, in the order of appearance."""
    total = Counter(event.site for event in events if event.of_first_compile)
    first: dict[tuple[str, int, str], BreakEvent] = {}
    for event in events:
        first[event.site] = with_callers(first.get(event.site, event), [event])
    return tuple(_site(event, events=total[site]) for site, event in first.items())


def with_callers(event: BreakEvent, echoes: Iterable[BreakEvent]) -> BreakEvent:
    """Keep all lines that lead to the place: whoever allows one of them may not hide another."""
    callers = (*event.called_from, *(line for echo in echoes for line in echo.called_from))
    return msgspec.structs.replace(event, called_from=tuple(dict.fromkeys(callers)))


def _site(event: BreakEvent, *, events: int) -> BreakSite:
    return BreakSite(
        file=event.file,
        line=event.line,
        function=event.function,
        source=source_line(event.file, event.line),
        reason=event.reason,
        id=event.id,
        hint=event.hint,
        hints=event.hints,
        events=events,
        call=event.call,
        called_from=event.called_from,
        call_chain=event.call_chain,
    )


def _reason(head: str) -> str:
    lines = [text.strip() for text in head.splitlines() if text.strip()]
    lines = [text for text in lines if not _HEADER.search(text)]
    # "Reason: Encountered graph break when attempting to trace CALL: ...:" is a preamble,
    # unless nothing but details follows it ("Reason: Data-dependent branching").
    if len(lines) > 1 and _PREAMBLE.match(lines[0]) and not _DETAIL.match(lines[1]):
        lines.pop(0)
    return _PREAMBLE.sub("", lines[0]).strip() if lines else "frame skipped"


def _hints(head: str, file: str) -> tuple[str, ...]:
    """The hints that tell what to change; torch's explanation if it gives none."""
    details = [_DETAIL.match(text.strip()) for text in head.splitlines()]
    found = [(match[1], match[2].strip()) for match in details if match and match[2].strip()]
    hints = [text for kind, text in found if kind == "Hint" and not _REPORT.search(text)]
    explained = [text for kind, text in found if kind == "Explanation"]
    if not hints:
        return tuple(explained) + _failed_at(head)
    untraced = _UNTRACED_NAME.search(" ".join(explained))
    name = _plain_name(untraced[1]) if untraced else ""
    if name and name not in " ".join(hints):
        hints[0] = f"{UNTRACED} `{name}`: {hints[0]}"
    disabled = _DISABLED_NAME.search(" ".join(explained))
    if disabled and hints[0] == _REMOVE_DISABLE:
        hints[0] = _remove_disable(disabled[1], file)
    return tuple(hints)


def _failed_at(head: str) -> tuple[str, ...]:
    """Name the user's line that a backend failed at; the break itself has that of the frame."""
    told = _COMPILED_FROM.search(head) if BACKEND_FAILED in head else None
    entries = _FRAME.findall(told[1]) if told else []
    own = [entry for entry in entries if is_users(entry[0])] or entries
    if not own:
        return ()
    file, line, function = own[-1]
    source = source_line(file, int(line))
    return (f"at {file}:{line} in {function}" + (f": {source}" if source else ""),)


def _remove_disable(function: str, file: str) -> str:
    """Name what is disabled, and the decorator as the source spells it, if it stands there."""
    found = decorator_like(file, function.rpartition(".")[2], "disable")
    spelt = f"`{found}`" if found else "`torch.compiler.disable` (or `torch._dynamo.disable`)"
    return f"Remove {spelt} from `{function}`"


def _plain_name(name: str) -> str:
    """Drop what torch says instead of a module that it does not know, and its full stop."""
    return name.removeprefix("<unknown module>.").rstrip(".")
