"""The JSON report: a contract that other tools may rely on.

Later versions add fields and never rename one. What was not observed is ``null``, and a
finding says why. Nothing in it depends on the order of the tests or on the time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from pytest_compileguard.environment import Environment
from pytest_compileguard.finding import Finding, Speed, Verdict
from pytest_compileguard.metrics import facts_of
from pytest_compileguard.observation import (
    CompileObservation,
    LaunchObservation,
    MemoryObservation,
    NotObserved,
    Observation,
    ParityObservation,
    SpeedObservation,
)
from pytest_compileguard.report.contract import (
    SCHEMA,
    CheckReport,
    Inductor,
    Launched,
    Observed,
    Samples,
    Speeds,
)
from pytest_compileguard.report.plain_text import relative

Fields = dict[str, Any]


def document(
    verdicts: Sequence[Verdict],
    *,
    environment: Environment | None = None,
    rootpath: Path | None = None,
    lines: Mapping[str, int] | None = None,
) -> bytes:
    """Make the report of a session, one check a line.

    Args:
        verdicts: All of the session, in any order.
        environment: Of the session; without it, that of the checks: one on a GPU if any was.
        rootpath: Files below it are named relative to it.
        lines: The line of each test, from 1, by node id.
    """
    ordered = sorted(verdicts, key=lambda verdict: (verdict.nodeid, verdict.name))
    shared = environment or _shared_environment(ordered)
    known = lines or {}
    checks = [check_report(v, shared, line=known.get(v.nodeid)) for v in ordered]
    texts = ",\n".join(_text(check, rootpath) for check in checks)
    head = f'{{"schema": {SCHEMA}, "environment": {_text(shared, rootpath)}'
    body = f"[\n{texts}\n]" if checks else "[]"
    return f'{head}, "checks": {body}}}\n'.encode("ascii")


def check_report(
    verdict: Verdict, shared: Environment | None = None, *, line: int | None = None
) -> CheckReport:
    """Make the record of one check.

    Args:
        verdict: The check, judged.
        shared: Environment of the session, which is not repeated for each check.
        line: Line of the test, from 1.
    """
    seen = verdict.observation.compile
    check = CheckReport(
        nodeid=verdict.nodeid,
        name=verdict.name,
        outcome=verdict.outcome,
        fails=verdict.fails,
        expected=verdict.fails and verdict.expected,
        strict=verdict.strict,
        recordable=verdict.recordable,
        backend=verdict.backend,
        mode=verdict.mode,
        file=verdict.nodeid.partition("::")[0],
        line=line,
        environment=None if verdict.environment == shared else verdict.environment,
        observed=_observed(verdict),
        **_parity_records(verdict.observation.parity),
        artifacts=verdict.artifacts,
        code=verdict.code,
        launched=_launched(verdict.observation.launches),
        findings=verdict.findings,
        speeds=tuple(_speeds(s) for s in (verdict.speed, verdict.device_speed) if s is not None),
        samples=_samples(verdict.observation.speed),
    )
    return check if isinstance(seen, NotObserved) else _with_facts(check, seen)


def _with_facts(check: CheckReport, seen: CompileObservation) -> CheckReport:
    return msgspec.structs.replace(
        check,
        graphs_per_call=seen.graphs_per_call,
        graph_breaks=seen.break_sites,
        recompiles=seen.recompiles,
        fallbacks=seen.fallbacks,
        unreliable=seen.unreliable,
        inductor=Inductor(
            kernel_names=seen.kernel_names,
            fused=seen.fused,
            cudagraph_skips=seen.cudagraph_skips,
            cudagraph_recordings=seen.cudagraph_recordings,
            cudagraph_rerecordings=seen.cudagraph_rerecordings,
        ),
    )


def _shared_environment(verdicts: Sequence[Verdict]) -> Environment | None:
    known = [verdict.environment for verdict in verdicts if verdict.environment is not None]
    return next((e for e in known if e.device_type != "cpu"), known[0] if known else None)


def _observed(verdict: Verdict) -> Observed:
    return Observed(
        **_facts(verdict.observation.compile),
        parity=_parity(verdict.findings),
        **_speed(verdict.speed),
        device_speedup=verdict.device_speed.speedup if verdict.device_speed else None,
        **_usage(verdict.observation),
    )


def _usage(seen: Observation) -> Fields:
    """Give what one warm call of each side takes; nothing where it could not be measured."""
    usage: Fields = {}
    if isinstance(seen.memory, MemoryObservation):
        usage["peak_memory_bytes"] = seen.memory.compiled_bytes
        usage["eager_peak_memory_bytes"] = seen.memory.eager_bytes
    if isinstance(seen.launches, LaunchObservation):
        usage["kernels_per_call"] = seen.launches.compiled_kernels
        usage["eager_kernels_per_call"] = seen.launches.eager_kernels
        usage["copies_per_call"] = seen.launches.compiled_copies
        usage["eager_copies_per_call"] = seen.launches.eager_copies
    return usage


def _launched(seen: LaunchObservation | NotObserved) -> Launched | None:
    if isinstance(seen, NotObserved):
        return None
    return Launched(eager=seen.eager_launched, compiled=seen.compiled_launched)


def _facts(seen: CompileObservation | NotObserved) -> Fields:
    if isinstance(seen, NotObserved):
        return {}
    return {
        "calls": seen.calls,
        **facts_of(seen),
        "fallbacks": len(seen.fallbacks),
        "limit_hit": seen.limit_hit,
        "graph_ops": seen.graph_ops,
        "guards": seen.guards,
        "backward_graphs": seen.backward_graphs,
        "compile_time_s": seen.compile_time_s,
        "cache_hits": seen.cache_hits,
        "cache_misses": seen.cache_misses,
        "cache_state": seen.cache_state,
        "error": seen.error,
    }


_SPEED = ("clock", "speedup", "speedup_low", "speedup_high", "eager_ms", "compiled_ms", "pairs")


def _parity(findings: Sequence[Finding]) -> Literal["passed", "failed", "not_checked"]:
    """Say ``passed`` only of a comparison that was made in full."""
    statuses = [finding.status for finding in findings if finding.metric == "parity"]
    if statuses and statuses[0] in ("passed", "failed"):
        return statuses[0]
    return "not_checked"


def _speed(speed: Speed | None) -> Fields:
    return {} if speed is None else {name: getattr(speed, name) for name in _SPEED}


def _speeds(speed: Speed) -> Speeds:
    return Speeds(
        clock=speed.clock,
        speedup=speed.speedup,
        low=speed.speedup_low,
        high=speed.speedup_high,
        confidence=speed.confidence,
    )


def _parity_records(seen: ParityObservation | NotObserved) -> Fields:
    if isinstance(seen, NotObserved):
        return {}
    names = ("mismatches", "departure", "reproduction")
    return {name: getattr(seen, name) for name in names}


def _samples(seen: SpeedObservation | NotObserved) -> Samples | None:
    """Give the raw samples, so that numbers can be derived anew."""
    if isinstance(seen, NotObserved):
        return None
    return Samples(**{name: getattr(seen, name) for name in Samples.__struct_fields__})


def _text(record: msgspec.Struct | None, rootpath: Path | None) -> str:
    return json.dumps(_portable(msgspec.to_builtins(record), rootpath), allow_nan=False)


def _portable(value: Any, rootpath: Path | None) -> Any:
    """Replace what JSON lacks, infinity and NaN, and what only this machine has, its paths."""
    if isinstance(value, dict):
        return {key: _portable(inner, rootpath) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_portable(inner, rootpath) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return relative(value, rootpath).encode("utf-8", "replace").decode("utf-8")
    return value
