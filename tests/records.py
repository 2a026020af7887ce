"""Records of checks as runs make them: a test changes what it is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from pytest_compileguard.baseline.entries import FactsEntry, Recorded, TimingEntry
from pytest_compileguard.environment import Environment
from pytest_compileguard.metrics import facts_of
from pytest_compileguard.observation import (
    BreakSite,
    CompileObservation,
    Fallback,
    Mismatch,
    ParityObservation,
    Recompile,
    SpeedObservation,
)
from pytest_compileguard.plan import CompileArguments, Plan

NODEID = "tests/test_mlp.py::test_mlp"
RECORDED = Recorded(
    torch="2.13.0",
    python="3.12.1",
    plugin="0.1.0",
    device="NVIDIA H200",
    triton="3.6.0",
    cuda="13.0",
    driver="580.1",
    platform="linux-x86_64",
)


def make_environment(torch: str = "2.13.0", **changes: Any) -> Environment:
    environment = Environment(
        device_type="cuda",
        device_name="NVIDIA H200",
        device_count=1,
        torch=torch,
        triton="3.6.0",
        cuda="13.0",
        driver="580.1",
        python="3.12.1",
        plugin="0.1.0",
        platform="linux-x86_64",
        cpu_count=16,
    )
    return msgspec.structs.replace(environment, **changes)


def make_plan(**changes: Any) -> Plan:
    plan = Plan(
        rootpath=Path("/repo"),
        nodeid=NODEID,
        name="ToyModel",
        arguments=CompileArguments(),
        own_arguments=(),
        max_graph_breaks=0,
        max_recompiles=0,
        min_speedup=1.2,
        rtol=None,
        atol=None,
        warmup=10,
        max_time_s=1.0,
        noise_threshold=0.1,
        untimed=None,
        strict=False,
        update_baseline=None,
    )
    return msgspec.structs.replace(plan, **changes)


def make_site(**changes: Any) -> BreakSite:
    site = BreakSite(
        file="/repo/models/mlp.py",
        line=41,
        function="forward",
        source="print(x.shape)",
        reason="Failed to trace builtin operator",
        id="GB0059",
        hint="move the call out of the compiled region",
        events=1,
        call=0,
    )
    return msgspec.structs.replace(site, **changes)


def make_recompile(**changes: Any) -> Recompile:
    recompile = Recompile(
        call=1,
        frame="forward",
        file="/repo/models/mlp.py",
        line=40,
        compile_id="0/1",
        guard="tensor 'x' size mismatch at index 0. expected 32, actual 48",
        subject="x.size(0)",
        before="32",
        after="48",
        kind="automatic_dynamic",
    )
    return msgspec.structs.replace(recompile, **changes)


def make_fallback(**changes: Any) -> Fallback:
    fallback = Fallback(
        kind="frame_skipped",
        call=0,
        frame="forward",
        file="/repo/models/mlp.py",
        line=40,
        reason="graph break in a loop",
    )
    return msgspec.structs.replace(fallback, **changes)


def make_compilation(*sites: BreakSite, **changes: Any) -> CompileObservation:
    sites = changes.pop("break_sites", sites)
    recompiles = changes.get("recompiles", ())
    seen = CompileObservation(
        calls=3,
        graphs=1 + len(sites) + len(recompiles),
        ops=12,
        break_sites=sites,
        break_events=sum(site.events for site in sites),
        recompiles=(),
        fallbacks=(),
        limit_hit=False,
        compile_time_s=1.5,
        kernels=2,
        cache_hits=0,
        cache_misses=1,
        error=None,
        error_remedy="",
        unreliable=(),
    )
    return msgspec.structs.replace(seen, **changes)


def make_mismatch(**changes: Any) -> Mismatch:
    mismatch = Mismatch(call=1, path="output['var']", kind="value", message="differs by 0.5")
    return msgspec.structs.replace(mismatch, **changes)


def make_parity(**changes: Any) -> ParityObservation:
    seen = ParityObservation(
        calls=3,
        calls_compared=3,
        leaves_compared=6,
        gradients_compared=4,
        mismatches=(),
        disputed=0,
        unchecked=(),
    )
    return msgspec.structs.replace(seen, **changes)


def make_speed(
    ratio: float = 1.3, spread: float = 0.0, *, device: float | None = None, **changes: Any
) -> SpeedObservation:
    """Make 40 pairs: their interval is from ``ratio - spread`` to ``ratio + spread``."""
    if device is not None:
        changes["device_eager_s"] = (0.0005 * device,) * 40
        changes["device_compiled_s"] = (0.0005,) * 40
    ratios = (ratio - spread, ratio + spread) * 20
    seen = SpeedObservation(
        clock="cuda_event",
        device="cuda:0",
        call=0,
        calls_per_block=10,
        warmup=10,
        eager_s=tuple(0.001 * ratio for ratio in ratios),
        compiled_s=(0.001,) * 40,
    )
    return msgspec.structs.replace(seen, **changes)


def make_facts(seen: CompileObservation | None = None, **changes: Any) -> FactsEntry:
    numbers: dict[str, Any] = facts_of(seen or make_compilation())
    entry = FactsEntry(
        **numbers,
        breaks=(),
        backend="inductor",
        mode=None,
        calls=3,
        recorded=RECORDED,
    )
    return msgspec.structs.replace(entry, **changes)


def make_timing(speedup: float = 1.3, **changes: Any) -> TimingEntry:
    entry = TimingEntry(
        speedup=speedup,
        speedup_low=speedup,
        speedup_high=speedup,
        eager_ms=1.3,
        compiled_ms=1.0,
        pairs=40,
        clock="wall",
        backend="inductor",
        mode=None,
        recorded=RECORDED,
    )
    return msgspec.structs.replace(entry, **changes)
