"""Hears torch's structured trace while one call is made, and leaves no trace itself."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import torch._dynamo.config
import torch._inductor.config
import torch._logging._internal
import torch.compiler.config

from pytest_compileguard.dynamo.counters import LinesLeft
from pytest_compileguard.dynamo.refusals import refused_frames
from pytest_compileguard.dynamo.regions import CallTrace, regions
from pytest_compileguard.dynamo.state import ResetWatch
from pytest_compileguard.trace.event import TraceEvent

_TRACE = "torch.__trace"
_SKIP_LOG = "torch._inductor.cudagraph_utils.__cudagraphs"
# Some events of skipped frames reach the trace only if these artifact logs are enabled.
_BREAK_LOGS = tuple(
    f"torch._dynamo.{module}.__graph_breaks"
    for module in ("symbolic_convert", "convert_frame", "exc")
)


_OVERHEAD = "structured_logging_overhead_us"


def _overheads() -> dict[str, float]:
    """What torch's trace cost in this process so far, by compile id."""
    table: dict[str, float] = getattr(torch._logging._internal, "structured_logging_overhead", {})
    return table


class _TraceHandler(logging.Handler):
    """Collects the events of one thread, or of all.

    torch's trace is one stream for the whole process, but what another thread compiles
    meanwhile is nothing of the call's. Backward graphs are: autograd compiles them in threads
    of its own, under the compile ids of their forward graphs.
    """

    def __init__(self, trace: CallTrace, own_ids: set[str] | None) -> None:
        super().__init__(logging.DEBUG)
        self._trace = trace
        self._own_ids = own_ids
        self._observing_s = dict(_overheads())
        self._thread = threading.get_ident()
        self._left = LinesLeft()
        self._watch, self._resets = ResetWatch(), 0

    def close(self) -> None:
        """Take in what torch tells without an event."""
        self._look()
        self._watch.forget()
        super().close()

    def _look(self) -> None:
        """See what a reset would take away, before the next one; and whether there was one."""
        self._left.look()
        self._trace.left = self._left.lines
        if self._watch.was_reset:
            self._watch, self._resets = ResetWatch(), self._resets + 1

    def emit(self, record: logging.LogRecord) -> None:
        self._look()
        metadata = getattr(record, "metadata", None)
        if isinstance(metadata, dict):
            payload = getattr(record, "payload", None)
            text = payload if isinstance(payload, str) else ""
            event = TraceEvent(
                call=self._trace.call, metadata=metadata, payload=text, resets=self._resets
            )
            if self._is_own(event.compile_id):
                if self._trace.records is not None:
                    self._trace.records.append(record)
                own = self._with_own_overhead(event)
                self._trace.events.append(msgspec.structs.replace(event, metadata=own))
            else:
                self._trace.foreign[event.compile_id] = None

    def _with_own_overhead(self, event: TraceEvent) -> dict[str, Any]:
        """Tell the cost of observing this compile alone.

        Torch adds it up under the compile id, for forward and backward together, and goes on
        adding after a reset, when the same ids come again.
        """
        changed = dict(event.metadata)
        for name in ("compilation_metrics", "bwd_compilation_metrics"):
            metrics = changed.get(name)
            if isinstance(metrics, dict) and metrics.get(_OVERHEAD):
                key = event.compile_id.replace("/", "_")
                total_s = metrics[_OVERHEAD] / 1e6
                own_s = max(total_s - self._observing_s.get(key, 0.0), 0.0)
                self._observing_s[key] = total_s
                changed[name] = {**metrics, _OVERHEAD: int(own_s * 1e6)}
        return changed

    def _is_own(self, compile_id: str) -> bool:
        if self._own_ids is None or compile_id == "" or compile_id in self._own_ids:
            return True
        if threading.get_ident() == self._thread:
            self._own_ids.add(compile_id)
            return True
        return False


class _SkipHandler(logging.Handler):
    """Notes why CUDA graphs are skipped: what is decided when a call runs is in no trace."""

    def __init__(self, trace: CallTrace) -> None:
        super().__init__(logging.WARNING)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        self._trace.cudagraph_skips.append(record.getMessage().strip().partition("\n")[0])


@contextlib.contextmanager
def tracing(call: int, own_ids: set[str], *, keeps_records: bool = False) -> Iterator[CallTrace]:
    """Observe the compiled call made inside, and leave all global state as it was.

    The compiler starts as if cold, and random numbers agree with eager. ``own_ids`` are the
    compile ids that earlier calls began; those of this one are added. ``keeps_records``: what
    is heard can be written as a file.
    """
    with configured(), _listening(CallTrace(call, keeps_records=keeps_records), own_ids) as trace:
        yield trace


@contextlib.contextmanager
def watching(*, keeps_records: bool = False) -> Iterator[CallTrace]:
    """Observe all that is compiled inside, by any thread, with the compiler as it stands."""
    with _listening(CallTrace(0, keeps_records=keeps_records), None) as trace:
        trace.refused_before = refused_frames()
        yield trace


@contextlib.contextmanager
def _listening(trace: CallTrace, own_ids: set[str] | None) -> Iterator[CallTrace]:
    handler = _TraceHandler(trace, own_ids)
    with contextlib.ExitStack() as stack:
        # torch before 2.13 keeps its trace quiet under `logging.disable`.
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.NOTSET)
        for name in _BREAK_LOGS:
            _enable_quietly(logging.getLogger(name), stack)
        for name, listener in ((_TRACE, handler), (_SKIP_LOG, _SkipHandler(trace))):
            log = logging.getLogger(name)
            log.addHandler(listener)
            stack.callback(log.removeHandler, listener)
        stack.enter_context(regions(trace))
        stack.callback(handler.close)
        yield trace


@contextlib.contextmanager
def configured() -> Iterator[None]:
    """Start cold, and let random numbers agree with eager, as far as configuration decides."""
    with contextlib.ExitStack() as stack:
        for module, values in (
            (torch._inductor.config, {"fallback_random": True}),
            # A profile of earlier runs would hide recompiles, a precompiled hit hides graphs.
            (torch.compiler.config, {"job_id": None}),
            (torch._dynamo.config, {"caching_precompile": False}),
        ):
            known = {name: value for name, value in values.items() if hasattr(module, name)}
            stack.enter_context(module.patch(known))
        yield


def _enable_quietly(log: logging.Logger, stack: contextlib.ExitStack) -> None:
    """Enable a log for the trace's sake; one that the user enabled stays as it is."""
    if log.isEnabledFor(logging.DEBUG):
        return
    sink = logging.NullHandler()
    stack.callback(setattr, log, "propagate", log.propagate)
    stack.callback(log.setLevel, log.level)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    log.addHandler(sink)
    stack.callback(log.removeHandler, sink)
