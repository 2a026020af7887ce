"""The only file that knows torch's private compiler names.

One passive handler on torch's structured trace sees every compile; nothing is
wrapped or patched. torch's own counters, and the regions that a profiler sees
running, are the cross-checks. ``ensure_understood`` tries all of it out once per
process and fails closed on a torch that answers otherwise.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo
import torch._dynamo.config
import torch._dynamo.utils
import torch._inductor.config
import torch._inductor.metrics
import torch.compiler.config
from torch._dynamo import eval_frame

from pytest_compileguard.errors import UnsupportedTorchError
from pytest_compileguard.observation import Record
from pytest_compileguard.trace import TraceEvent

_TRACE = "torch.__trace"
# Some events of skipped frames reach the trace only if these artifact logs are enabled.
_BREAK_LOGS = tuple(
    f"torch._dynamo.{module}.__graph_breaks"
    for module in ("symbolic_convert", "convert_frame", "exc")
)
_REGION = "Torch-Compiled Region: "


class Counters(Record):
    """torch's own counts at one moment; only differences mean anything."""

    unique_graphs: int
    graph_breaks: int
    unimplemented: int
    frames: int
    kernels: int
    cache_hits: int
    cache_misses: int

    def since(self, earlier: Counters) -> Counters:
        names = self.__struct_fields__
        return Counters(**{n: getattr(self, n) - getattr(earlier, n) for n in names})


class CallTrace:
    """What one compiled call left: filled while ``tracing`` is active."""

    def __init__(self, call: int) -> None:
        self.call = call
        self.events: list[TraceEvent] = []
        self.regions: tuple[str, ...] | None = None
        """Compile ids whose code ran; ``None``: a profiler of somebody else was active."""


class LostBreak(Record):
    """A break that torch before 2.11 keeps out of its trace."""

    file: str
    line: int
    function: str


class _TraceHandler(logging.Handler):
    def __init__(self, trace: CallTrace) -> None:
        super().__init__(logging.DEBUG)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", None)
        if isinstance(metadata, dict):
            payload = getattr(record, "payload", None)
            text = payload if isinstance(payload, str) else ""
            self._trace.events.append(
                TraceEvent(call=self._trace.call, metadata=metadata, payload=text)
            )


@contextlib.contextmanager
def tracing(call: int, *, as_is: bool = False) -> Iterator[CallTrace]:
    """Observe the compiled call made inside, and leave all global state as it was.

    With ``as_is`` the compiler is configured as it stands; else it starts as if cold, and
    random numbers agree with eager.
    """
    trace = CallTrace(call)
    handler = _TraceHandler(trace)
    with contextlib.ExitStack() as stack:
        if not as_is:
            stack.enter_context(_patched())
        # torch before 2.13 keeps its trace quiet under `logging.disable`.
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.NOTSET)
        for name in _BREAK_LOGS:
            _enable_quietly(logging.getLogger(name), stack)
        log = logging.getLogger(_TRACE)
        log.addHandler(handler)
        stack.callback(log.removeHandler, handler)
        stack.enter_context(_regions(trace))
        yield trace


@contextlib.contextmanager
def probing(call: int) -> Iterator[CallTrace]:
    """See which compiled regions run, and nothing else."""
    trace = CallTrace(call)
    with _regions(trace):
        yield trace


def counters() -> Counters:
    """Read torch's counters without creating keys in them."""
    table: dict[str, dict[str, int]] = torch._dynamo.utils.counters  # type: ignore[assignment]
    caches = {
        name: count
        for group in ("inductor", "aot_autograd")
        for name, count in table.get(group, {}).items()
    }
    return Counters(
        unique_graphs=table.get("stats", {}).get("unique_graphs", 0),
        graph_breaks=sum(table.get("graph_break", {}).values()),
        unimplemented=sum(table.get("unimplemented", {}).values()),
        frames=table.get("frames", {}).get("total", 0),
        kernels=torch._inductor.metrics.generated_kernel_count,
        cache_hits=sum(n for name, n in caches.items() if name.endswith("cache_hit")),
        cache_misses=sum(n for name, n in caches.items() if name.endswith("cache_miss")),
    )


def lost_breaks() -> tuple[LostBreak, ...]:
    """Breaks since the last reset that only ``graph_break_reasons`` knows (torch before 2.11)."""
    found = []
    for reason in torch._dynamo.utils.graph_break_reasons:
        if reason.reason == "step_unsupported" and reason.user_stack:
            frame = reason.user_stack[-1]
            found.append(
                LostBreak(file=frame.filename, line=frame.lineno or 0, function=frame.name)
            )
    return tuple(found)


def forget_compiled_code() -> None:
    """Drop everything that was compiled in this process, as a new process would start."""
    torch.compiler.reset()


