"""The sides of a file that git left with conflict markers."""

from __future__ import annotations

from typing import Literal

from pytest_compileguard.observation import Record

_OURS, _BASE, _MIDDLE, _THEIRS = b"<<<<<<<", b"|||||||", b"=======", b">>>>>>>"

_State = Literal["both", "ours", "base", "theirs"]


class Sides(Record):
    """The whole text as each side has it."""

    ours: bytes
    theirs: bytes
    base: bytes | None
    """As both started from; ``None`` where the markers don't show it."""


def sides_of(data: bytes) -> Sides | None:
    """Take the sides apart; ``None`` if there is no conflict, or the markers are not in order."""
    texts: dict[_State, list[bytes]] = {"ours": [], "base": [], "theirs": []}
    state: _State = "both"
    seen = based = False
    for line in data.splitlines(keepends=True):
        following = _following(line, state)
        if following is None:
            for side in texts if state == "both" else (state,):
                texts[side].append(line)
            continue
        if following == state:
            return None
        seen, based, state = True, based or following == "base", following
    if not seen or state != "both":
        return None
    base = b"".join(texts["base"]) if based else None
    return Sides(ours=b"".join(texts["ours"]), theirs=b"".join(texts["theirs"]), base=base)


def has_markers(data: bytes) -> bool:
    """Whether any line is a marker, in order or not."""
    return any(_following(line, "both") is not None for line in data.splitlines(keepends=True))


def _following(line: bytes, state: _State) -> _State | None:
    """Say what a marker begins; ``None`` for any other line; the same state: out of order."""
    marker, text = line[:7], line[7:8]
    if text not in (b" ", b"\n", b"\r", b"") or marker not in (_OURS, _BASE, _MIDDLE, _THEIRS):
        return None
    allowed: dict[bytes, tuple[tuple[_State, ...], _State]] = {
        _OURS: (("both",), "ours"),
        _BASE: (("ours",), "base"),
        _MIDDLE: (("ours", "base"), "theirs"),
        _THEIRS: (("theirs",), "both"),
    }
    before, after = allowed[marker]
    return after if state in before else state
