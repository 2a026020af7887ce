"""What torch's trace said: graphs, breaks, recompiles, fallbacks, generated code."""

from __future__ import annotations

from typing import Literal

from pytest_compileguard.observation.record import CodeLine, Origin, Record


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
    """How many frames were split by it when they were first compiled, echoes included; 0: only
    recompiles meet it."""
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
    function: str = ""
    """The function that the line stands in, where the frame only inlined it; ``?``: not known."""
    met: str = ""
    """Type of the exception for which Dynamo gave up: one that leaves the frame; empty: none."""


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
    """Why compiling failed, in one or a few lines; or why compiled code did."""
    error_remedy: str
    unreliable: tuple[str, ...]
    """Cross-checks that disagree; not empty: the numbers can't be trusted."""
    raised_alike: tuple[Fallback, ...] = ()
    """Frames given up for the very exception that their call raises, compiled as eager. They are
    no fallbacks, and where they raise is no graph break."""
    raised: bool = False
    """Whether compiled code raised as it ran, where eager does not."""
    reused_graphs: int = 0
    """Graphs compiled before a watched block that ran in it."""
    left: tuple[CodeLine, ...] = ()
    """Lines from which on the rest of a function runs eager: Dynamo can't resume after a break."""
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
