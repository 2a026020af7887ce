"""What was seen: records only, no logic.

Every record is frozen and made of plain values, so that it crosses process
borders (pytest-xdist) and enters the JSON report unchanged. Units stand in the
names. Calls of a sequence are numbered from 0.
"""

from __future__ import annotations

from pytest_compileguard.observation.compiling import (
    BreakSite,
    CacheState,
    CompileObservation,
    EntryReason,
    Fallback,
    FallbackKind,
    FusedKernel,
    GraphCode,
    Recompile,
    RecompileKind,
)
from pytest_compileguard.observation.measuring import (
    Cache,
    Clock,
    GpuState,
    LaunchedKernel,
    LaunchObservation,
    MemoryObservation,
    SpeedObservation,
)
from pytest_compileguard.observation.parity import (
    Departure,
    Extreme,
    GraphPlace,
    Mismatch,
    MismatchKind,
    MismatchPart,
    Outcome,
    ParityObservation,
    Reproduction,
    Trial,
)
from pytest_compileguard.observation.record import (
    NO_CALL,
    CodeLine,
    NotObserved,
    Origin,
    Record,
)

__all__ = [
    "NO_CALL",
    "BreakSite",
    "Cache",
    "CacheState",
    "Clock",
    "CodeLine",
    "CompileObservation",
    "Departure",
    "EntryReason",
    "Extreme",
    "Fallback",
    "FallbackKind",
    "FusedKernel",
    "GpuState",
    "GraphCode",
    "GraphPlace",
    "LaunchObservation",
    "LaunchedKernel",
    "MemoryObservation",
    "Mismatch",
    "MismatchKind",
    "MismatchPart",
    "NotObserved",
    "Observation",
    "Origin",
    "Outcome",
    "ParityObservation",
    "Recompile",
    "RecompileKind",
    "Record",
    "Reproduction",
    "SpeedObservation",
    "Trial",
]

_NOT_MEASURED = NotObserved(reason="not measured")


class Observation(Record):
    """All that one check saw."""

    compile: CompileObservation | NotObserved
    parity: ParityObservation | NotObserved
    speed: SpeedObservation | NotObserved
    memory: MemoryObservation | NotObserved = _NOT_MEASURED
    launches: LaunchObservation | NotObserved = _NOT_MEASURED
