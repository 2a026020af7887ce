"""Digests of the code that inductor generated: equal for equal code, wherever it came to be. Pure.

Of one graph the text differs between processes, caches and devices in what means nothing: its
comments (number of the compilation, names of variables, paths), its inputs for a benchmark, the
index of the device, names in caches, and torch's names of sizes, which it makes of the names of
arguments. All of that is left out or numbered as it comes, and nothing else.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from pytest_compileguard.observation import GraphCode
from pytest_compileguard.trace.event import TraceEvent
from pytest_compileguard.trace.texts import part_of

_DIGEST_LENGTH = 16
# A directive of C++ begins alike, but inductor sets it without a space.
_COMMENT = re.compile(r"\s*#(?!(?:include|pragma|define|undef|if|el|end|error|warning|line)\w*\b)")
_PATH = re.compile(r"""(?<=['"])(?:[A-Za-z]:)?(?:[/\\]+[^'"\n/\\]+){2,}(?=['"])""")
_CACHED = re.compile(r"\b(?:[0-9a-f]{64}|[0-9A-F]{64}|[a-z2-7]{51,52})\b")
"""A digest that torch makes of its versions, or names a file in a cache by."""
_DEVICE = re.compile(
    r"(?<=_DeviceGuard\()\d+|(?<=get_raw_stream\()\d+|(?<=set_device\()\d+"
    r"|(?<=\bstream)\d+\b|(?<=\braw_stream)\d+\b|(?<=\bcuda:)\d+|(?<=\bxpu:)\d+"
    r"|(?<=type='cuda', index=)\d+|(?<=type='hip', index=)\d+|(?<=type='xpu', index=)\d+"
)
_SIZE = re.compile(r"\bs(?!(?:8|16|32|64)\b)\d+\b")
"""A symbolic size, but nothing that may be a type in assembly."""
_BENCHMARK = "\ndef benchmark_compiled_module("
_ITS_INPUTS = "\ndef get_args("
_QUOTES = ("'''", '"""')


def graph_codes(events: Iterable[TraceEvent], graph_ids: Sequence[str]) -> tuple[GraphCode, ...]:
    """Give a digest for each graph and part whose code was heard; the others are left out.

    So are graphs of one compile id, from before a reset and after it.
    """
    texts: dict[tuple[int, str], list[str]] = {}
    numbers = {cid: n for n, cid in enumerate(graph_ids, 1) if graph_ids.count(cid) == 1}
    for event in events:
        code, graph = event.payload, numbers.get(event.compile_id)
        if "inductor_output_code" in event.metadata and code and graph is not None:
            texts.setdefault((graph, part_of(code)), []).append(code)
    return tuple(
        GraphCode(
            graph=graph, compile_id=graph_ids[graph - 1], part=part, digest=code_digest(*together)
        )
        for (graph, part), together in sorted(texts.items())
    )


def code_digest(*codes: str) -> str:
    """Digest what the codes of one graph, of which there mostly is one, do together."""
    digest = hashlib.sha256()
    for code in codes:
        digest.update(normalised(code).encode("utf-8", "backslashreplace") + b"\0")
    return digest.hexdigest()[:_DIGEST_LENGTH]


def normalised(code: str) -> str:
    """Leave out what differs between two compilations of one graph."""
    lines = (line.rstrip() for line in _without_benchmark(code).splitlines())
    text = "\n".join(line for line in lines if line and not _COMMENT.match(line))
    text = _numbered(_CACHED, "cached", _numbered(_PATH, "path", text))
    return _numbered(_SIZE, "size", _numbered(_DEVICE, "device", text))


def _without_benchmark(code: str) -> str:
    """Cut the end off, with which the file can be run alone: it holds the first sizes met."""
    end = code.rfind(_BENCHMARK)
    if end < 0 or _has_quotes(code[end:]):  # then it stands within the source of a kernel
        return code
    inputs = code.rfind(_ITS_INPUTS, 0, end)
    return code[:end] if inputs < 0 or _has_quotes(code[inputs:end]) else code[:inputs]


def _has_quotes(code: str) -> bool:
    return any(quotes in code for quotes in _QUOTES)


def _numbered(pattern: re.Pattern[str], name: str, text: str) -> str:
    """Number what a pattern finds in the order in which it comes: equal ones stay equal."""
    numbers: dict[str, str] = {}
    return pattern.sub(lambda m: numbers.setdefault(m[0], f"<{name} {len(numbers)}>"), text)
