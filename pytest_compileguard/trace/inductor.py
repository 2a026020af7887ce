"""What inductor says in the trace: the kernels it generated, and CUDA graphs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pytest_compileguard.observation import FusedKernel
from pytest_compileguard.trace.event import TraceEvent

ON_CPU = "the code runs on a CPU"
"""Why a CUDA graph was skipped where torch counts it without giving a reason."""
_MADE_OF = re.compile(r"# .*Source Nodes: \[(?P<nodes>.*?)\], Original ATen: \[(?P<ops>.*?)\]")
_NAMED = re.compile(
    r"(?P<made>\w+) = async_compile\."
    r"|(?:\w+ = )?(?P<called>(?:extern_kernels|torch\.ops)\.[\w.]+)\("
)
_CALL = re.compile(r"[\w.]+\(")
"""Any other call: of a generated kernel, which was told where it was made."""
_MOST_FUSED = 500
_MOST_PARTS = 60
_KERNEL = re.compile(r"\b((?:triton|cpp_fused|cpp_)\w*_\d+)\b(?= = |\()")


def kernel_names(events: Iterable[TraceEvent]) -> tuple[str, ...]:
    """Kernels in the code that one call sequence made inductor generate, each once, in order."""
    code = (event.payload for event in events if "inductor_output_code" in event.metadata)
    return tuple(dict.fromkeys(name for text in code for name in _KERNEL.findall(text)))


def fused_kernels(events: Iterable[TraceEvent]) -> tuple[FusedKernel, ...]:
    """Kernels with the operators fused into them, as comments in the generated code tell it."""
    code = (event.payload for event in events if "inductor_output_code" in event.metadata)
    found = dict.fromkeys(kernel for text in code for kernel in _fused(text))
    return tuple(found)[:_MOST_FUSED]


def _fused(code: str) -> Iterator[FusedKernel]:
    """Pair each comment that names operators with the kernel that it stands above."""
    told: re.Match[str] | None = None
    for line in map(str.strip, code.splitlines()):
        told = _MADE_OF.match(line) or told
        named = _NAMED.match(line)
        if told is not None and named is not None:
            yield FusedKernel(
                name=named["made"] or named["called"],
                ops=_parts(told["ops"]),
                nodes=_parts(told["nodes"]),
            )
        if named is not None or _CALL.match(line):
            told = None


def _parts(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(", ")))[:_MOST_PARTS]


def cudagraph_skips(events: Iterable[TraceEvent]) -> tuple[str, ...]:
    """Why compiles gave CUDA graphs up; what is decided when a call runs is in no trace."""
    metrics = (
        event.metadata.get(name)
        for event in events
        for name in ("compilation_metrics", "bwd_compilation_metrics")
    )
    reasons = (m.get("cudagraph_skip_reason") for m in metrics if isinstance(m, dict))
    return tuple(str(reason).splitlines()[0] for reason in reasons if reason)
