"""Judges graph breaks: how many places there are to edit, which are allowed, what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_compileguard.finding import Finding
from pytest_compileguard.findings.limit import against_limit, placed
from pytest_compileguard.findings.wording import (
    MOST_LINES,
    code_line_text,
    counted,
    first_of,
    frame_text,
)
from pytest_compileguard.metrics import completed_recompiles
from pytest_compileguard.observation import BreakSite, CompileObservation, Origin
from pytest_compileguard.plan import Plan
from pytest_compileguard.trace.break_text import UNTRACED

_MOST_ADVICE = 180
"""Characters of torch's advice for one break, unless its first hint is longer; the JSON report
has all of it."""
_MOST_HINT = 600
_ORIGINS: dict[Origin, str] = {
    "torch": "    [torch's own code]",
    "third party": "    [third party]",
    "test": "    [test file]",
    "package": "",
}


NEW = "new: "
"""Stands before a break that the baseline does not know."""


def break_findings(plan: Plan, seen: CompileObservation, *, compiled: bool) -> tuple[Finding, ...]:
    """Judge the breaks that are not allowed, and tell of allowances that no break matched."""
    sites = [site for site in seen.break_sites if not site.allowed]
    allowed = [site for site in seen.break_sites if site.allowed]
    notes = _notes(seen, len(sites), len(allowed))
    finding = Finding(
        metric="graph_breaks",
        status="passed",
        message=f"({', '.join(notes)})" if notes else "",
        observed=len(sites),
        limit=plan.max_graph_breaks,
        evidence=(
            *site_lines(sites),
            *site_lines(allowed, prefix="allowed: "),
            *((", ".join(notes),) if notes else ()),
        ),
        remedy=_remedy(sites),
    )
    judged = against_limit(
        placed(finding, sites), len(sites), plan.max_graph_breaks, seen, compiled=compiled
    )
    return (*judged, *_left(seen), *_unused(seen))


def site_lines(sites: Sequence[BreakSite], prefix: str = "") -> tuple[str, ...]:
    """Show breaks: where and what, then why and what to do."""
    lines: list[str] = []
    for site in sites[:MOST_LINES]:
        where = prefix + frame_text(site.file, site.line, site.function)
        why = f"{site.reason} ({site.id})" if site.id else site.reason
        source = f"    {site.source}" if site.source else ""
        hint = advice(site)
        lines.append(where + source + _ORIGINS[site.origin])
        lines += [f"  {text}" for text in caller_texts(site)]
        lines.append(f"  {why}: {hint}" if hint else f"  {why}")
    if len(sites) > MOST_LINES:
        lines.append(f"and {len(sites) - MOST_LINES} more")
    return tuple(lines)


def caller_texts(site: BreakSite) -> tuple[str, ...]:
    """Say from where a site is reached: the lines to edit, then the calls that lead there."""
    named = first_of([code_line_text(line) for line in site.called_from], 3)
    chain = site.call_chain if not named else site.call_chain[1:]
    if not chain or len(site.called_from) > 1:
        return named
    places = [frame_text(line.file, line.line, line.function) for line in chain]
    lead = "which is called from" if named else "called from"
    return (*named, f"{lead} {' <- '.join(first_of(places, 4))}")


def _left(seen: CompileObservation) -> tuple[Finding, ...]:
    """Tell of functions that are compiled up to a break only."""
    if not seen.left:
        return ()
    places = [frame_text(line.file, line.line, line.function) for line in seen.left]
    return (
        Finding(
            metric="rest_of_function",
            status="not_checked",
            message=f"runs eager from {', '.join(first_of(places, 3))} on: "
            "Dynamo can't resume after the break",
            remedy="move what breaks the graph to a statement of its own, outside of try and with",
        ),
    )


def _unused(seen: CompileObservation) -> tuple[Finding, ...]:
    if not seen.unused_allowances:
        return ()
    names = ", ".join(repr(name) for name in seen.unused_allowances)
    return (
        Finding(
            metric="allow_graph_breaks",
            status="not_checked",
            message=f"no graph break matches {names}",
            remedy="remove it, or correct it",
        ),
    )


def _notes(seen: CompileObservation, breaks: int, allowed: int) -> list[str]:
    """Say the numbers that other tools would call graph breaks, where they differ."""
    notes = [f"{allowed} allowed"] if allowed else []
    if seen.break_events != breaks + allowed:
        notes.append(f"{counted(seen.break_events, 'break event')}{_met_later(seen)}")
    explained = max(seen.graphs - 1, 0)
    # A recompile adds graphs that no break made: `explain`, which calls once, has none of them.
    if explained != breaks + allowed and not completed_recompiles(seen):
        notes.append(f"explain-style {explained}")
    return notes


def _met_later(seen: CompileObservation) -> str:
    later = sum(site.events == 0 for site in seen.break_sites)
    return f", and {counted(later, 'break')} met by recompiles only" if later else ""


def _remedy(sites: Sequence[BreakSite]) -> str:
    """Say what torch does not: that pytest rewrites asserts, and where untraced calls belong."""
    remedies = []
    if any(site.rewritten_assert for site in sites):
        remedies.append(
            "pytest rewrites the asserts of test modules, which can break the graph: "
            "move the compiled code to a module of its own"
        )
    if any(UNTRACED in site.hint for site in sites):
        remedies.append(
            "or call what can't be traced before the target, and pass its result as an argument"
        )
    return "\n".join(remedies)


def advice(site: BreakSite) -> str:
    """Cut torch's advice, which can be long, after a sentence; the first hint always stays."""
    whole = len(site.hints[0]) if site.hints else 0
    first, *others = re.split(r"(?<=[.?!])\s+(?=[A-Z])", site.hint)
    kept = first
    for sentence in others:
        if len(kept) >= whole and len(kept) + len(sentence) > _MOST_ADVICE:
            break
        if len(kept) + len(sentence) > _MOST_HINT:
            break
        kept += f" {sentence}"
    return kept
