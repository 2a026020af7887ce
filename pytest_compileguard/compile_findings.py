"""Judges what the trace told: was anything compiled, did all of it stay compiled, where not?

A message reads after the label of its metric: ``graph breaks`` + ``0 of 0``. A line
of evidence that belongs to the line above it starts with two spaces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from pytest_compileguard.finding import Finding
from pytest_compileguard.metrics import completed_recompiles, facts_of
from pytest_compileguard.observation import (
    BreakSite,
    CompileObservation,
    Fallback,
    FallbackKind,
    NotObserved,
    Recompile,
)
from pytest_compileguard.plan import Plan
from pytest_compileguard.recompile_text import (
    recompile_lines,
    recompile_phrase,
    recompile_remedy,
)
from pytest_compileguard.wording import (
    MOST_LINES,
    and_more,
    call_text,
    counted,
    first_of,
    frame_text,
    known_file,
)

NOTHING_COMPILED = "nothing was compiled"

_REWRITTEN = re.compile(r"(?:^|[/\\])(?:test_[^/\\]*|[^/\\]*_test|conftest)\.py$")
_LOOK_FOR_SWITCH = (
    "check that the target computes with tensors, and that nothing turns torch.compile off: "
    "TORCH_COMPILE_DISABLE, torch.compiler.set_stance, torch.compiler.disable, a dispatch mode"
)
_MOST_ADVICE = 180
"""Characters of torch's advice for one break; the JSON report has all of it."""
_FALLBACK_REMEDIES: dict[FallbackKind, str] = {
    "frame_skipped": "move what can't be traced out of the loop, try, with block or generator "
    "around it; there, Dynamo gives up the whole frame",
    "limit_hit": "keep from recompiling what the guards name; "
    "torch._dynamo.config.recompile_limit only delays this",
    "ran_eager": _LOOK_FOR_SWITCH,
    "nothing_compiled": _LOOK_FOR_SWITCH,
}


def compile_findings(plan: Plan, seen: CompileObservation | NotObserved) -> tuple[Finding, ...]:
    """Judge the facts of compilation against what always holds and against the limits."""
    if isinstance(seen, NotObserved):
        return _unobserved(seen)
    problem = compile_problem(seen)
    breaks = _graph_breaks(plan, seen, compiled=problem is None)
    if problem is None:
        compiled = _compiled(seen)
    else:
        # Where no limit shows the breaks, they stand here: they may be why nothing was compiled.
        shown_already = any(finding.status == "failed" for finding in breaks)
        compiled = _not_compiled(seen, problem, () if shown_already else seen.break_sites)
    return (
        compiled,
        _fallbacks(plan, seen, compiled=problem is None),
        *_trace(plan, seen),
        *breaks,
        *_recompiles(plan, seen, compiled=problem is None),
    )


def compile_problem(seen: CompileObservation | NotObserved) -> str | None:
    """Say why this does not count as compiled, or ``None`` if it does."""
    if isinstance(seen, NotObserved):
        return f"{NOTHING_COMPILED}: {seen.reason}"
    if seen.error is not None:
        return seen.error.strip() or "compiling failed"
    if seen.calls < 1:
        return f"{NOTHING_COMPILED}: the target was not called"
    if seen.graphs < 1:
        return f"{NOTHING_COMPILED}: 0 graphs in {counted(seen.calls, 'call')}"
    if seen.ops < 1:
        return f"{NOTHING_COMPILED}: 0 operators in {counted(seen.graphs, 'graph')}"
    return None


def site_lines(sites: Sequence[BreakSite], prefix: str = "") -> tuple[str, ...]:
    """Show breaks: where and what, then why and what to do."""
    lines: list[str] = []
    for site in sites[:MOST_LINES]:
        where = frame_text(site.file, site.line, site.function)
        why = f"{site.reason} ({site.id})" if site.id else site.reason
        lines.append(f"{prefix}{where}    {site.source}" if site.source else f"{prefix}{where}")
        hint = _whole_sentences(site.hint)
        lines.append(f"  {why}: {hint}" if hint else f"  {why}")
    if len(sites) > MOST_LINES:
        lines.append(f"and {len(sites) - MOST_LINES} more")
    return tuple(lines)


