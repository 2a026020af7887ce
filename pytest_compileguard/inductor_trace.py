"""What inductor says in the trace: the kernels it generated, and CUDA graphs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pytest_compileguard.observation import Record
from pytest_compileguard.trace import TraceEvent

_KERNEL = re.compile(r"\b((?:triton|cpp_fused|cpp_)\w*_\d+)\b(?= = |\()")


class InductorFacts(Record):
    """What one call sequence made inductor do."""

    kernel_names: tuple[str, ...]
    """Kernels in the generated code, each named once, in order."""
    cudagraph_skips: tuple[str, ...]
    """Why CUDA graphs were not used, each time they were not."""


def read_inductor(events: Iterable[TraceEvent]) -> InductorFacts:
    """Reduce the events of one call sequence to what inductor did."""
    names: dict[str, None] = {}
    skips: list[str] = []
    for event in events:
        if "inductor_output_code" in event.metadata:
            names |= dict.fromkeys(_KERNEL.findall(event.payload))
        for metrics in (event.metrics, event.metadata.get("bwd_compilation_metrics")):
            reason = metrics.get("cudagraph_skip_reason") if isinstance(metrics, dict) else None
            skips += [str(reason).splitlines()[0]] if reason else []
    return InductorFacts(kernel_names=tuple(names), cudagraph_skips=tuple(skips))
