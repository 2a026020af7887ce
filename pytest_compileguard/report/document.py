"""The JSON report: a contract that other tools may rely on.

Later versions add fields and never rename one. What was not observed is ``null``, and a
finding says why. Nothing in it depends on the order of the tests or on the time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_compileguard.environment import Environment
from pytest_compileguard.finding import Finding, Speed, Verdict
from pytest_compileguard.metrics import facts_of
from pytest_compileguard.observation import (
    BreakSite,
    CompileObservation,
    Fallback,
    NotObserved,
    ParityObservation,
    Recompile,
    SpeedObservation,
)
from pytest_compileguard.report.plain_text import relative

SCHEMA = 1

Fields = dict[str, Any]


def document(
    verdicts: Sequence[Verdict],
    *,
    environment: Environment | None = None,
    rootpath: Path | None = None,
) -> bytes:
    """Make the report of a session, one check a line.

    Args:
        verdicts: All of the session, in any order.
        environment: Of the session; without it, that of the checks: one on a GPU if any was.
        rootpath: Files below it are named relative to it.
    """
    ordered = sorted(verdicts, key=lambda verdict: (verdict.nodeid, verdict.name))
    shared = environment or _shared_environment(ordered)
    checks = [_check(verdict, shared) for verdict in ordered]
    lines = ",\n".join(_text(check, rootpath) for check in checks)
    head = f'{{"schema": {SCHEMA}, "environment": {_text(_record(shared), rootpath)}'
    body = f"[\n{lines}\n]" if checks else "[]"
    return f'{head}, "checks": {body}}}\n'.encode("ascii")


def _shared_environment(verdicts: Sequence[Verdict]) -> Environment | None:
    known = [verdict.environment for verdict in verdicts if verdict.environment is not None]
    return next((e for e in known if e.device_type != "cpu"), known[0] if known else None)


def _check(verdict: Verdict, shared: Environment | None) -> Fields:
    observation = verdict.observation
    seen = observation.compile
    sites: tuple[BreakSite, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    if isinstance(seen, CompileObservation):
        sites, recompiles, fallbacks = seen.break_sites, seen.recompiles, seen.fallbacks
    return {
        "nodeid": verdict.nodeid,
        "name": verdict.name,
        "outcome": verdict.outcome,
        "fails": verdict.fails,
        "strict": verdict.strict,
        "recordable": verdict.recordable,
        "backend": verdict.backend,
        "mode": verdict.mode,
        # Only where a check ran elsewhere than the others: on the CPU beside a GPU.
        "environment": None if verdict.environment == shared else _record(verdict.environment),
        "observed": _observed(verdict),
        "graph_breaks": [_record(site) for site in sites],
        "recompiles": [_record(recompile) for recompile in recompiles],
        "fallbacks": [_record(fallback) for fallback in fallbacks],
        "unreliable": seen.unreliable if isinstance(seen, CompileObservation) else [],
        "inductor": _inductor(seen),
        "mismatches": _mismatches(observation.parity),
        "departure": _departure(observation.parity),
        "reproduction": _reproduction(observation.parity),
        "findings": [_record(finding) for finding in verdict.findings],
        "samples": _samples(observation.speed),
    }


def _record(record: msgspec.Struct | None) -> Fields | None:
    fields: Fields | None = msgspec.to_builtins(record)
    return fields


def _observed(verdict: Verdict) -> Fields:
    return {
        **_facts(verdict.observation.compile),
        "parity": _parity(verdict.findings),
        **_speed(verdict.speed),
        "device_speedup": verdict.device_speed.speedup if verdict.device_speed else None,
        "peak_memory_bytes": None,
    }


def _facts(seen: CompileObservation | NotObserved) -> Fields:
    if isinstance(seen, NotObserved):
        return dict.fromkeys(_FACTS)
    values = {
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
        "error": seen.error,
    }
    return {name: values[name] for name in _FACTS}


_FACTS = (
    "calls",
    "graphs",
    "ops",
    "graph_breaks",
    "break_events",
    "recompiles",
    "fallbacks",
    "limit_hit",
    "graph_ops",
    "guards",
    "backward_graphs",
    "compile_time_s",
    "kernels",
    "cache_hits",
    "cache_misses",
    "error",
)
_SPEED = ("speedup", "speedup_low", "speedup_high", "eager_ms", "compiled_ms", "pairs")


def _inductor(seen: CompileObservation | NotObserved) -> Fields | None:
    if isinstance(seen, NotObserved):
        return None
    return {
        "kernel_names": seen.kernel_names,
        "cudagraph_skips": seen.cudagraph_skips,
        "cudagraph_recordings": seen.cudagraph_recordings,
        "cudagraph_rerecordings": seen.cudagraph_rerecordings,
    }


def _parity(findings: Sequence[Finding]) -> str:
    """Say ``passed`` only of a comparison that was made in full."""
    statuses = [finding.status for finding in findings if finding.metric == "parity"]
    return statuses[0] if statuses and statuses[0] in ("passed", "failed") else "not_checked"


def _speed(speed: Speed | None) -> Fields:
    return {name: None if speed is None else getattr(speed, name) for name in _SPEED}


def _mismatches(seen: ParityObservation | NotObserved) -> list[Fields | None]:
    if isinstance(seen, NotObserved):
        return []
    return [_record(mismatch) for mismatch in seen.mismatches]


def _departure(seen: ParityObservation | NotObserved) -> Fields | None:
    return None if isinstance(seen, NotObserved) else _record(seen.departure)


def _reproduction(seen: ParityObservation | NotObserved) -> Fields | None:
    return None if isinstance(seen, NotObserved) else _record(seen.reproduction)


def _samples(seen: SpeedObservation | NotObserved) -> Fields | None:
    """Give the raw samples, so that numbers can be derived anew."""
    return None if isinstance(seen, NotObserved) else _record(seen)


def _text(value: object, rootpath: Path | None) -> str:
    return json.dumps(_portable(value, rootpath), allow_nan=False)


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
