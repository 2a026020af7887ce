"""Runs a call through the stages of the compiler, one more of them each time."""

from __future__ import annotations

import contextlib
import importlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch._guards
import torch._inductor.config
from torch._dynamo.backends.registry import lookup_backend

from pytest_compileguard.dynamo.regions import CallTrace
from pytest_compileguard.observation import GraphPlace
from pytest_compileguard.trace.break_text import plain_function

STAGES = ("eager", "aot_eager", "aot_eager_decomp_partition")
"""Backends that stop early: after Dynamo, after AOTAutograd, after decompositions and partition."""

INDUCTOR_TRIALS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("pattern_matcher=False", {"pattern_matcher": False}),
    ("max_fusion_size=1", {"max_fusion_size": 1, "epilogue_fusion": False}),
)
"""Parts of inductor that can be switched off, as a user would write it, and in full."""

EAGER_RANDOM_NUMBERS = """
import torch._inductor.config  # so that inductor draws the random numbers that eager draws

torch._inductor.config.fallback_random = True
"""
"""Lines of a program that compares compiled with eager."""

_PLACE = re.compile(r"# File: (.+?):(\d+) in (\S+), code:")


def load_stages() -> None:
    """Import what the stages need: what it warns of while loading is nobody's doing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torch._inductor.compile_fx")


@contextlib.contextmanager
def inductor_configured(values: dict[str, Any]) -> Iterator[None]:
    """Patch inductor's configuration, as far as this torch knows the names."""
    known = {name: v for name, v in values.items() if hasattr(torch._inductor.config, name)}
    with torch._inductor.config.patch(known):
        yield


def graph_places(trace: CallTrace) -> tuple[GraphPlace, ...]:
    """The graphs of one call, in the order in which they were captured, and where they start."""
    found: dict[str, GraphPlace] = {}
    for event in trace.events:
        if "dynamo_output_graph" not in event.metadata:
            continue
        metadata = event.metadata
        compile_id = f"{metadata.get('frame_id')}/{metadata.get('frame_compile_id')}"
        place = _PLACE.search(event.payload)
        file, line, function = place.groups() if place else ("?", 0, "")
        found[compile_id] = GraphPlace(
            compile_id=compile_id, file=file, line=int(line), function=plain_function(function)
        )
    return tuple(found.values())


def only_first(
    graphs: Sequence[str],
    *,
    suspect: Callable[..., Any],
    sound: str,
) -> Callable[..., Any]:
    """A backend that gives the graphs with the given compile ids to one backend, others to another.

    What two backends are given so differs in nothing else, so the first graph that goes wrong
    can be found by halving.
    """
    other = lookup_backend(sound)

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        compile_id = str(torch._guards.CompileContext.current_compile_id())
        return (suspect if compile_id in graphs else other)(graph, inputs)

    return backend


def named_backend(
    backend: Any, *, mode: str | None, options: dict[str, Any] | None, dynamic: bool | None
) -> Callable[..., Any]:
    """The backend as ``torch.compile`` calls it when given these arguments."""
    inductor: Any = torch._TorchCompileInductorWrapper
    other: Any = torch._TorchCompileWrapper
    if backend in (None, "inductor"):
        return inductor(mode, options, dynamic)  # type: ignore[no-any-return]
    return other(backend, mode, options, dynamic)  # type: ignore[no-any-return]
