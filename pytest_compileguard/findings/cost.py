"""Judges what compiled code costs: compile time, device memory, and kernels a call."""

from __future__ import annotations

import msgspec

from pytest_compileguard.finding import Finding, Status
from pytest_compileguard.findings.limit import uncompiled_text
from pytest_compileguard.findings.wording import (
    bytes_text,
    counted,
    factor_digits,
    factor_text,
    seconds_text,
)
from pytest_compileguard.metrics import completed_recompiles
from pytest_compileguard.observation import (
    CompileObservation,
    LaunchObservation,
    MemoryObservation,
    NotObserved,
    Observation,
)
from pytest_compileguard.plan import Plan

_START_COLD = (
    "give torch an empty cache: TORCHINDUCTOR_CACHE_DIR=<empty folder>, or none: "
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES=1"
)
_COMPILE_LESS = (
    "compile less: fewer recompiles, fewer graphs, a cheaper mode; "
    "TORCH_LOGS=dynamo ends with what took the time"
)


_MEMORY_REMEDY = (
    'see what is kept: torch.cuda.memory._record_memory_history(); mode="reduce-overhead" and '
    '"max-autotune" keep the memory of their CUDA graphs'
)
_FUSION_REMEDY = "see which operators do not fuse: TORCH_LOGS=fusion,output_code"


def cost_findings(plan: Plan, seen: Observation, *, compiled: bool) -> tuple[Finding, ...]:
    """Judge each cost that has a limit; one that could not be measured never passes."""
    return (
        *compile_time_findings(plan, seen.compile, compiled=compiled),
        *_memory(plan, seen.memory),
        *_kernels(plan, seen.launches),
    )


def compile_time_findings(
    plan: Plan, seen: CompileObservation | NotObserved, *, compiled: bool
) -> tuple[Finding, ...]:
    """Judge the time of compilation if there is a limit; what came from a cache never passes."""
    limit = plan.max_compile_time_s
    if limit is None:
        return ()
    finding = Finding(
        metric="compile_time", status="not_checked", message=uncompiled_text(seen), limit=limit
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
    graphs, recompiles = (
        counted(seen.graphs, "graph"),
        counted(completed_recompiles(seen), "recompile"),
    )
    return f"{graphs}, {recompiles}; torch's caches: {caches}"


def _why_not_cold(seen: CompileObservation) -> str:
    if seen.cache_state == "warm":
        return f"not cold: {counted(seen.cache_hits, 'hit')} in torch's caches"
    return "whether it was cold can't be told: torch did not look its caches up"


def _memory(plan: Plan, seen: MemoryObservation | NotObserved) -> tuple[Finding, ...]:
    limit = plan.max_peak_memory_ratio
    if limit is None:
        return ()
    finding = Finding(metric="peak_memory", status="not_checked", message="", limit=limit)
    if isinstance(seen, NotObserved):
        return (_unmeasured(finding, plan, seen),)
    replace = msgspec.structs.replace
    if not seen.eager_bytes and not seen.compiled_bytes:
        return (replace(finding, message="neither side takes device memory"),)
    finding = replace(finding, evidence=(memory_text(seen),), remedy=_MEMORY_REMEDY)
    if not seen.eager_bytes:
        message = f"{bytes_text(seen.compiled_bytes)}, where an eager call takes none"
        return (replace(finding, status="failed", message=message),)
    ratio = seen.compiled_bytes / seen.eager_bytes
    digits = factor_digits(limit, ratio)
    finding = replace(finding, observed=ratio)
    if ratio > limit:
        message = f"{factor_text(ratio, digits)}, limit {factor_text(limit, digits)}"
        return (replace(finding, status="failed", message=message),)
    message = f"{factor_text(ratio, digits)} of {factor_text(limit, digits)}"
    return (replace(finding, status="passed", message=message, remedy=""),)


def memory_text(seen: MemoryObservation) -> str:
    """Say how much device memory a call of each side takes."""
    text = f"eager {bytes_text(seen.eager_bytes)}, compiled {bytes_text(seen.compiled_bytes)}"
    graphs = f" ({bytes_text(seen.graph_bytes)} kept by CUDA graphs)" if seen.graph_bytes else ""
    return f"{text}{graphs} a call"


def _kernels(plan: Plan, seen: LaunchObservation | NotObserved) -> tuple[Finding, ...]:
    limit = plan.max_kernels_per_call
    if limit is None:
        return ()
    finding = Finding(metric="kernels_per_call", status="not_checked", message="", limit=limit)
    if isinstance(seen, NotObserved):
        return (_unmeasured(finding, plan, seen),)
    count = seen.compiled_kernels
    finding = msgspec.structs.replace(finding, observed=count, evidence=(launches_text(seen),))
    if count > limit:
        message = f"{count}, limit {limit}"
        return (
            msgspec.structs.replace(
                finding, status="failed", message=message, remedy=_FUSION_REMEDY
            ),
        )
    return (msgspec.structs.replace(finding, status="passed", message=f"{count} of {limit}"),)


def launches_text(seen: LaunchObservation) -> str:
    """Say what a call of each side launches."""
    sides = (
        ("eager", seen.eager_kernels, seen.eager_copies),
        ("compiled", seen.compiled_kernels, seen.compiled_copies),
    )
    texts = [
        f"{side} {counted(kernels, 'kernel')}"
        + (f" and {counted(copies, 'copy', 'copies')}" if copies else "")
        for side, kernels, copies in sides
    ]
    return f"{', '.join(texts)} a call"


def _unmeasured(finding: Finding, plan: Plan, seen: NotObserved) -> Finding:
    """Say that a limit was not judged: nothing is wrong where it can't be, or is not wanted."""
    expected = plan.untimed is not None or seen.unavailable
    status: Status = "not_checked" if expected else "inconclusive"
    return msgspec.structs.replace(finding, status=status, message=plan.untimed or seen.reason)