def load_backend(backend: object) -> None:
    """Import inductor ahead of its first use: what it warns of while loading is nobody's doing."""
    if backend in (None, "inductor"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("torch._inductor.compile_fx")


def eager_stance() -> contextlib.AbstractContextManager[object]:
    """Make code that is compiled by itself run eager inside."""
    stance: contextlib.AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance


def hindrances(target: object) -> tuple[str, ...]:
    """Name what keeps ``torch.compile`` from compiling, or from being observed, right now."""
    found = []
    if torch._dynamo.config.disable:  # torch reads TORCH_COMPILE_DISABLE only when it is imported
        found.append("torch.compile is switched off (TORCH_COMPILE_DISABLE or config.disable)")
    if os.environ.get("TORCHDYNAMO_DISABLE") == "1":
        found.append("torch.compile is switched off by TORCHDYNAMO_DISABLE=1")
    found += _foreign_stance()
    if getattr(target, "_torchdynamo_disable", False) is True:
        found.append("the target is marked with torch.compiler.disable")
    if modes := torch.utils._python_dispatch._get_current_dispatch_mode_stack():
        names = ", ".join(sorted({type(mode).__name__ for mode in modes}))
        found.append(f"a torch dispatch mode is active ({names})")
    return tuple(found)


def _foreign_stance() -> list[str]:
    """Name what a stance changes: also one that compiles hides recompiles, or the backend."""
    found, current = [], eval_frame._stance
    if current.stance != "default":
        found.append(f"torch.compiler.set_stance({current.stance!r}) is active")
    if current.backend is not None:
        found.append(f"torch.compiler.set_stance(force_backend={current.backend!r}) is active")
    if current.skip_guard_eval_unsafe:
        found.append("torch.compiler.set_stance(skip_guard_eval_unsafe=True) is active")
    return found


class InPlace(Record):
    """How to compile a copy of a target as the target itself was compiled."""

    plain: Any
    """The target without its compiled wrapper."""
    compile: Callable[[Any], Any]


def compiled_form(target: Any) -> InPlace | None:
    """Recognise the result of ``torch.compile``, or a module after ``module.compile()``.

    Raises:
        UnsupportedTorchError: It is compiled in a way that this torch does not let us repeat.
    """
    if isinstance(target, eval_frame.OptimizedModule):
        context = getattr(target, "dynamo_ctx", None)
        return InPlace(plain=target._orig_mod, compile=_required(context, target))
    if isinstance(target, types.MethodType) and compiled_form(target.__func__) is not None:
        return InPlace(plain=target, compile=lambda method: method)  # its function is compiled
    if isinstance(target, types.FunctionType) and hasattr(target, "_torchdynamo_orig_callable"):
        if getattr(target, "_torchdynamo_disable", False):
            return None
        return InPlace(
            plain=target._torchdynamo_orig_callable, compile=_required(_context(target), target)
        )
    if isinstance(target, torch.nn.Module) and target._compiled_call_impl is not None:
        context = _required(_context(target._compiled_call_impl), target)
        return InPlace(plain=target, compile=lambda module: context(module._call_impl))
    return None


def ensure_understood() -> None:
    """Prove once per process that this torch's trace says what is expected of it.

    Raises:
        UnsupportedTorchError: It does not; no check can be made.
    """
    if not eval_frame.is_dynamo_supported():
        raise UnsupportedTorchError(
            f"torch {torch.__version__} can't compile on this Python or platform"
        )
    if not hindrances(None):  # else nothing can be tried out now; the check fails by naming it
        _try_out()


@functools.cache
def _try_out() -> None:
    """Compile a tiny function and look at what the trace makes of it."""
    version = f"torch {torch.__version__}"
    # Code of its own, so that nothing that was compiled before need be dropped.
    fresh = types.FunctionType(_tiny.__code__.replace(), globals())
    before, compiled = counters(), torch.compile(fresh, backend="eager")
    with torch.no_grad(), tracing(0) as trace:
        compiled(torch.ones(2))
    with torch.no_grad(), probing(1) as warm:
        compiled(torch.ones(2))
    keys = {key for event in trace.events for key in event.metadata}
    missing = {"dynamo_output_graph", "compilation_metrics"} - keys
    graphs = counters().since(before).unique_graphs
    if missing or graphs != 1 or (warm.regions is not None and len(warm.regions) != 1):
        raise UnsupportedTorchError(
            f"the compile trace of {version} is not understood: one tiny compile gave {graphs} "
            f"graphs, regions {warm.regions}, missing events {sorted(missing)}. "
            "No check can be made; use a torch version that pytest-compileguard supports"
        )


def _tiny(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


@contextlib.contextmanager
def _patched() -> Iterator[None]:
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


@contextlib.contextmanager
def _regions(trace: CallTrace) -> Iterator[None]:
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


def _context(wrapper: Any) -> Any:
    """Find the compile context that ``torch.compile`` keeps in its wrapper's closure."""
    cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__ or (), strict=False))
    return cells["self"].cell_contents if "self" in cells else None


def _required(context: Any, target: object) -> Callable[[Any], Any]:
    if not callable(context):
        raise UnsupportedTorchError(
            f"{type(target).__name__} is already compiled in a way that torch "
            f"{torch.__version__} does not let us repeat on a copy; pass the plain target"
        )
    return context  # type: ignore[no-any-return]
