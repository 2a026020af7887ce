"""Which CUDA graphs inductor keeps: the trace tells of skipped ones, not of recorded ones."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch


def recordings() -> tuple[int, int]:
    """Count the CUDA graphs that are kept, and those of them that are not their code's first.

    One code is recorded again for inputs of another size or at other addresses, and for
    each other graph that it comes after.
    """
    graphs = Counter(id(node.wrapped_function.model) for node in _nodes())
    return sum(graphs.values()), sum(count - 1 for count in graphs.values())


def _nodes() -> Iterator[Any]:
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    for device in range(torch.cuda.device_count()):
        manager = trees.get_manager(device, create_if_none_exists=False)
        if manager is not None:
            yield from _below(manager.roots.values())


def _below(branches: Iterable[list[Any]]) -> Iterator[Any]:
    for branch in branches:
        for node in branch:
            yield node
            yield from _below(node.children.values())
