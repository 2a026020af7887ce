"""What the comparison of both sides saw."""

from __future__ import annotations

from typing import Literal

from pytest_compileguard.observation.record import CodeLine, Record

MismatchKind = Literal["value", "kind", "mutation", "aliasing", "gradient", "exception"]
MismatchPart = Literal["output", "structure", "other"]
"""A value that the call returns, how containers of it or of others nest, or anything else."""


class Mismatch(Record):
    """One leaf in which compiled and eager differ."""

    call: int
    path: str
    """Where, in the user's words: ``output['var']``, ``argument 0``, ``gradient of weight``."""
    kind: MismatchKind
    message: str
    """What differs: greatest difference, its index, both values, the tolerance."""
    against: Literal["eager", "reference"] = "eager"
    """What the compiled side was held against: eager, or another implementation."""
    eager_agrees: bool | None = None
    """Whether the eager target agrees with that other implementation where compiled does not."""
    reference_raises: bool = False
    """Whether that other implementation raises where the target, eager, raises nothing."""
    rounding: bool = False
    """Whether rounding alone could make such a difference."""
    part: MismatchPart = "other"
    by_float64: bool = False
    """Whether it is within the tolerance, and only a float64 run tells it from rounding."""


class GraphPlace(Record):
    """One captured graph, and the line of the user's code that it starts from."""

    compile_id: str
    file: str
    line: int
    function: str


class Extreme(Record):
    """The element in which a leaf of the two sides differs most; values as they are printed."""

    index: tuple[int, ...]
    difference: str
    compiled: str
    eager: str
    reference: str | None
    """Of a float64 run of the eager code; ``None``: there is none."""


Outcome = Literal["agrees", "departs", "fails"]


class Trial(Record):
    """One rerun of a failing call."""

    name: str
    """The backend, or the setting, that it ran with."""
    outcome: Outcome
    note: str = ""


class Departure(Record):
    """At which stage of the compiler a failing call first departs from eager."""

    call: int
    stage: str | None
    """The backend that is the first to depart; ``None``: not found."""
    reason: str = ""
    """Why the stage was not found."""
    path: str = ""
    """The first leaf that departs at that stage."""
    message: str = ""
    extreme: Extreme | None = None
    graph: GraphPlace | None = None
    """The first graph that departs; ``None``: not found."""
    graph_number: int = 0
    """Of that graph, from 1 on, in the order of capture; 0: not found."""
    graphs: int = 0
    """Captured in the rerun."""
    only_dynamic: bool = False
    """Whether the call departs only if it is compiled with ``dynamic=True``."""
    trials: tuple[Trial, ...] = ()
    """All reruns, in order."""


class Reproduction(Record):
    """What was saved of a failing call."""

    file: str
    """The program that makes the call again; empty: not written."""
    missing: tuple[str, ...] = ()
    """What has to be filled in before it runs."""
    problem: str = ""
    """Why it was not written."""
    unshown: str = ""
    """Why it can't show the difference, though it makes the call; empty: it can."""


class ParityObservation(Record, tag=True):
    """What the comparison of compiled with eager saw."""

    calls: int
    calls_compared: int
    leaves_compared: int
    gradients_compared: int
    mismatches: tuple[Mismatch, ...]
    disputed: int
    """Leaves outside the tolerance that the float64 reference acquitted."""
    unchecked: tuple[str, ...]
    """What could not be isolated or compared, and why."""
    departure: Departure | None = None
    """Where the first failing call departs; ``None``: no call failed."""
    reproduction: Reproduction | None = None
    """What was saved of that call; ``None``: nobody asked for it."""
    asking: tuple[CodeLine, ...] = ()
    """Lines of the target's own code that ask whether it is compiled, if a call failed."""
