"""How findings say numbers, places and long lists: the same way in every sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_compileguard.observation import BreakSite, CodeLine, Fallback, Recompile

_ROUNDING = 1e-9
_ROLES = {"call": "called from", "definition": "defined at", "raise": "raised at"}
_LONG_PATH = 100
"""Characters above a folder of packages that take from a line what it has to say."""
MOST_LINES = 10
"""Most places shown in one finding; the JSON report has all of them."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """Say how many: ``1 graph``, ``2 graphs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


def call_text(call: int) -> str:
    """Name a call as people count: records number them from 0."""
    return f"call {call + 1}"


def place_text(file: str, line: int) -> str:
    """Say where, as editors and terminals understand it; empty if no file is known."""
    if not known_file(file):
        return ""
    return f"{file}:{line}" if line > 0 else file


def frame_text(file: str, line: int, function: str) -> str:
    """Say in which line of which function, as far as known."""
    place = place_text(file, line)
    return f"{place} in {function}" if place and function else place or function


def code_line_text(line: CodeLine) -> str:
    """Say which line of the user's own code is meant, and what stands there."""
    what = _ROLES[line.role]
    source = f"    {line.source}" if line.source else ""
    return f"{what} {frame_text(line.file, line.line, line.function)}{source}"


def fallback_place(fallback: Fallback) -> str:
    """Say in which line code was left to eager, and which frame runs eager for it."""
    function = fallback.function or fallback.frame
    named = "" if function == "?" else function
    place = frame_text(_below_packages(fallback.file), fallback.line, named)
    apart = fallback.frame and function != fallback.frame
    return f"{place}, inlined into {fallback.frame}" if apart else place


def _below_packages(file: str) -> str:
    """Shorten a long path of an installed package to what stands below the folder of packages."""
    head, folder, below = file.rpartition("-packages/")
    return f".../{below}" if folder and len(head) > _LONG_PATH else file


def edited_places(place: BreakSite | Fallback | Recompile) -> tuple[tuple[str, int], ...]:
    """Find the files and lines that their owner can edit: not those in code of others."""
    lines: tuple[CodeLine, ...] = ()
    if isinstance(place, BreakSite):
        lines = place.called_from
    else:
        own = place.called_from
        if isinstance(place, Fallback):
            own = place.definition or own
        lines = (own,) if own is not None else ()
    return tuple((line.file, line.line) for line in lines) or ((place.file, place.line),)


def known_file(file: str) -> str:
    """Drop what stands for a file that torch could not name."""
    return "" if file == "?" else file


def first_of(entries: Sequence[str], most: int = MOST_LINES) -> tuple[str, ...]:
    """Keep the first entries and say how many there are besides."""
    if len(entries) <= most:
        return tuple(entries)
    return (*entries[:most], f"and {len(entries) - most} more")


def factor_text(factor: float, digits: int = 2) -> str:
    """Say a speedup: ``1.31x``."""
    return f"{factor:.{digits}f}x"


def factor_digits(limit: float | None, *factors: float) -> int:
    """Find how many digits show on which side of the limit each factor lies, 2 to 5."""
    if limit is None:
        return 2
    apart = (
        digits
        for digits in (2, 3, 4)
        if all(
            math.isclose(factor, limit, rel_tol=_ROUNDING)
            or f"{factor:.{digits}f}" != f"{limit:.{digits}f}"
            for factor in factors
        )
    )
    return next(apart, 5)


def seconds_text(time_s: float) -> str:
    """Say a time in seconds: ``1.3 s``, ``0.024 s``."""
    return f"{float(f'{time_s:.3g}'):g} s"


_KIB = 1024


def bytes_text(size: int) -> str:
    """Say an amount of memory: ``512 B``, ``1.5 MiB``."""
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if amount < _KIB:
            break
        amount, unit = amount / _KIB, larger
    return f"{float(f'{amount:.4g}'):g} {unit}"


def and_more(first: str, count: int) -> str:
    """Say the first of ``count`` things and how many there are besides."""
    return first if count <= 1 else f"{first}, and {count - 1} more"
