"""Gathers the compile facts of a call sequence, and checks them against torch's counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from pytest_compileguard import dynamo
from pytest_compileguard.allowance import allowed_sites
from pytest_compileguard.code_origin import is_rewritten_assert, is_users, origin
from pytest_compileguard.observation import (
    BreakSite,
    CacheState,
    CodeLine,
    CompileObservation,
    Fallback,
    FallbackKind,
)
from pytest_compileguard.plan import OWN_BACKEND, Plan
from pytest_compileguard.shadow.call import ShadowCall
from pytest_compileguard.source import source_line
from pytest_compileguard.trace.code_digest import graph_codes
from pytest_compileguard.trace.compiles import WRAPPER_FILE, TraceFacts, read_trace
from pytest_compileguard.trace.event import TraceEvent
from pytest_compileguard.trace.inductor import ON_CPU, cudagraph_skips, fused_kernels, kernel_names

_NEVER_LOOKED = (
    "Dynamo never looked at the target: a generator, a builtin, code that it always skips, or "
    "a module of one of torch's own classes that is compiled in place (use torch.compile)"
)
_IN_BLOCK = (
    "call what is compiled within the block, and check that it is compiled: that nothing turns "
    "torch.compile off, and that no eager copy is called"
)


def gather_facts(
    calls: Sequence[ShadowCall], plan: Plan, *, target: str, definition: CodeLine | None = None
) -> CompileObservation:
    """Reduce all calls of one target to an observation.

    ``definition`` is where the target itself is defined, if that is known.
    """
    events = [event for call in calls if call.trace for event in call.trace.events]
    facts = read_trace(events, target=target, dynamic=plan.arguments.dynamic)
    moved = [call.counters for call in calls if call.counters]
    lost = _lost_sites(facts)
    places = tuple(_placed(site, definition) for site in facts.break_sites + lost)
    sites, unused = allowed_sites(places, plan.allow_graph_breaks)
    error, remedy = _error(calls)
    return CompileObservation(
        calls=len(calls),
        graphs=len(facts.graph_ids),
        ops=sum(facts.ops),
        graph_ops=facts.ops,
        guards=facts.guards,
        backward_graphs=facts.backward_graphs,
        break_sites=sites,
        break_events=facts.break_events + len(lost),
        recompiles=facts.recompiles,
        fallbacks=tuple(_defined(f, definition) for f in _fallbacks(calls, facts, events)),
        limit_hit=facts.limit_hit,
        compile_time_s=facts.compile_time_s,
        kernels=sum(c.kernels for c in moved),
        cache_hits=sum(c.cache_hits for c in moved),
        cache_misses=sum(c.cache_misses for c in moved),
        error=error,
        error_remedy=remedy,
        unreliable=_disagreements(calls, facts),
        unused_allowances=unused,
        kernel_names=kernel_names(events),
        fused=fused_kernels(events),
        cudagraph_skips=_cudagraph_skips(calls),
        cudagraph_recordings=sum(c.cudagraphs for c in moved),
        cudagraph_rerecordings=sum(c.cudagraphs_again for c in moved),
        inputs=tuple(call.inputs for call in calls if call.inputs is not None),
        graphs_per_call=_graphs_per_call(calls, facts, events),
        cache_state=_cache_state(plan, moved),
        code=graph_codes(events, facts.graph_ids),
    )


def _cudagraph_skips(calls: Sequence[ShadowCall]) -> tuple[str, ...]:
    """Why CUDA graphs were skipped; torch's counter tells how often, its log and trace why."""
    logged = [reason for call in calls if call.trace for reason in call.trace.cudagraph_skips]
    traced = [r for call in calls if call.trace for r in cudagraph_skips(call.trace.events)]
    told = [*logged, *(reason for reason in traced if reason not in logged)]
    counted = sum(call.counters.cudagraph_skips for call in calls if call.counters)
    return (*told, *[ON_CPU] * (counted - len(told)))


def _graphs_per_call(
    calls: Sequence[ShadowCall], facts: TraceFacts, events: Sequence[TraceEvent]
) -> tuple[int, ...]:
    """Count graphs in the call in which they were compiled, at their last attempt."""
    kept = set(facts.graph_ids)
    made = {e.compile_id: e.call for e in events if "dynamo_output_graph" in e.metadata}
    counts = Counter(call for compile_id, call in made.items() if compile_id in kept)
    return tuple(counts[call.index] for call in calls)


