"""Verdicts as a run would give them, to be stored as baselines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from pytest_compileguard.baseline.entries import FactsFile, TimingsFile
from pytest_compileguard.baseline.entry_text import encode
from pytest_compileguard.environment import Environment
from pytest_compileguard.finding import Speed, Verdict
from pytest_compileguard.observation import (
    BreakSite,
    CompileObservation,
    NotObserved,
    Observation,
)

NODEID = "pkg/tests/test_x.py::test_mlp"


def make_environment(torch: str = "2.13.0+cu130", **changes: Any) -> Environment:
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


CPU = make_environment(
    "2.13.0+cpu", device_type="cpu", device_name="Some CPU", triton=None, cuda=None, driver=None
)


def make_site(**changes: Any) -> BreakSite:
    site = BreakSite(
        file="models/mlp.py",
        line=41,
        function="forward",
        source="print(x.shape)",
        reason="Failed to trace builtin operator",
        id="GB0059",
        hint="",
        events=1,
        call=0,
    )
    return msgspec.structs.replace(site, **changes)


def make_compilation(*sites: BreakSite, **changes: Any) -> CompileObservation:
    seen = CompileObservation(
        calls=3,
        graphs=1 + len(sites),
        ops=12,
        break_sites=sites,
        break_events=len(sites),
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
        inputs=("float32[32, 64]", "float32[32, 64]", "float32[48, 64]"),
    )
    return msgspec.structs.replace(seen, **changes)


def make_speed(speedup: float = 1.31, **changes: Any) -> Speed:
    speed = Speed(
        clock="wall",
        speedup=speedup,
        speedup_low=speedup * 0.99,
        speedup_high=speedup * 1.01,
        confidence=0.99,
        eager_ms=0.31,
        compiled_ms=0.31 / speedup,
        pairs=400,
    )
    return msgspec.structs.replace(speed, **changes)


def make_verdict(
    nodeid: str = NODEID,
    *,
    seen: CompileObservation | NotObserved | None = None,
    speed: Speed | None = None,
    environment: Environment | None = CPU,
    **changes: Any,
) -> Verdict:
    nothing = NotObserved(reason="not asked for")
    verdict = Verdict(
        nodeid=nodeid,
        name="ToyModel",
        backend="inductor",
        mode=None,
        outcome="passed",
        strict=False,
        findings=(),
        observation=Observation(
            compile=make_compilation() if seen is None else seen, parity=nothing, speed=nothing
        ),
        speed=speed,
        device_speed=None,
        environment=environment,
        recordable=True,
        limits={"max_graph_breaks": 1},
    )
    return msgspec.structs.replace(verdict, **changes)


def sealed(text: str) -> str:
    """Seal the entries of a text anew, as a run that had these results would have."""
    raw = json.loads(text)
    file_type: type[Any] = TimingsFile if raw["kind"] == "timings" else FactsFile
    return encode(msgspec.convert(raw, file_type)).decode()


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".lock" not in path.parts
    }
