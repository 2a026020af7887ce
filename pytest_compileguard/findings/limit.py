"""Judges one number of the compiler against its limit, and points a finding at its place."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytest_compileguard.finding import Finding
from pytest_compileguard.findings.wording import edited_places, known_file
from pytest_compileguard.observation import (
    BreakSite,
    CompileObservation,
    Fallback,
    NotObserved,
    Recompile,
)

NOTHING_COMPILED = "nothing was compiled"


def uncompiled_text(seen: CompileObservation | NotObserved) -> str:
    """Say why numbers of the compiler are not checked: other calls may have been compiled."""
    if isinstance(seen, CompileObservation) and seen.raised:
        return "compiled code raised"
    partly = isinstance(seen, CompileObservation) and seen.error is not None and seen.graphs > 0
    return "not every call could be compiled" if partly else NOTHING_COMPILED


def placed(finding: Finding, places: Sequence[BreakSite | Fallback | Recompile]) -> Finding:
    """Point the finding at the first place that is known."""
    for place in places:
        file, line = edited_places(place)[0]
        if known_file(file):
            return msgspec.structs.replace(finding, file=file, line=line)
    return finding


def against_limit(
    finding: Finding, count: int, limit: int | None, seen: CompileObservation, *, compiled: bool
) -> tuple[Finding, ...]:
    """Judge one number; ``finding`` comes with its details as message."""
    replace = msgspec.structs.replace
    if seen.unreliable:
        if limit is None:  # `_trace` tells
            return ()
        message = f"can't be trusted: {'; '.join(seen.unreliable)}"
        return (replace(finding, status="failed", message=message, observed=None),)
    if limit is not None and count > limit:
        return (replace(finding, status="failed", message=f"{count}, limit {limit}"),)
    if not compiled:
        return (replace(finding, status="not_checked", message=uncompiled_text(seen), remedy=""),)
    number = f"{count}, no limit" if limit is None else f"{count} of {limit}"
    return (replace(finding, message=f"{number} {finding.message}".strip(), remedy=""),)
