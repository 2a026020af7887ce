"""Judges what the trace told: was anything compiled, did all of it stay compiled, where not?

A message reads after the label of its metric: ``graph breaks`` + ``0 of 0``. A line
of evidence that belongs to the line above it starts with two spaces.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_compileguard.finding import Finding
from pytest_compileguard.findings.breaks import break_findings, site_lines
from pytest_compileguard.findings.inductor import inductor_findings
from pytest_compileguard.findings.limit import NOTHING_COMPILED, against_limit, placed
from pytest_compileguard.findings.recompile_text import (
    recompile_lines,
    recompile_phrase,
    recompile_remedy,
)
from pytest_compileguard.findings.wording import (
    MOST_LINES,
    and_more,
    call_text,
    code_line_text,
    counted,
    fallback_place,
)
from pytest_compileguard.metrics import completed_recompiles, facts_of
from pytest_compileguard.observation import (
    NO_CALL,
    BreakSite,
    CompileObservation,
    Fallback,
    FallbackKind,
    NotObserved,
    Recompile,
)
from pytest_compileguard.plan import Plan
from pytest_compileguard.trace.break_text import BACKEND_FAILED

_LOOK_FOR_SWITCH = (
    "check that the target computes with tensors, and that nothing turns torch.compile off: "
    "TORCH_COMPILE_DISABLE, torch.compiler.set_stance, torch.compiler.disable, a dispatch mode"
)
_FALLBACK_REMEDIES: dict[FallbackKind, str] = {
    "frame_skipped": "move what can't be traced out of the loop, try, with block or generator "
    "around it; there, Dynamo gives up the whole frame",
    "error_suppressed": "torch._dynamo.config.suppress_errors (TORCHDYNAMO_SUPPRESS_ERRORS) lets "
    "code run eager where compiling raises: mend what raises, and leave the option off, so that "
    "such an error is seen",
    "error_caught": "mend what raises while the frame is compiled: code around it catches the "
    "error, and goes on eager",
    "limit_hit": "keep from recompiling what the guards name; "
    "torch._dynamo.config.recompile_limit only delays this",
    "ran_eager": _LOOK_FOR_SWITCH,
    "hindered": "take away what is named: with it, compiled code says little of the target",
    "nothing_compiled": _LOOK_FOR_SWITCH,
}
_OF_BACKEND = (
    "the backend fails, not the tracing: mend what it names, compute that before the call, or keep "
    "it out of the graph by torch.compiler.disable"
)
_OF_NUMBER = (
    "the backend fails where a number is read out of a tensor, by an index or .item(): index by a "
    "tensor of one dimension, table[t.reshape(1)], or pass the number as an int"
)
_READS_NUMBER = ("_local_scalar_dense", "data-dependent expression", "DataDependent")
_EXPLAINING: tuple[FallbackKind, ...] = ("frame_skipped", "error_suppressed", "error_caught")


_CALL_IT = "call what compileguard(target) returned, not the target itself"


def compile_findings(plan: Plan, seen: CompileObservation | NotObserved) -> tuple[Finding, ...]:
    """Judge the facts of compilation against what always holds and against the limits."""
    if isinstance(seen, NotObserved):
        return _unobserved(seen)
    problem = compile_problem(seen)
    breaks = break_findings(plan, seen, compiled=problem is None)
    if problem is None:
        compiled = _compiled(seen)
    else:
        # Where no limit shows the breaks, they stand here: they may be why nothing was compiled.
        shown_already = any(finding.status == "failed" for finding in breaks)
        said = (
            problem.replace(counted(seen.calls, "call"), "the block") if plan.watched else problem
        )
        compiled = _not_compiled(seen, said, () if shown_already else seen.break_sites)
    return (
        compiled,
        _fallbacks(plan, seen, compiled=problem is None),
        *_trace(plan, seen),
        *breaks,
        *_recompiles(plan, seen, compiled=problem is None),
        *inductor_findings(plan, seen, compiled=problem is None),
    )


def compile_problem(seen: CompileObservation | NotObserved) -> str | None:
    """Say why this does not count as compiled, or ``None`` if it does."""
    if isinstance(seen, NotObserved):
        return f"{NOTHING_COMPILED}: {seen.reason}"
    if seen.error is not None:
        return seen.error.strip() or "compiling failed"
    lack = None
    if seen.calls < 1:
        lack = "the target was not called"
    elif seen.graphs < 1:
        lack = f"0 graphs in {counted(seen.calls, 'call')}"
    elif seen.ops < 1:
        lack = f"0 operators in {counted(seen.graphs, 'graph')}"
    return None if lack is None or seen.reused_graphs else f"{NOTHING_COMPILED}: {lack}"


def _unobserved(seen: NotObserved) -> tuple[Finding, ...]:
    message = f"{NOTHING_COMPILED}: {seen.reason}"
    remedy = _CALL_IT if seen.reason == NO_CALL else ""
    return (
        Finding(metric="compiled", status="failed", message=message, remedy=remedy),
        Finding(metric="graph_breaks", status="not_checked", message=NOTHING_COMPILED),
        Finding(metric="recompiles", status="not_checked", message=NOTHING_COMPILED),
    )


def _compiled(seen: CompileObservation) -> Finding:
    message = f"{counted(seen.graphs, 'graph')}, {counted(seen.ops, 'operator')}"
    if seen.reused_graphs:
        message += f", {counted(seen.reused_graphs, 'graph')} compiled before"
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
    return placed(finding, sites)


def _not_compiled_remedy(seen: CompileObservation) -> str:
    if seen.error is not None:
        return seen.error_remedy
    # A break or a skipped frame is the cause, and is shown with advice of its own.
    if own := [f.remedy for f in seen.fallbacks if f.kind == "nothing_compiled" and f.remedy]:
        return own[0]
    # As is code that ran eager for a reason of its own.
    explained = seen.break_sites or any(f.kind in _EXPLAINING or f.remedy for f in seen.fallbacks)
    return "" if explained else _LOOK_FOR_SWITCH


def _fallbacks(plan: Plan, seen: CompileObservation, *, compiled: bool) -> Finding:
    """Fail for any code that ran eager; why nothing at all was compiled stands elsewhere."""
    accepted = _accepted_skips(plan, seen) if compiled else ()
    shown = [f for f in seen.fallbacks if compiled or f.kind != "nothing_compiled"]
    shown = [f for f in shown if f not in accepted]
    if seen.limit_hit and not any(f.kind == "limit_hit" for f in shown):
        shown.append(_unnamed_limit_hit())
    if not shown:
        return _no_fallback(accepted, seen.raised_alike)
    kinds = dict.fromkeys(fallback.kind for fallback in shown)
    refused = [r for r in seen.recompiles if r.refused] if "limit_hit" in kinds else []
    finding = Finding(
        metric="fallbacks",
        status="failed",
        message=f"{counted(len(shown), 'fallback')} to eager",
        observed=len(shown),
        limit=0,
        evidence=(*_fallback_lines(shown), *recompile_lines(refused)),
        remedy=_fallback_remedy(plan, refused, shown, seen.break_sites),
    )
    return placed(finding, shown)


def _no_fallback(accepted: Sequence[Fallback], raised: Sequence[Fallback]) -> Finding:
    told = [f"{counted(len(accepted), 'frame')} given up at accepted graph breaks"] * bool(accepted)
    if raised:
        errors = " or ".join(dict.fromkeys(frame.met for frame in raised))
        told.append(
            f"{counted(len(raised), 'frame')} given up where both sides raise {errors}; torch runs "
            "such code eager in all later calls"
        )
    return Finding(
        metric="fallbacks",
        status="passed",
        message=", ".join(told) or "none",
        observed=0,
        limit=0,
        evidence=_fallback_lines([*accepted, *raised]),
    )


def _fallback_remedy(
    plan: Plan,
    refused: Sequence[Recompile],
    shown: Sequence[Fallback],
    sites: Sequence[BreakSite],
) -> str:
    """Say what to change; where the recompile limit was hit, that is why calls ran eager."""
    limited = any(fallback.kind == "limit_hit" for fallback in shown)
    causes = [f for f in shown if not (limited and f.kind == "ran_eager")]
    advice = [recompile_remedy(refused, plan.arguments)] if refused else []
    advice += [f.remedy or _remedy_of(f, sites) for f in causes]
    return "\n".join(dict.fromkeys(text for text in advice if text))


def _remedy_of(fallback: Fallback, sites: Sequence[BreakSite]) -> str:
    """Advise by the kind; where a backend failed, by what the break there says of it."""
    if fallback.kind != "frame_skipped" or fallback.reason != BACKEND_FAILED:
        return _FALLBACK_REMEDIES[fallback.kind]
    failed = [site for site in sites if site.reason == BACKEND_FAILED]
    # Torch before 2.11 names no line of such a break.
    places = (fallback.line, fallback.frame), (0, fallback.frame)
    told = " ".join(site.hint for site in failed if (site.line, site.function) in places)
    return _OF_NUMBER if any(word in told for word in _READS_NUMBER) else _OF_BACKEND


def _accepted_skips(plan: Plan, seen: CompileObservation) -> tuple[Fallback, ...]:
    """Frames that Dynamo gave up for graph breaks that the author of the test accepts."""
    breaks, limit = facts_of(seen)["graph_breaks"], plan.max_graph_breaks
    skips = tuple(f for f in seen.fallbacks if f.kind == "frame_skipped")
    within = bool(breaks) and limit is not None and breaks <= limit
    allowed = {(site.file, site.line) for site in seen.break_sites if site.allowed}
    # An exception ends a call; that later ones run eager for it, no number of breaks accepts.
    return tuple(f for f in skips if (within and not f.met) or (f.file, f.line) in allowed)


def _unnamed_limit_hit() -> Fallback:
    reason = "the recompile limit was hit"
    return Fallback(kind="limit_hit", call=None, frame="", file="", line=0, reason=reason)


def _fallback_lines(fallbacks: Sequence[Fallback]) -> tuple[str, ...]:
    """Show each fallback once, however many calls it spoiled."""
    calls: dict[tuple[str, str, str, tuple[str, ...]], list[int]] = {}
    for fallback in fallbacks:
        kind, own = fallback.kind.replace("_", " "), fallback.definition or fallback.called_from
        users = tuple(f"  {code_line_text(line)}" for line in (own, fallback.raised) if line)
        key = (kind, fallback_place(fallback), fallback.reason, users)
        calls.setdefault(key, [])
        if fallback.call is not None:
            calls[key].append(fallback.call)
    lines: list[str] = []
    for (kind, where, reason, users), numbers in list(calls.items())[:MOST_LINES]:
        # Whatever is too long for a line is cut, but the places of the user's own code.
        lines += [_fallback_line(kind, where, reason, numbers), *users]
    if len(calls) > MOST_LINES:
        lines.append(f"and {len(calls) - MOST_LINES} more")
    return tuple(lines)


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
    finding = placed(finding, completed)
    return against_limit(finding, count, plan.max_recompiles, seen, compiled=compiled)
