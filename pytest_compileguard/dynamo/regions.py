"""Sees which compiled code runs: direct proof against a silent fallback."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import torch

from pytest_compileguard.trace.event import TraceEvent

_REGION = "Torch-Compiled Region: "


class CallTrace:
    """What one compiled call left: filled while ``tracing`` is active."""

    def __init__(self, call: int, *, keeps_records: bool = False) -> None:
        self.call = call
        self.records: list[logging.LogRecord] | None = [] if keeps_records else None
        """What was heard, as torch logged it; ``None``: nobody wants it. Texts are shared with
        ``events``, so that they are kept once."""
        self.events: list[TraceEvent] = []
        self.foreign: dict[str, None] = {}
        """Compile ids that another thread began meanwhile; their events are left out."""
        self.cudagraph_skips: list[str] = []
        """Why CUDA graphs were not used, each time they were not."""
        self.regions: tuple[str, ...] | None = None
        """Compile ids whose code ran; ``None``: a profiler of somebody else was active."""

    @property
    def graphs(self) -> list[str]:
        """The graphs that were captured, as torch prints them."""
        return [e.payload for e in self.events if "dynamo_output_graph" in e.metadata]


@contextlib.contextmanager
def probing(call: int) -> Iterator[CallTrace]:
    """See which compiled regions run, and nothing else."""
    trace = CallTrace(call)
    with regions(trace):
        yield trace


@contextlib.contextmanager
def regions(trace: CallTrace) -> Iterator[None]:
    """Note the compiled regions that run inside; the oldest profiler is the cheapest (0.1 ms)."""
    from torch.autograd import (  # type: ignore[attr-defined]  # noqa: PLC0415
        ProfilerConfig,
        ProfilerState,
        _disable_profiler_legacy,
        _enable_profiler_legacy,
    )

    options = torch._C._profiler._ExperimentalConfig()
    config = ProfilerConfig(ProfilerState.CPU, False, False, False, False, False, options)
    try:
        _enable_profiler_legacy(config)
    except RuntimeError:  # a profiler is already active on this thread
        yield
        return
    try:
        yield
    finally:
        names = [event.name() for thread in _disable_profiler_legacy() for event in thread]
        found = dict.fromkeys(n[len(_REGION) :] for n in names if n.startswith(_REGION))
        trace.regions = tuple(found)
