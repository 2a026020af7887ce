"""Sees which compiled code runs: direct proof against a silent fallback."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch

from pytest_compileguard.observation import CodeLine
from pytest_compileguard.trace.event import TraceEvent

_REGION = "Torch-Compiled Region: "
_LOOK_UP = "TorchDynamo Cache Lookup"


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
        self.missed = 0
        """Frames for which code was looked up and none ran: what was compiled did not fit."""
        self.refused_before: tuple[CodeLine, ...] = ()
        """Of a watched block: functions that hit the recompile limit before it."""
        self.left: tuple[CodeLine, ...] = ()
        """Lines from which on the rest of a function runs eager, as it was compiled meanwhile."""

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


class _Probed(threading.local):
    """The traces of one thread that are being filled, outermost first: torch has one profiler."""

    def __init__(self) -> None:
        self.traces: list[CallTrace] = []


_PROBED = _Probed()


@contextlib.contextmanager
def regions(trace: CallTrace) -> Iterator[None]:
    """Note the compiled regions that run inside, also within a block that notes its own."""
    probed = _PROBED.traces
    if probed:
        _note(probed)
    try:
        _start()
    except RuntimeError:  # a profiler of somebody else is active on this thread
        yield
        return
    trace.regions = ()
    probed.append(trace)
    try:
        yield
    finally:
        _note(probed)
        probed.remove(trace)
        if probed:
            _start()


def _start() -> None:
    """Start the oldest profiler, which is the cheapest (0.1 ms)."""
    from torch.autograd import (  # type: ignore[attr-defined]  # noqa: PLC0415
        ProfilerConfig,
        ProfilerState,
        _enable_profiler_legacy,
    )

    options = torch._C._profiler._ExperimentalConfig()
    _enable_profiler_legacy(
        ProfilerConfig(ProfilerState.CPU, False, False, False, False, False, options)
    )


def _note(traces: Sequence[CallTrace]) -> None:
    """Stop the profiler, and note what it saw in all traces that are being filled."""
    from torch.autograd import _disable_profiler_legacy  # type: ignore[attr-defined]  # noqa: PLC0415

    threads = [[event.name() for event in thread] for thread in _disable_profiler_legacy()]
    ran = [n[len(_REGION) :] for names in threads for n in names if n.startswith(_REGION)]
    missed = sum(_missed(names) for names in threads)
    for trace in traces:
        trace.regions = tuple(dict.fromkeys((*(trace.regions or ()), *ran)))
        trace.missed += missed


def _missed(names: Sequence[str]) -> int:
    """Count look-ups that no compiled code follows; what fits, or is compiled then, runs next."""
    steps = [name for name in names if name == _LOOK_UP or name.startswith(_REGION)]
    return sum(step == then == _LOOK_UP for step, then in pairwise([*steps, _LOOK_UP]))
