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
from tests import records

NODEID = "pkg/tests/test_x.py::test_mlp"


CPU = records.make_environment(
    "2.13.0+cpu", device_type="cpu", device_name="Some CPU", triton=None, cuda=None, driver=None
)


INPUTS = ("float32[32, 64]", "float32[32, 64]", "float32[48, 64]")


def make_site(**changes: Any) -> BreakSite:
    return records.make_site(**{"file": "models/mlp.py", "hint": "", **changes})


def make_compilation(*sites: BreakSite, **changes: Any) -> CompileObservation:
    return records.make_compilation(*sites, **{"inputs": INPUTS, **changes})


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
