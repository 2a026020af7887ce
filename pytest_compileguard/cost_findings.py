"""Judges what compiled code costs: the time to compile it."""

from __future__ import annotations

import msgspec

from pytest_compileguard.finding import Finding
from pytest_compileguard.limit_findings import NOTHING_COMPILED
from pytest_compileguard.observation import CompileObservation, NotObserved
from pytest_compileguard.plan import Plan
from pytest_compileguard.wording import counted, seconds_text

_START_COLD = (
    "give torch an empty cache: TORCHINDUCTOR_CACHE_DIR=<empty folder>, or none: "
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES=1"
)
_COMPILE_LESS = (
    "compile less: fewer recompiles (dynamic=True), fewer graphs, a cheaper mode; "
    "TORCH_LOGS=dynamo ends with what took the time"
)


def compile_time_findings(
    plan: Plan, seen: CompileObservation | NotObserved, *, compiled: bool
) -> tuple[Finding, ...]:
    """Judge the time of compilation if there is a limit; what came from a cache never passes."""
    limit = plan.max_compile_time_s
    if limit is None:
        return ()
    finding = Finding(
        metric="compile_time", status="not_checked", message=NOTHING_COMPILED, limit=limit
    )
    if isinstance(seen, NotObserved) or not compiled:
        return (finding,)
    return (_judged(finding, seen, limit),)


def _judged(finding: Finding, seen: CompileObservation, limit: float) -> Finding:
    replace, time_s = msgspec.structs.replace, seen.compile_time_s
    if seen.unreliable:
        message = f"can't be trusted: {'; '.join(seen.unreliable)}"
        return replace(finding, status="failed", message=message)
    if not time_s > 0:
        return replace(finding, message="torch tells no time for what it compiled")
    if time_s > limit:  # from a cache or not: cold, it would not be less
        return replace(
            finding,
            status="failed",
            message=f"{seconds_text(time_s)}, limit {seconds_text(limit)}",
            observed=time_s,
            evidence=(_made(seen),),
            remedy=_COMPILE_LESS,
        )
    if seen.cache_state != "cold":
        message = f"{seconds_text(time_s)}, but {_why_not_cold(seen)}"
        return replace(finding, message=message, observed=time_s, remedy=_START_COLD)
    message = f"{seconds_text(time_s)} of {seconds_text(limit)}, cold"
    return replace(finding, status="passed", message=message, observed=time_s)


def _made(seen: CompileObservation) -> str:
    caches = f"{counted(seen.cache_hits, 'hit')}, {counted(seen.cache_misses, 'miss', 'misses')}"
    graphs, recompiles = counted(seen.graphs, "graph"), counted(len(seen.recompiles), "recompile")
    return f"{graphs}, {recompiles}; torch's caches: {caches}"


def _why_not_cold(seen: CompileObservation) -> str:
    if seen.cache_state == "warm":
        return f"not cold: {counted(seen.cache_hits, 'hit')} in torch's caches"
    return "whether it was cold can't be told: torch did not look its caches up"
