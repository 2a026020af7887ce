"""The numbers of a check, each with its direction and what a change of it means.

This is the one table: ``verdict`` judges by it, baselines store what it lists,
and the README's table follows it.
"""

from __future__ import annotations

from typing import Literal

from pytest_compileguard.observation import CompileObservation, Record


class Metric(Record):
    """One number that is stored in baselines."""

    name: str
    label: str
    better: Literal["lower", "higher"]
    policy: Literal["gate", "show"]
    """``gate``: worse than the baseline fails; ``show``: a change is only told."""
    meaning: str


FACTS: tuple[Metric, ...] = (
    Metric(
        name="graph_breaks",
        label="graph breaks",
        better="lower",
        policy="gate",
        meaning="places at which Dynamo stops tracing; what somebody has to edit",
    ),
    Metric(
        name="break_events",
        label="break events",
        better="lower",
        policy="gate",
        meaning="frames split by those breaks, counted once for each caller",
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
        policy="show",
        meaning="kernels that inductor generated",
    ),
)

SPEEDUP = Metric(
    name="speedup",
    label="speedup",
    better="higher",
    policy="gate",
    meaning="eager time / compiled time, beyond the noise threshold and the interval",
)


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
