"""What was seen: records only, no logic.

Every record is frozen and made of plain values, so that it crosses process
borders (pytest-xdist) and enters the JSON report unchanged. Units stand in the
names. Calls of a sequence are numbered from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options: Any) -> Callable[[type], type]:
        """Leave the class as it is: only type checkers need to know (in typing from 3.11 on)."""
        return lambda kind: kind


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records."""


Origin = Literal["torch", "third party", "test", "package"]


NO_CALL = "the test made no guarded call"
"""Why nothing was observed of a target that was guarded and never called."""


class NotObserved(Record, tag=True):
    """A phase that saw nothing, and why."""

    reason: str
    unavailable: bool = False
    """Whether this machine can't observe it at all, however often it is tried."""


class CodeLine(Record):
    """One line of the user's own code that something in other code belongs to."""

    file: str
    line: int
    function: str
    source: str
    """The text of the line, stripped; empty if the file can't be read."""
    role: Literal["call", "definition", "raise"] = "call"
    """Whether the line calls that code, defines the function that is meant, or raises the error."""


class BreakSite(Record):
    """One place at which Dynamo stopped tracing: what somebody has to edit."""

    file: str
    line: int
    function: str
    source: str
    """The text of the line, stripped; empty if the file can't be read."""
    reason: str
    """Torch's short reason, for example ``Failed to trace builtin operator``."""
    id: str | None
    """Identifier in torch's registry of graph breaks, for example ``GB0059``."""
    hint: str
    """Torch's explanation and hints in one line; empty if it gives none."""
    events: int
    """How many frames were split by it, echoes included."""
    call: int
    """Call of the sequence at which it was first seen."""
    allowed: bool = False
    origin: Origin = "package"
    """Whose code it is: of the tested package, of a test, of a third party, or torch's."""
    rewritten_assert: bool = False
    """Whether it is an assert that pytest rewrote, which plain Python would not break at."""
    hints: tuple[str, ...] = ()
    """What ``hint`` is made of: each is one remedy, as torch gives them."""
    called_from: tuple[CodeLine, ...] = ()
    """Where the site is in code of others: the innermost lines of the user's own code that lead
    to it, each once; empty if there are none."""
    call_chain: tuple[CodeLine, ...] = ()
    """The lines of the user's own code that led to it when it was first seen, innermost first."""


RecompileKind = Literal[
    "automatic_dynamic",
    "size",
    "rank",
    "stride",
    "dtype",
    "requires_grad",
    "value",
    "presence",
    "identity",
    "grad_mode",
    "training",
    "other",
]


class EntryReason(Record):
    """Why one piece of code in Dynamo's cache did not fit a call: the first guard that failed."""

    entry: str
    """Compile id of that code."""
    guard: str
    """As torch words it."""
    subject: str
    """The argument or attribute in the user's words, for example ``x.size(0)``; may be empty."""
    before: str
    """Value that the guard expected; empty if the guard does not tell."""
    after: str
    """Value that was met; empty if nothing tells it."""
    kind: RecompileKind


class Recompile(Record):
    """One frame that was compiled again since a guard failed."""

    call: int
    frame: str
    """Name of the function, without Dynamo's decoration of continuations."""
    file: str
    line: int
    compile_id: str
    guard: str
    """The guard that failed, as torch words it, of the cache entry that tells what is new."""
    subject: str
    """The argument or attribute in the user's words, for example ``x.size(0)``; may be empty."""
    before: str
    """Value that the guard expected; empty if the guard does not tell."""
    after: str
    """Value that was met; empty if nothing tells it."""
    kind: RecompileKind
    refused: bool = False
    """The attempt that the recompile limit refused; it is not counted."""
    entry: str = ""
    """Compile id of the cache entry whose guard failed."""
    called_from: CodeLine | None = None
    """Where ``file`` is code of others: the user's line that leads to it, if torch tells it."""
    other_reasons: tuple[EntryReason, ...] = ()
    """Why the other cache entries did not fit either, newest first."""


