"""Tells which code ran eager though it was to be compiled, and why nothing at all was compiled."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytest_compileguard import dynamo
from pytest_compileguard.observation import CodeLine, Fallback, FallbackKind
from pytest_compileguard.shadow.call import ShadowCall
from pytest_compileguard.trace.compiles import TraceFacts
from pytest_compileguard.trace.event import TraceEvent

_NEVER_LOOKED = (
    "Dynamo never looked at the target: a generator (return a list or a tuple), a builtin, code "
    "that it always skips, or a module of one of torch's own classes that is compiled in place "
    "(use torch.compile)"
)
_BEFORE_BLOCK = (
    "start the block before the recompiles that led to this, so that they are seen, or have "
    "TORCH_LOGS=recompiles name them"
)
_IN_BLOCK = (
    "call what is compiled within the block, and check that it is compiled: that nothing turns "
    "torch.compile off, and that no eager copy is called"
)
_RAISE_LAST = (
    "once an exception leaves a function while it is traced, torch runs that function eager in all "
    "later calls: raise it outside of what is compiled, catch it within, or make calls that raise "
    "the last ones of the sequence"
)


def raised_alike(calls: Sequence[ShadowCall], facts: TraceFacts) -> tuple[Fallback, ...]:
    """Find frames given up for the very exception that their call raises, compiled as eager.

    Torch runs such a frame eager for good. So where a later call returns, it is a fallback.
    """
    by_index = {call.index: call for call in calls}
    last_returning = max((call.index for call in calls if call.error is None), default=-1)
    return tuple(
        skip
        for skip in facts.skipped
        if skip.call is not None
        and skip.call > last_returning
        and skip.met == _error_of_both(by_index[skip.call])
    )


def fallbacks_of(
    calls: Sequence[ShadowCall], facts: TraceFacts, events: Sequence[TraceEvent]
) -> tuple[Fallback, ...]:
    """Gather what of a call sequence, or of a watched block, ran eager."""
    # Where compiling failed with an error, that is told, not the frame it failed in.
    failed = {call.index for call in calls if call.compile_error}
    alike = raised_alike(calls, facts)
    found = [_advised(s) for s in facts.skipped if s.call not in failed and s not in alike]
    # What the call itself raises, and Dynamo met first, is no way back to eager.
    raising = {call.index for call in calls if call.error is not None}
    found += [frame for frame in facts.raised if frame.call not in failed | raising]
    if facts.limit_hit:
        found.append(_limit_hit(facts))
    elif missed := _missed(calls, facts):
        found.append(
            _no_more(missed, [t for c in calls if c.trace for t in c.trace.refused_before])
        )
    eager = [c for c in calls if c.trace and _ran_eager(c, facts)]
    hindrances = sorted({text for call in calls for text in call.hindrances})
    if not facts.graph_ids and not failed:
        if hindrances:
            found += [_whole("nothing_compiled", None, reason) for reason in hindrances]
        elif not found:
            reason, remedy = _why_nothing(calls, events, facts)
            found.append(_whole("nothing_compiled", None, reason, remedy))
    elif eager:
        which = ", ".join(str(call.index + 1) for call in eager)
        reason = f"{len(eager)} of {len(calls)} calls ran no compiled code: {which}"
        reason += f" ({'; '.join(hindrances)})" if hindrances else ""
        met = any(skip.met for skip in found if skip.call is not None)
        found.append(_whole("ran_eager", eager[0].index, reason, _RAISE_LAST if met else ""))
    elif errors := _errors_of_all(calls):
        reason = f"each call raised {errors} on both sides, so nothing that it gives was compared"
        found.append(_whole("ran_eager", None, reason, "add a call that returns"))
    elif hindrances:
        # A foreign stance hides recompiles even where code was compiled before.
        found += [_whole("hindered", None, text) for text in hindrances]
    return tuple(found)


def _advised(skip: Fallback) -> Fallback:
    return msgspec.structs.replace(skip, remedy=_RAISE_LAST) if skip.met else skip


def _missed(calls: Sequence[ShadowCall], facts: TraceFacts) -> int:
    """Count frames of a watched block that ran eager without any attempt to compile them.

    Guarded calls start without any code, so that the trace tells of all such frames.
    """
    watched = [call.trace for call in calls if call.trace and call.inputs is None]
    tried = facts.failed if dynamo.LOOKS_UP_NEW_FRAMES else facts.failed_again
    if dynamo.LOOKS_UP_NEW_FRAMES and not any(trace.refused_before for trace in watched):
        return 0
    return max(sum(trace.missed for trace in watched) - tried, 0)


def _no_more(count: int, refused: Sequence[CodeLine]) -> Fallback:
    """Tell of frames for which Dynamo has code that does not fit, and makes no more."""
    reason = (
        f"{count} frame{'' if count == 1 else 's'} ran eager in the block: the code compiled "
        "before does not fit, and Dynamo compiles no more of it"
    )
    if refused:
        places = "; ".join(f"{r.function} ({r.file}:{r.line})" for r in refused[:3])
        reason += f"; the recompile limit was hit before by {places}"
    return _whole("ran_eager", None, reason, _BEFORE_BLOCK)


def _ran_eager(call: ShadowCall, facts: TraceFacts) -> bool:
    if call.trace is None or call.compile_error is not None or call.error is not None:
        return False
    regions = call.trace.regions
    return regions is not None and not set(regions) & set(facts.graph_ids)


def _limit_hit(facts: TraceFacts) -> Fallback:
    refused = [r for r in facts.recompiles if r.refused]
    first = refused[0] if refused else None
    return Fallback(
        kind="limit_hit",
        call=first.call if first else None,
        frame=first.frame if first else "?",
        file=first.file if first else "?",
        line=first.line if first else 0,
        reason="torch's recompile limit was reached; from then on the frame runs eager",
    )


def _whole(kind: FallbackKind, call: int | None, reason: str, remedy: str = "") -> Fallback:
    return Fallback(kind=kind, call=call, frame="", file="", line=0, reason=reason, remedy=remedy)


def _why_nothing(
    calls: Sequence[ShadowCall], events: Sequence[TraceEvent], facts: TraceFacts
) -> tuple[str, str]:
    """Say why there is no graph, and what to do where that is not what mostly helps."""
    if errors := _errors_of_all(calls):
        which = "the call" if len(calls) == 1 else "each call"
        reason = f"{which} raised {errors} on both sides before anything was compiled"
        return reason, "add a call that returns: of compiled code that never ran, nothing is known"
    if facts.break_sites:
        return (
            "the target was traced, but no tensor operation stands before or after its break",
            "",
        )
    if any(event.metrics for event in events):
        return "the target was traced, but it has no tensor operation that could be compiled", ""
    if all(call.inputs is None for call in calls):
        return "nothing compiled ran in the block", _IN_BLOCK
    return _NEVER_LOOKED, ""


def _errors_of_all(calls: Sequence[ShadowCall]) -> str:
    """Name the errors that all calls raise, compiled as eager; empty if one does not."""
    errors = dict.fromkeys(_error_of_both(call) for call in calls)
    return " or ".join(error for error in errors if error) if all(errors) else ""


def _error_of_both(call: ShadowCall) -> str | None:
    """Name the error that a call raises, compiled as eager; ``None`` if it does not."""
    if call.error is None or call.parity is None or call.parity.mismatches:
        return None
    return type(call.error).__name__
