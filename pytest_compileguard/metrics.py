"""The numbers of a check: direction, tolerance, and what a change for the worse does.

This is the one table: ``verdict`` judges by it, baselines store what it lists,
and the README's table follows it.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from pytest_compileguard.observation import CompileObservation, Record

Policy = Literal["gate", "warn", "show"]
Change = Literal["better", "worse", "same"]

NOISE_THRESHOLD = 0.1
"""Relative change of a timing that counts as nothing, unless the user says otherwise."""
SHORT_CALL_MS = 1.0
"""Below this, what a call costs besides its kernels decides the wall clock."""
_SHORT_CALL_FACTOR = 3.0
_MOST_NOISE = 0.5


class Metric(Record):
    """One number that is stored in baselines."""

    name: str
    label: str
    better: Literal["lower", "higher"]
    policy: Policy
    """What a change for the worse does: ``gate`` fails, ``warn`` is listed at the end of the
    run, ``show`` is told among the details."""
    meaning: str
    tolerance: float = 0.0
    """Relative change that counts as nothing. Facts are exact."""

    def change(self, low: float, high: float, stored: float) -> Change:
        """Compare an interval with a stored number; a number by itself is both its ends."""
        if high < stored * (1 - self.tolerance):
            return "better" if self.better == "lower" else "worse"
        if low > stored * (1 + self.tolerance):
            return "worse" if self.better == "lower" else "better"
        return "same"

    def tolerating(self, tolerance: float) -> Metric:
        """Give the same metric with the tolerance of one run."""
        return msgspec.structs.replace(self, tolerance=tolerance)


GRAPH_BREAKS = Metric(
    name="graph_breaks",
    label="graph breaks",
    better="lower",
    policy="gate",
    meaning="places at which Dynamo stops tracing; what somebody has to edit",
)
FACTS: tuple[Metric, ...] = (
    GRAPH_BREAKS,
    Metric(
        name="break_events",
        label="break events",
        better="lower",
        policy="gate",
        meaning="frames split by those breaks when first compiled, once for each caller",
    ),
    Metric(
        name="recompiles",
        label="recompiles",
        better="lower",
        policy="gate",
        meaning="frames compiled again since a guard failed, over the whole call sequence",
    ),
    Metric(
        name="graphs",
        label="graphs",
        better="lower",
        policy="gate",
        meaning="compiled graphs, recompiled ones included",
    ),
    Metric(
        name="ops",
        label="captured ops",
        better="higher",
        policy="show",
        meaning="operators in all graphs together",
    ),
    Metric(
        name="kernels",
        label="kernels",
        better="lower",
        policy="warn",
        meaning="kernels that inductor generated, compared with the same backend and mode only",
    ),
)

NEW_BREAK_SITES = Metric(
    name="new_break_sites",
    label="new break sites",
    better="lower",
    policy="warn",
    meaning="breaks at places that the baseline does not know, though there are not more of them",
)

SPEEDUP = Metric(
    name="speedup",
    label="speedup",
    better="higher",
    policy="gate",
    tolerance=NOISE_THRESHOLD,
    meaning="eager time / compiled time on the wall clock; its whole interval must be worse",
)
DEVICE_SPEEDUP = Metric(
    name="device_speedup",
    label="device speedup",
    better="higher",
    policy="gate",
    tolerance=NOISE_THRESHOLD,
    meaning="the same with launch gaps hidden; on GPUs",
)
TIMINGS: tuple[Metric, ...] = (
    SPEEDUP,
    DEVICE_SPEEDUP,
    Metric(
        name="eager_ms",
        label="eager time",
        better="lower",
        policy="show",
        tolerance=NOISE_THRESHOLD,
        meaning="milliseconds of an eager call; absolute times only advise",
    ),
    Metric(
        name="compiled_ms",
        label="compiled time",
        better="lower",
        policy="show",
        tolerance=NOISE_THRESHOLD,
        meaning="milliseconds of a compiled call",
    ),
)
TABLE = (*FACTS, NEW_BREAK_SITES, *TIMINGS)


class Timed(Protocol):
    """What says how long the calls were, and by which clock."""

    @property
    def clock(self) -> str: ...
    @property
    def eager_ms(self) -> float: ...
    @property
    def compiled_ms(self) -> float: ...


def noise_threshold(plain: float, timed: Timed) -> float:
    """Allow short calls more on the wall clock: what they cost differs from process to process.

    On an H200, calls of 0.03 to 0.05 ms were seen to move by 17 % between two processes of
    the same code, on the wall clock; on the device clock, by less than 1 %.
    """
    short = timed.clock == "wall" and min(timed.eager_ms, timed.compiled_ms) < SHORT_CALL_MS
    wider = min(_SHORT_CALL_FACTOR * plain, _MOST_NOISE)
    return max(plain, wider) if short else plain


def facts_of(observation: CompileObservation) -> dict[str, int]:
    """Reduce an observation to the numbers of ``FACTS``, by name."""
    return {
        "graph_breaks": sum(not site.allowed for site in observation.break_sites),
        "break_events": observation.break_events,
        "recompiles": completed_recompiles(observation),
        "graphs": observation.graphs,
        "ops": observation.ops,
        "kernels": observation.kernels,
    }


def completed_recompiles(observation: CompileObservation) -> int:
    """Count recompiles without the attempt that the recompile limit refused."""
    return sum(not recompile.refused for recompile in observation.recompiles)