def _whole_sentences(text: str) -> str:
    """Cut torch's advice, which can be long, after a sentence; the first one always stays."""
    first, *others = re.split(r"(?<=[.?!])\s+(?=[A-Z])", text)
    kept = first
    for sentence in others:
        if len(kept) + len(sentence) > _MOST_ADVICE:
            break
        kept += f" {sentence}"
    return kept


def _unobserved(seen: NotObserved) -> tuple[Finding, ...]:
    message = f"{NOTHING_COMPILED}: {seen.reason}"
    return (
        Finding(metric="compiled", status="failed", message=message),
        Finding(metric="graph_breaks", status="not_checked", message=NOTHING_COMPILED),
        Finding(metric="recompiles", status="not_checked", message=NOTHING_COMPILED),
    )


def _compiled(seen: CompileObservation) -> Finding:
    message = f"{counted(seen.graphs, 'graph')}, {counted(seen.ops, 'operator')}"
    return Finding(metric="compiled", status="passed", message=message, observed=seen.graphs)


def _not_compiled(seen: CompileObservation, problem: str, sites: Sequence[BreakSite]) -> Finding:
    sentence, *rest = [line.rstrip() for line in problem.splitlines() if line.strip()]
    reasons = [f for f in seen.fallbacks if f.kind == "nothing_compiled"]
    finding = Finding(
        metric="compiled",
        status="failed",
        message=sentence,
        evidence=(*rest, *_fallback_lines(reasons), *site_lines(sites)),
        remedy=_not_compiled_remedy(seen),
    )
    return _placed(finding, sites)


def _not_compiled_remedy(seen: CompileObservation) -> str:
    if seen.error is not None:
        return seen.error_remedy
    # A break or a skipped frame is the cause, and is shown with advice of its own.
    explained = seen.break_sites or any(f.kind == "frame_skipped" for f in seen.fallbacks)
    return "" if explained else _LOOK_FOR_SWITCH


def _fallbacks(plan: Plan, seen: CompileObservation, *, compiled: bool) -> Finding:
    """Fail for any code that ran eager; why nothing at all was compiled stands elsewhere."""
    accepted = _accepted_skips(plan, seen) if compiled else ()
    shown = [f for f in seen.fallbacks if compiled or f.kind != "nothing_compiled"]
    shown = [f for f in shown if f not in accepted]
    if seen.limit_hit and not any(f.kind == "limit_hit" for f in shown):
        shown.append(_unnamed_limit_hit())
    if not shown:
        message = f"{counted(len(accepted), 'frame')} given up at accepted graph breaks"
        return Finding(
            metric="fallbacks",
            status="passed",
            message=message if accepted else "none",
            observed=0,
            limit=0,
            evidence=_fallback_lines(accepted),
        )
    kinds = dict.fromkeys(fallback.kind for fallback in shown)
    refused = [r for r in seen.recompiles if r.refused] if "limit_hit" in kinds else []
    finding = Finding(
        metric="fallbacks",
        status="failed",
        message=f"{counted(len(shown), 'fallback')} to eager",
        observed=len(shown),
        limit=0,
        evidence=(*_fallback_lines(shown), *recompile_lines(refused)),
        remedy="\n".join(dict.fromkeys(_FALLBACK_REMEDIES[kind] for kind in kinds)),
    )
    return _placed(finding, shown)


def _accepted_skips(plan: Plan, seen: CompileObservation) -> tuple[Fallback, ...]:
    """Frames that Dynamo gave up for graph breaks that the author of the test accepts."""
    breaks, limit = facts_of(seen)["graph_breaks"], plan.max_graph_breaks
    if not breaks or limit is None or breaks > limit:
        return ()
    return tuple(f for f in seen.fallbacks if f.kind == "frame_skipped")


def _unnamed_limit_hit() -> Fallback:
    reason = "the recompile limit was hit"
    return Fallback(kind="limit_hit", call=None, frame="", file="", line=0, reason=reason)