FallbackKind = Literal[
    "frame_skipped",
    "error_suppressed",
    "error_caught",
    "limit_hit",
    "ran_eager",
    "hindered",
    "nothing_compiled",
]
"""``error_suppressed``: compiling raised an error that torch was told to suppress;
``error_caught``: one that something around the frame caught."""


class Fallback(Record):
    """Code that ran eager although it was to be compiled."""

    kind: FallbackKind
    call: int | None
    frame: str
    file: str
    line: int
    reason: str
    definition: CodeLine | None = None
    """Where ``file`` is code of others: the user's function that ran eager for it."""
    called_from: CodeLine | None = None
    """Where no function of the user's is known for it: the user's line that leads to it."""
    raised: CodeLine | None = None
    """Where the error was raised that this is for: the user's innermost line, else the last."""
    remedy: str = ""
    """What to do, where the advice for all of its kind does not fit."""


class FusedKernel(Record):
    """One kernel of the compiled code, and what inductor says it is made of."""

    name: str
    """Of a generated kernel, or of one of a library: ``extern_kernels.mm``."""
    ops: tuple[str, ...]
    """The operators that it computes: ``aten.mul``."""
    nodes: tuple[str, ...] = ()
    """The values of the captured graph that it computes."""


class GraphCode(Record):
    """What inductor generated for one graph, as a digest: equal code has an equal one."""

    graph: int
    """Number of the graph, from 1 on, in the order of compiling."""
    compile_id: str
    part: str
    """``forward``, ``backward`` or ``inference``; empty where the code does not tell."""
    digest: str

    @property
    def key(self) -> str:
        """Names graph and part, for people and in baselines: ``1 forward``."""
        return f"{self.graph} {self.part}".strip()


CacheState = Literal["cold", "warm", "unknown"]


class CompileObservation(Record, tag=True):
    """Everything that the trace told about one call sequence."""

    calls: int
    graphs: int
    ops: int
    """Operators captured in all graphs together."""
    break_sites: tuple[BreakSite, ...]
    break_events: int
    recompiles: tuple[Recompile, ...]
    """Completed ones and the refused one, in order."""
    fallbacks: tuple[Fallback, ...]
    limit_hit: bool
    compile_time_s: float
    """Wall time of compilation, less the cost of observing."""
    kernels: int
    """Kernels generated by inductor; 0 for other backends."""
    cache_hits: int
    cache_misses: int
    error: str | None
    """Why compiling failed, in one or a few lines."""
    error_remedy: str
    unreliable: tuple[str, ...]
    """Cross-checks that disagree; not empty: the numbers can't be trusted."""
    reused_graphs: int = 0
    """Graphs compiled before a watched block that ran in it."""
    unused_allowances: tuple[str, ...] = ()
    """What ``allow_graph_breaks`` names and no break matched."""
    graph_ops: tuple[int, ...] = ()
    """Captured operations of each graph, in the order in which they were compiled."""
    guards: int = 0
    """Guards of all graphs together: what each call has to evaluate at most."""
    backward_graphs: int = 0
    """Graphs whose backward was compiled too."""
    kernel_names: tuple[str, ...] = ()
    fused: tuple[FusedKernel, ...] = ()
    """Kernels of which inductor says what they are made of; of those for a CPU it does not."""
    cudagraph_skips: tuple[str, ...] = ()
    """Why CUDA graphs were not used, each time they were not."""
    cudagraph_recordings: int = 0
    """CUDA graphs that were recorded during the calls."""
    cudagraph_rerecordings: int = 0
    """Those of them whose code had one already: for another size, address or predecessor."""
    inputs: tuple[str, ...] = ()
    """Shapes and dtypes of the tensors passed to each call; empty for a watched block."""
    graphs_per_call: tuple[int, ...] = ()
    """How many of the graphs were compiled in each call of the sequence."""
    cache_state: CacheState = "unknown"
    """``warm``: torch's caches held some of it; ``unknown``: torch does not tell."""
    code: tuple[GraphCode, ...] = ()
    """Of each graph and part whose generated code is known; of other backends there is none."""


MismatchKind = Literal["value", "kind", "mutation", "aliasing", "gradient", "exception"]


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
    rounding: bool = False
    """Whether rounding alone could make such a difference."""


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


