"""Gathers the compile facts of a call sequence, and checks them against torch's counters."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytest_compileguard import dynamo
from pytest_compileguard.allowance import allowed_sites
from pytest_compileguard.code_origin import is_rewritten_assert, is_users, origin
from pytest_compileguard.fallbacks import fallbacks_of, raised_alike
from pytest_compileguard.observation import (
    BreakSite,
    CacheState,
    CodeLine,
    CompileObservation,
    Fallback,
)
from pytest_compileguard.plan import OWN_BACKEND, Plan
from pytest_compileguard.shadow.call import ShadowCall
from pytest_compileguard.source import source_line
from pytest_compileguard.trace.code_digest import graph_codes
from pytest_compileguard.trace.compiles import TraceFacts, read_trace
from pytest_compileguard.trace.frames import WRAPPER_FILE
from pytest_compileguard.trace.inductor import ON_CPU, cudagraph_skips, fused_kernels, kernel_names


def gather_facts(
    calls: Sequence[ShadowCall], plan: Plan, *, target: str, definition: CodeLine | None = None
) -> CompileObservation:
    """Reduce all calls of one target to an observation.

    ``definition`` is where the target itself is defined, if that is known.
    """
    events = [event for call in calls if call.trace for event in call.trace.events]
    facts = read_trace(events, target=target, dynamic=plan.arguments.dynamic)
    moved = [call.counters for call in calls if call.counters]
    left = tuple(dict.fromkeys(line for call in calls if call.trace for line in call.trace.left))
    alike = raised_alike(calls, facts)
    broken = (*_without_raises(facts.break_sites, alike), *_lost_sites(left, facts))
    places = tuple(_placed(site, definition) for site in broken)
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
        break_events=sum(site.events for site in broken),
        recompiles=facts.recompiles,
        left=left,
        fallbacks=tuple(
            _defined(_inlined(f, facts.break_sites), definition)
            for f in fallbacks_of(calls, facts, events)
        ),
        raised_alike=tuple(_defined(_inlined(f, facts.break_sites), definition) for f in alike),
        limit_hit=facts.limit_hit,
        compile_time_s=facts.compile_time_s,
        kernels=sum(c.kernels for c in moved),
        cache_hits=sum(c.cache_hits for c in moved),
        cache_misses=sum(c.cache_misses for c in moved),
        error=error,
        error_remedy=remedy,
        raised=any(call.raised for call in calls),
        unreliable=_disagreements(calls, facts),
        unused_allowances=unused,
        kernel_names=kernel_names(events),
        fused=fused_kernels(events),
        cudagraph_skips=_cudagraph_skips(calls),
        cudagraph_recordings=sum(c.cudagraphs for c in moved),
        cudagraph_rerecordings=sum(c.cudagraphs_again for c in moved),
        inputs=tuple(call.inputs for call in calls if call.inputs is not None),
        graphs_per_call=tuple(facts.graph_calls.count(call.index) for call in calls),
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


def _inlined(fallback: Fallback, sites: Sequence[BreakSite]) -> Fallback:
    """Name the function of the line where Dynamo met it in a call that it inlined."""
    found = fallback.definition
    if found is None or not fallback.file or fallback.file.endswith(WRAPPER_FILE):
        return fallback
    own = fallback.frame if found.file == fallback.file else "?"
    at = ((s.function, (s.file, s.line)) for s in sites)
    name = next((name for name, place in at if place == (fallback.file, fallback.line)), own)
    return msgspec.structs.replace(fallback, function="" if name == fallback.frame else name)


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


def _disagreements(calls: Sequence[ShadowCall], facts: TraceFacts) -> tuple[str, ...]:
    found = []
    foreign = {cid: None for call in calls if call.trace for cid in call.trace.foreign}
    if foreign:
        left_out = f"another thread compiled meanwhile ({', '.join(foreign)}), which is left out"
        return (f"{left_out}; whether the target made it do so can't be told",)
    moved = [call.counters for call in calls if call.counters]
    counted = sum(c.unique_graphs for c in moved)
    # Torch counts a graph once its backend made code of it; the guards of that may fail yet.
    if not 0 <= counted - len(facts.graph_ids) <= facts.failed_graphs:
        found.append(f"the trace has {len(facts.graph_ids)} graphs, torch's counter {counted}")
    breaks = sum(c.graph_breaks for c in moved)
    if breaks and not facts.break_sites and not facts.recompiles:
        found.append(f"the trace has no graph break, torch's counter {breaks}")
    if blind := [str(c.index + 1) for c in calls if _is_blind(c)]:
        found.append(
            f"a profiler was active in call {', '.join(blind)}, so whether compiled code ran "
            "can't be seen"
        )
    return tuple(found)


def _is_blind(call: ShadowCall) -> bool:
    return call.trace is not None and call.trace.regions is None


def _without_raises(sites: Sequence[BreakSite], alike: Sequence[Fallback]) -> tuple[BreakSite, ...]:
    """Leave out where a call raises what it raises eager: nobody has to edit that."""
    raised = {(skip.file, skip.line, skip.reason) for skip in alike}
    return tuple(site for site in sites if (site.file, site.line, site.reason) not in raised)


def _lost_sites(left: Sequence[CodeLine], facts: TraceFacts) -> tuple[BreakSite, ...]:
    """Breaks that older torch does not log: it can't resume after them."""
    if dynamo.LOGS_ALL_BREAKS:
        return ()
    logged = {(site.file, site.line) for site in facts.break_sites}
    # The line that calls into a logged one is the same break.
    logged |= {(line.file, line.line) for site in facts.break_sites for line in site.call_chain}
    return tuple(
        BreakSite(
            file=line.file,
            line=line.line,
            function=line.function,
            source=source_line(line.file, line.line),
            reason="Dynamo can't resume after a break here",
            id=None,
            hint="",
            events=1,
            call=0,
        )
        for line in left
        if (line.file, line.line) not in logged
    )
