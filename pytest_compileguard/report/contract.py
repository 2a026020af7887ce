"""What the JSON report holds: typed records, from which its published schema is made.

Every other form of the report (Markdown, annotations, HTML, properties) is made from
these records, whether they come from a run or from a file.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pytest_compileguard.environment import Environment
from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.finding import Artifacts, Finding, GeneratedCode, Status
from pytest_compileguard.observation import (
    BreakSite,
    Cache,
    Clock,
    Departure,
    Fallback,
    FusedKernel,
    GpuState,
    LaunchedKernel,
    Mismatch,
    Recompile,
    Record,
    Reproduction,
)

SCHEMA = 1


class Observed(Record):
    """The numbers of one check; what was not observed is null."""

    calls: int | None = None
    graphs: int | None = None
    ops: int | None = None
    graph_breaks: int | None = None
    break_events: int | None = None
    recompiles: int | None = None
    fallbacks: int | None = None
    limit_hit: bool | None = None
    graph_ops: tuple[int, ...] | None = None
    """Captured operations of each graph, in the order in which they were compiled."""
    guards: int | None = None
    """Guards of all graphs together."""
    backward_graphs: int | None = None
    """Graphs whose backward was compiled too."""
    compile_time_s: float | None = None
    kernels: int | None = None
    cache_hits: int | None = None
    cache_misses: int | None = None
    cache_state: Literal["cold", "warm", "unknown"] | None = None
    """Whether torch compiled all anew."""
    error: str | None = None
    parity: Literal["passed", "failed", "not_checked"] = "not_checked"
    clock: Clock | None = None
    """The clock of the speedup and of the times: the one that is gated."""
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    eager_ms: float | None = None
    compiled_ms: float | None = None
    pairs: int | None = None
    device_speedup: float | None = None
    """With launch gaps hidden; null on the CPU."""
    peak_memory_bytes: int | None = None
    """Device memory that a compiled call takes at its peak, beyond what was taken before it."""
    eager_peak_memory_bytes: int | None = None
    kernels_per_call: int | None = None
    """Kernels that one warm compiled call launches on a GPU."""
    eager_kernels_per_call: int | None = None
    copies_per_call: int | None = None
    """Copies and fills of memory that it launches beside them."""
    eager_copies_per_call: int | None = None


class Speeds(Record):
    """A speedup with its interval, on one clock."""

    clock: Clock
    speedup: float | None
    low: float | None
    high: float | None
    confidence: float
    """Probability that the interval holds."""


class Samples(Record):
    """Raw samples: seconds a call, one value a pair. A value that JSON lacks is null."""

    clock: Literal["cuda_event", "perf_counter"]
    device: str
    call: int
    calls_per_block: int
    warmup: int
    eager_s: tuple[float | None, ...]
    compiled_s: tuple[float | None, ...]
    device_eager_s: tuple[float | None, ...] = ()
    device_compiled_s: tuple[float | None, ...] = ()
    threads: int = 1
    cpus: int | None = None
    """Logical CPUs that the process might run on; null if not known."""
    cache: Cache = "warm"
    """Whether each call met a warm L2 cache or a flushed one."""
    restored: tuple[str, ...] = ()
    """What the call mutates, and was brought back before each block."""
    void: str | None = None
    """Why the samples don't count, else null."""
    notes: tuple[str, ...] = ()
    gpu_before: GpuState | None = None
    """What the driver said of the GPU before the samples; null on the CPU, and if not read."""
    gpu_after: GpuState | None = None
    gpu_unread: str | None = None
    """Why that could not be read, else null."""
    attempts: int = 1
    """How often samples were taken, as something disturbed them."""
    disturbed: tuple[str, ...] = ()
    """What disturbed the last attempt, whose samples these are."""


class Inductor(Record):
    """What inductor made of the graphs."""

    kernel_names: tuple[str, ...] = ()
    fused: tuple[FusedKernel, ...] = ()
    """Kernels of which inductor says what they are made of; of those for a CPU it does not."""
    cudagraph_skips: tuple[str, ...] = ()
    cudagraph_recordings: int = 0
    cudagraph_rerecordings: int = 0


class Launched(Record):
    """Kernels that one warm call of each side launched on a GPU, most often launched first."""

    eager: tuple[LaunchedKernel, ...] = ()
    compiled: tuple[LaunchedKernel, ...] = ()


class CheckReport(Record):
    """One check: one guarded target of one test."""

    nodeid: str
    name: str
    outcome: Status
    fails: bool
    """Whether the test fails by it."""
    strict: bool
    recordable: bool
    backend: str
    mode: str | None
    file: str = ""
    """File of the test, relative to pytest's root folder."""
    line: int | None = None
    """Line of the test, from 1; null if it is not known."""
    expected: bool = False
    """Whether the test is marked to fail, and did: pytest counts it as xfailed."""
    environment: Environment | None = None
    """Only where the check ran elsewhere than the others."""
    observed: Observed = Observed()
    graphs_per_call: tuple[int, ...] = ()
    graph_breaks: tuple[BreakSite, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    unreliable: tuple[str, ...] = ()
    inductor: Inductor | None = None
    code: GeneratedCode | None = None
    """Digests of the generated code, held against the baseline; null where none is known."""
    launched: Launched | None = None
    """Null where nobody asked how many kernels a call launches."""
    mismatches: tuple[Mismatch, ...] = ()
    departure: Departure | None = None
    """Where the first failing call departs from eager."""
    reproduction: Reproduction | None = None
    """What was saved of that call."""
    artifacts: Artifacts | None = None
    """What was saved of the compiler: its trace, graphs, guards and code."""
    findings: tuple[Finding, ...] = ()
    speeds: tuple[Speeds, ...] = ()
    samples: Samples | None = None


class Report(Record):
    """One run. Later versions add fields and never rename one."""

    schema: Literal[1]
    environment: Environment | None
    checks: tuple[CheckReport, ...]


def read_report(data: bytes, *, origin: str = "the report") -> Report:
    """Read a JSON report, of this version or one that added fields.

    Raises:
        CompileGuardError: It is no such report; the message says where and what.
    """
    try:
        return msgspec.json.decode(data, type=Report)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CompileGuardError(
            f"{origin}: is no report of compileguard with schema {SCHEMA}: {error}; "
            "make one with --compileguard-json=PATH"
        ) from None


def json_schema() -> dict[str, Any]:
    """Make the JSON Schema that is published beside this file."""
    schema = msgspec.json.schema(Report)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Report of pytest-compileguard",
        **schema,
    }