Clock = Literal["wall", "device"]
Cache = Literal["warm", "cold"]


class GpuState(Record):
    """What the driver said of a GPU at one moment; what this GPU does not tell is ``None``."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    clock_reasons: tuple[str, ...] | None = None
    """Why the clocks are lower than they could be, in the driver's terms; empty: they are not."""
    temperature_c: int | None = None
    power_w: float | None = None
    utilisation_percent: int | None = None
    """Part of the last moments in which any kernel ran, of this process too."""
    other_processes: int | None = None
    """Processes that compute on it beside this one, whether busy or not."""
    others_busy_percent: int | None = None
    """Most that one of them computed since the state before; ``None`` in a first state."""
    mig: bool | None = None
    """Whether it is split into instances, each of which sees a part of it."""
    thermal_slowdown_s: float | None = None
    """Time spent below its clocks as it was too hot, since the driver was loaded."""


class SpeedObservation(Record, tag=True):
    """Samples of both sides, taken in turn. Raw; ``stats`` derives numbers from them."""

    clock: Literal["cuda_event", "perf_counter"]
    device: str
    """Device type and index, for example ``cuda:0`` or ``cpu``."""
    call: int
    """The call of the sequence whose inputs were timed."""
    calls_per_block: int
    warmup: int
    eager_s: tuple[float, ...]
    """Seconds a call, one value a pair; back-to-back calls, launch overhead included (wall)."""
    compiled_s: tuple[float, ...]
    """As ``eager_s``, for the compiled side."""
    device_eager_s: tuple[float, ...] = ()
    """Seconds a call with launch gaps hidden; empty where there is no device clock."""
    device_compiled_s: tuple[float, ...] = ()
    """As ``device_eager_s``, for the compiled side."""
    threads: int = 1
    cpus: int | None = None
    """Logical CPUs that this process may run on; ``None``: not known."""
    cache: Cache = "warm"
    """``cold``: the L2 cache was flushed before each block."""
    restored: tuple[str, ...] = ()
    """What the call mutates, and was brought back before each block."""
    void: str | None = None
    """Why the samples don't count (a recompile while sampling, a tracer), else ``None``."""
    notes: tuple[str, ...] = ()
    gpu_before: GpuState | None = None
    gpu_after: GpuState | None = None
    gpu_unread: str | None = None
    """Why the state of the GPU is not known, else ``None``; on the CPU there is none to know."""
    attempts: int = 1
    """How often samples were taken, as something disturbed them; those of the last one are here."""
    disturbed: tuple[str, ...] = ()
    """What disturbed the last attempt too: then a ratio that is too low proves nothing."""


class MemoryObservation(Record, tag=True):
    """Most device memory that one warm call of each side took beyond what was taken before it."""

    eager_bytes: int
    compiled_bytes: int
    """With the memory that CUDA graphs keep for themselves."""
    graph_bytes: int = 0
    """That of CUDA graphs alone."""
    touched_bytes: int = 0
    """Inputs, state and outputs of the compiled call."""
    copy_bytes_per_s: float = 0.0
    """What a plain copy within this GPU reads and writes in a second."""


class LaunchedKernel(Record):
    """A kernel that one warm call launched, by the name that the profiler gives it."""

    name: str
    launches: int


class LaunchObservation(Record, tag=True):
    """What one warm call of each side launched on the GPU."""

    eager_kernels: int
    compiled_kernels: int
    eager_copies: int = 0
    """Copies and fills of memory, which are no kernels."""
    compiled_copies: int = 0
    eager_launched: tuple[LaunchedKernel, ...] = ()
    """Most often launched first; the rarest are left out where there are very many."""
    compiled_launched: tuple[LaunchedKernel, ...] = ()


_NOT_MEASURED = NotObserved(reason="not measured")


class Observation(Record):
    """All that one check saw."""

    compile: CompileObservation | NotObserved
    parity: ParityObservation | NotObserved
    speed: SpeedObservation | NotObserved
    memory: MemoryObservation | NotObserved = _NOT_MEASURED
    launches: LaunchObservation | NotObserved = _NOT_MEASURED
