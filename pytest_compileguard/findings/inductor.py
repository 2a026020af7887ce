"""Judges what inductor generated: kernels, and whether CUDA graphs were used as promised."""

from __future__ import annotations

import msgspec

from pytest_compileguard.finding import Finding
from pytest_compileguard.findings.limit import against_limit
from pytest_compileguard.findings.wording import counted, first_of
from pytest_compileguard.observation import CompileObservation
from pytest_compileguard.plan import Plan
from pytest_compileguard.trace.inductor import ON_CPU


def inductor_findings(
    plan: Plan, seen: CompileObservation, *, compiled: bool
) -> tuple[Finding, ...]:
    """Judge kernels if there is a limit, and CUDA graphs if they were promised and skipped."""
    return (*_kernels(plan, seen, compiled=compiled), *_cuda_graphs(plan, seen))


def _kernels(plan: Plan, seen: CompileObservation, *, compiled: bool) -> tuple[Finding, ...]:
    if plan.max_kernels is None:
        return ()
    if reason := _no_inductor(plan):
        return (Finding(metric="kernels", status="not_checked", message=reason),)
    finding = Finding(
        metric="kernels",
        status="passed",
        message="",
        observed=seen.kernels,
        limit=plan.max_kernels,
        evidence=first_of(list(seen.kernel_names)),
        remedy="see which operators no longer fuse: TORCH_LOGS=fusion",
    )
    return against_limit(finding, seen.kernels, plan.max_kernels, seen, compiled=compiled)


def _no_inductor(plan: Plan) -> str | None:
    name = plan.arguments.backend_name
    return None if name == "inductor" else f"backend {name} is not inductor"


def _cuda_graphs(plan: Plan, seen: CompileObservation) -> tuple[Finding, ...]:
    reasons = [reason for reason in seen.cudagraph_skips if reason != ON_CPU]
    skips, limit = len(reasons), plan.max_cudagraph_skips
    nothing = not skips and not seen.cudagraph_recordings
    on_cpu = nothing and ON_CPU in seen.cudagraph_skips
    if limit is None and (on_cpu or not plan.arguments.promises_cuda_graphs):
        return ()
    if on_cpu:
        text = f"CUDA graphs need a GPU: {ON_CPU}"
        return (Finding(metric="cudagraph_skips", status="not_checked", message=text),)
    if nothing:
        reason = _no_inductor(plan) or _NOTHING_RECORDED.format(counted(seen.calls, "call"))
        return (Finding(metric="cudagraph_skips", status="not_checked", message=reason),)
    finding = Finding(
        metric="cudagraph_skips",
        status="passed",
        message=f"{skips}, {'no limit' if limit is None else f'limit {limit}'}",
        observed=skips,
        limit=limit,
        evidence=(*first_of(list(dict.fromkeys(reasons))), *_recorded(seen)),
    )
    replace = msgspec.structs.replace
    remedy = "the reason names the line; the mode gains nothing without CUDA graphs"
    if limit is None and skips:
        mode = plan.arguments.mode or "the options"
        text = f"{mode} promises CUDA graphs, they were skipped {counted(skips, 'time')}"
        return (replace(finding, status="inconclusive", message=text, remedy=remedy),)
    if limit is not None and skips > limit:
        return (replace(finding, status="failed", remedy=remedy),)
    return (finding,)


_NOTHING_RECORDED = (
    "no CUDA graph was recorded or skipped in {}: the first call warms up, the second records, "
    "so make at least three"
)


def _recorded(seen: CompileObservation) -> tuple[str, ...]:
    if not seen.cudagraph_recordings:
        return ()
    text = f"{counted(seen.cudagraph_recordings, 'CUDA graph')} recorded"
    if again := seen.cudagraph_rerecordings:
        text += f", {again} of them again, for inputs of another size or at another address"
    return (text,)