def _fallback_lines(fallbacks: Sequence[Fallback]) -> tuple[str, ...]:
    """Show each fallback once, however many calls it spoiled."""
    calls: dict[tuple[str, str, str], list[int]] = {}
    for fallback in fallbacks:
        where = frame_text(fallback.file, fallback.line, fallback.frame)
        key = (fallback.kind.replace("_", " "), where, fallback.reason)
        calls.setdefault(key, [])
        if fallback.call is not None:
            calls[key].append(fallback.call)
    return first_of([_fallback_line(*key, numbers) for key, numbers in calls.items()])


def _fallback_line(kind: str, where: str, reason: str, calls: Sequence[int]) -> str:
    when = ""
    if calls:
        when = call_text(calls[0])
        if len(calls) > 1:
            when = f"{len(calls)} times, first in {when}"
    what = ", ".join(part for part in (kind, where, when) if part)
    return f"{what}: {reason}" if reason else what


def _trace(plan: Plan, seen: CompileObservation) -> tuple[Finding, ...]:
    """Make untrusted numbers visible that no limit makes fail."""
    limits = {"graph breaks": plan.max_graph_breaks, "recompiles": plan.max_recompiles}
    unlimited = [label for label, limit in limits.items() if limit is None]
    if not seen.unreliable or not unlimited:
        return ()
    message = f"{' and '.join(unlimited)} can't be trusted: {'; '.join(seen.unreliable)}"
    return (Finding(metric="trace", status="inconclusive", message=message),)


def _graph_breaks(plan: Plan, seen: CompileObservation, *, compiled: bool) -> tuple[Finding, ...]:
    sites = [site for site in seen.break_sites if not site.allowed]
    notes = _break_notes(seen, len(sites))
    finding = Finding(
        metric="graph_breaks",
        status="passed",
        message=f"({', '.join(notes)})" if notes else "",
        observed=len(sites),
        limit=plan.max_graph_breaks,
        evidence=(*site_lines(sites), *((", ".join(notes),) if notes else ())),
        remedy=_break_remedy(sites),
    )
    finding = _placed(finding, sites)
    return _against_limit(finding, len(sites), plan.max_graph_breaks, seen, compiled=compiled)


def _break_notes(seen: CompileObservation, breaks: int) -> list[str]:
    """Say the numbers that other tools would call graph breaks, where they differ."""
    notes = []
    if allowed := sum(site.allowed for site in seen.break_sites):
        notes.append(f"{allowed} allowed")
    if seen.break_events != breaks + allowed:
        notes.append(counted(seen.break_events, "break event"))
    explained = max(seen.graphs - 1, 0)
    # A recompile adds graphs that no break made: `explain`, which calls once, has none of them.
    if explained != breaks + allowed and not completed_recompiles(seen):
        notes.append(f"explain-style {explained}")
    return notes


def _break_remedy(sites: Sequence[BreakSite]) -> str:
    """Name the cause that users can't see: pytest's own rewriting of asserts."""
    for site in sites:
        if _REWRITTEN.search(site.file) and site.source.startswith("assert "):
            return (
                "pytest rewrites the asserts of test modules, which can break the graph: "
                "move the compiled code to a module of its own"
            )
    return ""


def _recompiles(plan: Plan, seen: CompileObservation, *, compiled: bool) -> tuple[Finding, ...]:
    completed = [recompile for recompile in seen.recompiles if not recompile.refused]
    count = completed_recompiles(seen)
    detail = ""
    if completed:
        detail = f"({and_more(recompile_phrase(completed[0]), count)})"
    finding = Finding(
        metric="recompiles",
        status="passed",
        message=detail,
        observed=count,
        limit=plan.max_recompiles,
        evidence=recompile_lines(seen.recompiles),
        remedy=recompile_remedy(completed, plan.arguments),
    )
    finding = _placed(finding, completed)
    return _against_limit(finding, count, plan.max_recompiles, seen, compiled=compiled)


def _placed(finding: Finding, places: Sequence[BreakSite | Fallback | Recompile]) -> Finding:
    """Point the finding at the first place that is known."""
    for place in places:
        if known_file(place.file):
            return msgspec.structs.replace(finding, file=place.file, line=place.line)
    return finding


def _against_limit(
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
        return (replace(finding, status="not_checked", message=NOTHING_COMPILED, remedy=""),)
    number = f"{count}, no limit" if limit is None else f"{count} of {limit}"
    return (replace(finding, message=f"{number} {finding.message}".strip(), remedy=""),)
