"""Which sizes and numbers are inputs of a graph, so that they may change, and their values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pytest_compileguard.trace.event import TraceEvent
from pytest_compileguard.trace.guard_text import subject_name


def free_inputs(events: Iterable[TraceEvent]) -> dict[str, int]:
    """How free the inputs of each compile id are, at its last attempt: Dynamo may start anew."""
    found: dict[str, int] = {}
    for event in events:
        if "dynamo_output_graph" in event.metadata:
            graph = event.metadata["dynamo_output_graph"]
            sizes = graph.get("sizes", {}) if isinstance(graph, dict) else {}
            found[event.compile_id] = _freedom(sizes, event.payload)
    return found


def input_values(events: Iterable[TraceEvent]) -> dict[str, dict[str, str]]:
    """Values of the numbers and sizes that became inputs of each graph, by subject."""
    found: dict[str, dict[str, str]] = {}
    for event in events:
        made = event.metadata.get("create_symbol")
        if isinstance(made, dict) and made.get("val") not in {None, "None"}:
            known = found.setdefault(event.compile_id, {})
            known[subject_name(str(made.get("source", "")))] = str(made["val"])
    return found


def became_dynamic(compile_id: str, graphs: dict[str, int]) -> bool:
    """Whether this compile has a symbolic size, or a number as input, that none before had."""
    frame, _, number = compile_id.partition("/")
    before = [graphs.get(f"{frame}/{n}", 0) for n in range(int(number or 0))]
    return graphs.get(compile_id, 0) > max(before, default=0)


def _freedom(sizes: dict[str, Any], code: str) -> int:
    """Count symbolic sizes and lifted numbers among the inputs of a graph."""
    heads = "".join(line for line in code.splitlines() if "def forward(" in line)
    symbols = set(re.findall(r'"Sym\((\w+)\)"', heads))
    symbols |= {s for size in sizes.values() for s in _symbols(size)}
    lifted = [name for name, size in sizes.items() if name.startswith("l_") and size == []]
    return len(symbols) + len(lifted)


def _symbols(size: object) -> list[str]:
    dimensions = size if isinstance(size, list) else []
    return [s for dimension in map(str, dimensions) for s in re.findall(r"\b[su]\d+\b", dimension)]
