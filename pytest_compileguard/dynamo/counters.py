"""torch's own counts, by which the trace is cross-checked."""

from __future__ import annotations

import torch
import torch._dynamo.symbolic_convert
import torch._dynamo.utils
import torch._inductor.metrics

from pytest_compileguard.dynamo.cudagraphs import recordings
from pytest_compileguard.observation import CodeLine, Record
from pytest_compileguard.trace.break_text import plain_function


class Counters(Record):
    """torch's own counts at one moment; only differences mean anything."""

    unique_graphs: int
    graph_breaks: int
    unimplemented: int
    frames: int
    kernels: int
    cache_hits: int
    cache_misses: int
    cudagraph_skips: int
    cache_bypasses: int
    """Graphs that torch neither looked up nor stored: parts of them may lie on disk."""
    cudagraphs: int
    """CUDA graphs that are kept."""
    cudagraphs_again: int
    """Those of them that are not the first of their code."""

    def since(self, earlier: Counters) -> Counters:
        names = self.__struct_fields__
        return Counters(**{n: getattr(self, n) - getattr(earlier, n) for n in names})


def counters() -> Counters:
    """Read torch's counters without creating keys in them."""
    table: dict[str, dict[str, int]] = torch._dynamo.utils.counters  # type: ignore[assignment]
    caches = {
        name: count
        for group in ("inductor", "aot_autograd")
        for name, count in table.get(group, {}).items()
    }
    recorded, again = recordings()
    return Counters(
        unique_graphs=table.get("stats", {}).get("unique_graphs", 0),
        graph_breaks=sum(table.get("graph_break", {}).values()),
        unimplemented=sum(table.get("unimplemented", {}).values()),
        frames=table.get("frames", {}).get("total", 0),
        kernels=torch._inductor.metrics.generated_kernel_count,
        cache_hits=sum(n for name, n in caches.items() if name.endswith("cache_hit")),
        cache_misses=sum(n for name, n in caches.items() if name.endswith("cache_miss")),
        cudagraph_skips=caches.get("cudagraph_skips", 0),
        cache_bypasses=sum(n for name, n in caches.items() if name.endswith("cache_bypass")),
        cudagraphs=recorded,
        cudagraphs_again=again,
    )


LOGS_ALL_BREAKS = hasattr(
    torch._dynamo.symbolic_convert.InstructionTranslatorBase, "log_graph_break"
)
"""Whether a break that Dynamo can't resume after is in the trace, as it is from torch 2.10 on."""


# Dynamo would compile a function that reads it by a module of torch, where a log calls that.
_REASONS = torch._dynamo.utils.graph_break_reasons


class LinesLeft:
    """Collects the lines from which on the rest of a function runs eager, from when it is made.

    Before them Dynamo could have resumed; it compiles up to there, and skips the rest. Torch
    drops its list of them when it is reset, so that ``look`` is due after each compile.
    """

    def __init__(self) -> None:
        self._found: dict[CodeLine, None] = {}
        self._last: object = None
        self._seen = 0
        self._pass_over()

    @property
    def lines(self) -> tuple[CodeLine, ...]:
        """Those found so far, each once."""
        return tuple(self._found)

    def look(self) -> None:
        """Take in what torch added to its list."""
        is_same = any(r is self._last for r in _REASONS[self._seen - 1 : self._seen])
        for reason in _REASONS[self._seen if is_same else 0 :]:
            if reason.reason == "step_unsupported" and reason.user_stack:
                frame = reason.user_stack[-1]
                line = CodeLine(
                    file=frame.filename,
                    line=frame.lineno or 0,
                    function=plain_function(frame.name),
                    source="",
                )
                self._found[line] = None
        self._pass_over()

    def _pass_over(self) -> None:
        self._seen, self._last = len(_REASONS), _REASONS[-1] if _REASONS else None
