"""The outcome of judging: findings, and the verdict of one check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pytest_compileguard.environment import Environment
from pytest_compileguard.observation import Observation, Record

Status = Literal["passed", "failed", "inconclusive", "not_checked"]


class Finding(Record):
    """One metric judged."""

    metric: str
    """``compiled``, ``fallbacks``, ``graph_breaks``, ``recompiles``, ``parity``, ``speedup``,
    ``isolation``, ``baseline`` or ``baseline.<metric>``."""
    status: Status
    message: str
    """One sentence."""
    observed: float | int | str | None = None
    limit: float | int | str | None = None
    baseline: float | int | str | None = None
    evidence: tuple[str, ...] = ()
    """Lines that prove it: places, guards, leaves, samples."""
    remedy: str = ""
    """What to change; empty if there is no good advice."""
    file: str = ""
    """Where it is to be changed; empty if no place is known."""
    line: int = 0
    warns: bool = False
    """Whether it is listed at the end of the run although nothing fails by it."""
    declined: bool = False
    """Whether the options of this run switched it off: then strictness does not ask for it."""

    def fails(self, *, strict: bool) -> bool:
        """Whether the check fails by it."""
        return self.status == "failed" or (strict and self.status != "passed" and not self.declined)


class SavedText(Record):
    """A captured graph, its guards or its code, in a file."""

    kind: Literal["graph", "guards", "code"]
    compile_id: str
    """``frame/compile``, as in torch's logs."""
    call: int
    """Call of the sequence in which it came."""
    file: str
    part: str = ""
    """``forward``, ``backward`` or ``inference`` where generated code tells."""


class Artifacts(Record):
    """What was saved of one check for those who look into it."""

    folder: str
    """Empty: nothing could be saved."""
    trace: str = ""
    """Torch's structured trace of all calls, as ``TORCH_TRACE`` writes it and ``tlparse`` reads
    it; empty: there was none."""
    texts: tuple[SavedText, ...] = ()
    page: str = ""
    """The report of ``tlparse``; empty: it is not installed, or failed."""
    problems: tuple[str, ...] = ()
    """What could not be made, and why."""


class ComparedCode(Record):
    """A digest of the code that inductor generated for one graph, and what is stored of it."""

    graph: int
    """Number of the graph, from 1 on, in the order of compiling."""
    compile_id: str
    """``frame/compile``, as in torch's logs."""
    part: str
    """``forward``, ``backward`` or ``inference``; empty where the code does not tell."""
    digest: str
    """Equal for equal code, whatever process and cache it came from."""
    baseline: str | None = None
    """That of the baseline; ``None``: not known."""

    @property
    def same(self) -> bool | None:
        """Whether it is the code of the baseline; ``None``: not known."""
        return None if self.baseline is None else self.digest == self.baseline

    @property
    def name(self) -> str:
        """Names it as torch and saved files do: ``graph 0/0 (forward)``."""
        return f"graph {self.compile_id} ({self.part})" if self.part else f"graph {self.compile_id}"


class GeneratedCode(Record):
    """The code that inductor generated for one check, held against the baseline."""

    graphs: tuple[ComparedCode, ...]
    """Each graph and part of it whose code is known."""
    same: bool | None = None
    """Whether all of it is the code of the baseline; ``None``: not known of each graph."""


class Speed(Record):
    """The numbers that ``stats`` derives from the samples of one check."""

    clock: Literal["wall", "device"]
    speedup: float
    speedup_low: float
    speedup_high: float
    confidence: float
    eager_ms: float
    compiled_ms: float
    pairs: int


class Verdict(Record):
    """All findings of one check, with what they rest on."""

    nodeid: str
    name: str
    backend: str
    mode: str | None
    outcome: Status
    strict: bool
    """Whether ``inconclusive`` and ``not_checked`` fail the test."""
    findings: tuple[Finding, ...]
    observation: Observation
    speed: Speed | None
    """On the gated clock; ``None``: not timed."""
    device_speed: Speed | None
    """With launch gaps hidden; ``None``: no such clock, or not timed."""
    environment: Environment | None
    """``None``: nothing ran that could tell."""
    recordable: bool
    """Whether the result may be written as a baseline."""
    limits: Mapping[str, float | int | tuple[str, ...]] = {}
    """What it had to keep, of the limits that were given."""
    expected: bool = False
    """Whether the test is marked to fail and did: pytest counts it as xfailed."""
    artifacts: Artifacts | None = None
    """What was saved of it; ``None``: nobody asked for it."""
    code: GeneratedCode | None = None
    """``None``: no generated code is known of it."""

    @property
    def key(self) -> str:
        """Identity of the check in baselines and reports."""
        return f"{self.nodeid}::{self.name}"

    @property
    def fails(self) -> bool:
        """Whether the test fails by it."""
        if self.strict and self.outcome in ("inconclusive", "not_checked"):
            return True
        return any(finding.fails(strict=self.strict) for finding in self.findings)