def _cache_state(plan: Plan, moved: Sequence[dynamo.Counters]) -> CacheState:
    """Say whether torch compiled all anew. Only inductor caches; other backends always do."""
    if any(c.cache_hits for c in moved):
        return "warm"
    if plan.arguments.backend_name not in ("inductor", OWN_BACKEND) or dynamo.caches_disabled():
        return "cold"
    # Without a look-up, kernels may still have been found on disk.
    looked_up = any(c.cache_misses for c in moved)
    return "cold" if looked_up and not any(c.cache_bypasses for c in moved) else "unknown"


def _placed(site: BreakSite, target: CodeLine | None) -> BreakSite:
    """Say whose code it is, whether pytest had a hand in it, and which target torch wrapped."""
    wrapped = not site.called_from and site.file.endswith(WRAPPER_FILE)
    return msgspec.structs.replace(
        site,
        called_from=_users(target) if wrapped else site.called_from,
        origin=origin(site.file),
        rewritten_assert=is_rewritten_assert(site.file, site.line),
    )


def _defined(fallback: Fallback, target: CodeLine | None) -> Fallback:
    """Keep the definition of the function that ran eager only where its place is of others."""
    found = fallback.definition
    if found is not None and found.file.endswith(WRAPPER_FILE):
        found = target
    foreign = bool(fallback.file) and not is_users(fallback.file)
    known = _users(found) if foreign else ()
    return msgspec.structs.replace(
        fallback,
        definition=known[0] if known else None,
        called_from=fallback.called_from if foreign and not known else None,
    )


def _users(line: CodeLine | None) -> tuple[CodeLine, ...]:
    if line is None or not is_users(line.file):
        return ()
    text = line.source or source_line(line.file, line.line)
    return (msgspec.structs.replace(line, source=text),)


def _error(calls: Sequence[ShadowCall]) -> tuple[str | None, str]:
    for call in calls:
        if call.problem:
            return f"call {call.index + 1}: {call.problem}", ""
        if call.compile_error:
            return f"call {call.index + 1}: {call.compile_error[0]}", call.compile_error[1]
    return None, ""


def _fallbacks(
    calls: Sequence[ShadowCall], facts: TraceFacts, events: Sequence[TraceEvent]
) -> tuple[Fallback, ...]:
    # Where compiling failed with an error, that is told, not the frame it failed in.
    failed = {call.index for call in calls if call.compile_error}
    found = [skip for skip in facts.skipped if skip.call not in failed]
    # What the call itself raises, and Dynamo met first, is no way back to eager.
    raising = {call.index for call in calls if call.error is not None}
    found += [frame for frame in facts.raised if frame.call not in failed | raising]
    if facts.limit_hit:
        found.append(_limit_hit(facts))
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
        found.append(_whole("ran_eager", eager[0].index, reason))
    elif hindrances:
        # A foreign stance hides recompiles even where code was compiled before.
        found += [_whole("hindered", None, text) for text in hindrances]
    return tuple(found)


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
    if facts.break_events:
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
    alike = (call.error and call.parity and not call.parity.mismatches for call in calls)
    if not all(alike):
        return ""
    return " or ".join(dict.fromkeys(type(call.error).__name__ for call in calls))


def _disagreements(calls: Sequence[ShadowCall], facts: TraceFacts) -> tuple[str, ...]:
    found = []
    foreign = {cid: None for call in calls if call.trace for cid in call.trace.foreign}
    if foreign:
        left_out = f"another thread compiled meanwhile ({', '.join(foreign)}), which is left out"
        return (f"{left_out}; whether the target made it do so can't be told",)
    moved = [call.counters for call in calls if call.counters]
    counted = sum(c.unique_graphs for c in moved)
    if counted != len(facts.graph_ids):
        found.append(f"the trace has {len(facts.graph_ids)} graphs, torch's counter {counted}")
    breaks = sum(c.graph_breaks for c in moved)
    if breaks and not facts.break_events and not facts.recompiles:
        found.append(f"the trace has no graph break, torch's counter {breaks}")
    if blind := [str(c.index + 1) for c in calls if _is_blind(c)]:
        found.append(
            f"a profiler was active in call {', '.join(blind)}, so whether compiled code ran "
            "can't be seen"
        )
    return tuple(found)


def _is_blind(call: ShadowCall) -> bool:
    return call.trace is not None and call.trace.regions is None


def _lost_sites(facts: TraceFacts) -> tuple[BreakSite, ...]:
    """Breaks that torch before 2.11 does not log: it can't resume after them."""
    logged = {(site.file, site.line) for site in facts.break_sites}
    unique = dict.fromkeys(b for b in dynamo.lost_breaks() if (b.file, b.line) not in logged)
    return tuple(
        BreakSite(
            file=b.file,
            line=b.line,
            function=b.function,
            source=source_line(b.file, b.line),
            reason="Dynamo can't resume after a break here",
            id=None,
            hint="",
            events=1,
            call=0,
        )
        for b in unique
    )
