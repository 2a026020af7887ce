"""Reads captured graphs as torch prints them: which operators, dtypes and devices they have."""

from __future__ import annotations

import re
from collections.abc import Iterable

_CONVOLUTION = re.compile(r"= torch(?:\.\w+)*\.conv\w*\(")
_MADE = re.compile(r"\s*\w+: \"(?P<dtype>\w+)\[[^\"]*\][^\"]*\" = ")
_TENSOR = re.compile(r"\"(?P<dtype>\w+)\[[^\"]*\](?P<device>[a-z]*)(?::\d+)?\"")


def convolves(graphs: Iterable[str]) -> bool:
    """Whether a graph calls a convolution; names and comments that say so don't count."""
    return any(_CONVOLUTION.search(line) for graph in graphs for line in _code(graph))


def dtypes(graphs: Iterable[str]) -> frozenset[str]:
    """Give the dtypes of all tensors, in torch's short form: ``f32``, ``bf16``."""
    return frozenset(found["dtype"] for found in _tensors(graphs))


def dtypes_made(graphs: Iterable[str]) -> frozenset[str]:
    """Give those of them that operators make, and not only the inputs have."""
    lines = (line for graph in graphs for line in _code(graph))
    return frozenset(found["dtype"] for found in map(_MADE.match, lines) if found)


def device_type(graphs: Iterable[str]) -> str:
    """Give the type of the first accelerator that a tensor lies on, else ``cpu``."""
    found = (tensor["device"] for tensor in _tensors(graphs))
    return next((device for device in found if device not in ("", "cpu", "meta")), "cpu")


def _tensors(graphs: Iterable[str]) -> Iterable[re.Match[str]]:
    return (m for graph in graphs for line in _code(graph) for m in _TENSOR.finditer(line))


def _code(graph: str) -> list[str]:
    return [line for line in graph.splitlines() if not line.lstrip().startswith("#")]
