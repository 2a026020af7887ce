"""torch's own counts, by which the trace is cross-checked."""

from __future__ import annotations

import torch
import torch._dynamo.utils
import torch._inductor.metrics

from pytest_compileguard.dynamo.cudagraphs import recordings
from pytest_compileguard.observation import Record


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


class LostBreak(Record):
    """A break that torch before 2.11 keeps out of its trace."""

    file: str
    line: int
    function: str


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


def lost_breaks() -> tuple[LostBreak, ...]:
    """Breaks since the last reset that only ``graph_break_reasons`` knows (torch before 2.11)."""
    found = []
    for reason in torch._dynamo.utils.graph_break_reasons:
        if reason.reason == "step_unsupported" and reason.user_stack:
            frame = reason.user_stack[-1]
            found.append(
                LostBreak(file=frame.filename, line=frame.lineno or 0, function=frame.name)
            )
    return tuple(found)
