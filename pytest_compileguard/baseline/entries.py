"""What the files of a baseline hold: entries, and what is told of how they were recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from msgspec import Meta

from pytest_compileguard.metrics import FACTS
from pytest_compileguard.observation import Record

SCHEMA: Literal[3] = 3

# Counts stay exact in every JSON reader; a time of 1e15 ms is an error of measurement.
Count = Annotated[int, Meta(ge=0, le=2**53)]
Positive = Annotated[float, Meta(gt=0, lt=1e15)]
FactsColumn = Annotated[str, Meta(pattern=r"^\S+ torch [0-9]{1,9}\.[0-9]{1,9}$")]
CodeKey = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,8}( [a-z]{1,40})?$")]
CodeDigest = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}$")]
TimingColumn = Annotated[str, Meta(pattern=r"^torch [0-9]{1,9}\.[0-9]{1,9}$")]

LimitValue = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)] | tuple[str, ...]


class Stored(Record, forbid_unknown_fields=True):
    """Base of all that is stored. An unknown field is refused: rewriting would lose it."""


class Recorded(Stored):
    """Where and with what an entry was recorded. Told, never compared."""

    torch: str
    python: str
    plugin: str
    device: str
    """Model of the GPU, or of the processor."""
    triton: str | None
    cuda: str | None
    driver: str | None
    platform: str
    commit: str | None = None
    """Of the repository: the one that was checked out; ``None``: none, or not known."""
    limits: Mapping[str, LimitValue] | None = None
    """What the check had to keep; ``None``: recorded before that was stored."""


class FactsEntry(Stored):
    """The exact numbers of one check on one device type and one minor version of torch."""

    graph_breaks: Count
    break_events: Count
    recompiles: Count
    graphs: Count
    ops: Count
    kernels: Count
    breaks: tuple[str, ...]
    """The break sites, one line each: place, reason and identifier."""
    backend: str
    mode: str | None
    calls: Count
    recorded: Recorded
    inputs: tuple[str, ...] | None = None
    """Shapes and dtypes of the tensors passed in, call by call, equal ones in a row together.
    ``None``: recorded before they were stored, so that they can't be compared."""
    seal: str | None = None
    """Of the text only; see ``entry_text``."""

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers of ``metrics.FACTS``, by name."""
        return {metric.name: getattr(self, metric.name) for metric in FACTS}


class TimingEntry(Stored):
    """The speed of one check on one device model and one minor version of torch."""

    speedup: Positive
    speedup_low: Positive
    speedup_high: Positive
    eager_ms: Positive
    compiled_ms: Positive
    pairs: Count
    clock: Literal["wall", "device"]
    backend: str
    mode: str | None
    recorded: Recorded
    device_speedup: Positive | None = None
    """With launch gaps hidden; ``None`` where there is no such clock."""
    inputs: tuple[str, ...] | None = None
    """As in ``FactsEntry``."""
    code: Mapping[CodeKey, CodeDigest] | None = None
    """Digests of the generated code that was last recorded at this speed, by graph and part:
    ``1 forward``. They advise: nothing fails by them. ``None``: not known."""
    seal: str | None = None


class FactsFile(Stored):
    """The facts of one test module: check, then ``cpu torch 2.13``."""

    kind: Literal["facts"]
    schema: Literal[3]
    entries: Mapping[str, Mapping[FactsColumn, FactsEntry]]


class TimingsFile(Stored):
    """The timings of one device model in one folder of tests: check, then ``torch 2.13``."""

    kind: Literal["timings"]
    schema: Literal[3]
    entries: Mapping[str, Mapping[TimingColumn, TimingEntry]]


NO_FACTS = FactsFile(kind="facts", schema=SCHEMA, entries={})
NO_TIMINGS = TimingsFile(kind="timings", schema=SCHEMA, entries={})

F = TypeVar("F", FactsFile, TimingsFile)


def significant(number: float) -> float:
    """Round to 4 significant digits: more is noise, and makes restless diffs."""
    return float(f"{number:.4g}")


def printable(text: str) -> str:
    """Escape what would break a line of a terminal, or deceive its reader."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
