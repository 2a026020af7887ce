"""What inductor says in the trace: the kernels it generated, and CUDA graphs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pytest_compileguard.trace.compiles import TraceEvent

ON_CPU = "the code runs on a CPU"
"""Why a CUDA graph was skipped where torch counts it without giving a reason."""
_KERNEL = re.compile(r"\b((?:triton|cpp_fused|cpp_)\w*_\d+)\b(?= = |\()")


def kernel_names(events: Iterable[TraceEvent]) -> tuple[str, ...]:
    """Kernels in the code that one call sequence made inductor generate, each once, in order."""
    code = (event.payload for event in events if "inductor_output_code" in event.metadata)
    return tuple(dict.fromkeys(name for text in code for name in _KERNEL.findall(text)))


def cudagraph_skips(events: Iterable[TraceEvent]) -> tuple[str, ...]:
    """Why compiles gave CUDA graphs up; what is decided when a call runs is in no trace."""
    metrics = (
        event.metadata.get(name)
        for event in events
        for name in ("compilation_metrics", "bwd_compilation_metrics")
    )
    reasons = (m.get("cudagraph_skip_reason") for m in metrics if isinstance(m, dict))
    return tuple(str(reason).splitlines()[0] for reason in reasons if reason)
