"""Every default resolved, once, for one check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from pytest_compileguard.metrics import NOISE_THRESHOLD
from pytest_compileguard.observation import Cache, Clock
from pytest_compileguard.options import ArtifactsFor, Improvements, Options, UpdateMode
from pytest_compileguard.spec import CompileCheck

DEFAULT_WARMUP = 10
DEFAULT_MAX_TIME_S = 1.0

# Backends that run eager kernels: a speedup of theirs says nothing about what a user would get.
UNTIMED_BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition")


TIMING_OFF = "timing is off (--compileguard-no-timing)"

OWN_BACKEND = "of the target"
"""Stands for the backend of a target that was compiled already."""


class CompileArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments for ``torch.compile``; ``None`` leaves torch's default."""

    backend: Any = None
    mode: str | None = None
    fullgraph: bool | None = None
    dynamic: bool | None = None
    options: dict[str, Any] | None = None

    @property
    def given(self) -> dict[str, Any]:
        """Those that were asked for, ready to be passed on."""
        return {n: v for n in self.__struct_fields__ if (v := getattr(self, n)) is not None}

    @property
    def promises_cuda_graphs(self) -> bool:
        """Whether the mode records CUDA graphs on a GPU."""
        chosen = (self.options or {}).get("triton.cudagraphs", False)
        return self.mode in ("reduce-overhead", "max-autotune") or bool(chosen)

    @property
    def backend_name(self) -> str:
        if self.backend is None:
            return "inductor"
        if isinstance(self.backend, str):
            return self.backend
        return str(getattr(self.backend, "__qualname__", type(self.backend).__qualname__))


_ARGUMENTS = CompileArguments.__struct_fields__
_OF_WARM_CALLS = ("max_peak_memory_ratio", "max_kernels_per_call")
"""Limits that are measured where times are taken."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What will be done for one check."""

    nodeid: str
    """Node id of the test, as pytest gives it."""
    name: str
    """Name of the check within its test: the target's name, with ``-2`` and so on if taken."""
    arguments: CompileArguments
    own_arguments: tuple[str, ...]
    """Compile arguments that the test itself names, not the command line."""
    given_backend: str = ""
    """The option or ini key that names the backend; empty: the test does, or nothing."""
    max_graph_breaks: int | None
    max_recompiles: int | None
    min_speedup: float | None
    rtol: float | None
    atol: float | None
    warmup: int
    max_time_s: float
    noise_threshold: float
    untimed: str | None
    """Why nothing is timed, or ``None``."""
    strict: bool
    update_baseline: UpdateMode | None
    allow_graph_breaks: tuple[str, ...] = ()
    max_kernels: int | None = None
    max_cudagraph_skips: int | None = None
    max_compile_time_s: float | None = None
    max_peak_memory_ratio: float | None = None
    max_kernels_per_call: int | None = None
    clock: Clock = "wall"
    cache: Cache = "warm"
    setup: Any = None
    declined: frozenset[str] = frozenset()
    """Metrics that the options of this run, and not the test, switch off."""
    watched: bool = False
    """Whether a block was only watched: nothing to compare, nothing to time."""
    locates: bool = True
    """Whether a failing call is made again to find where it departs."""
    artifacts: Path | None = None
    """Folder below which traces, code and failing calls are saved; ``None``: nowhere."""
    artifacts_for: ArtifactsFor = "failed"
    """For which checks traces and code are saved."""
    improvements: Improvements = "offer"
    baseline_ref: str | None = None
    """The git revision whose baselines count; ``None``: those of the working tree."""
    rootpath: Path = Path()
    """The folder that stored places are relative to."""
    recording_arguments: tuple[str, ...] = ()
    """What to pass to pytest to run this check alone; empty: the node id will do."""

    @property
    def key(self) -> str:
        """Identity of the check in baselines and reports."""
        return f"{self.nodeid}::{self.name}"

    @property
    def limits(self) -> dict[str, float | int | tuple[str, ...]]:
        """The limits that were given, by the names that the marker has for them."""
        return {name: value for name in _LIMITS if (value := getattr(self, name)) not in (None, ())}


_LIMITS = (
    "max_graph_breaks",
    "allow_graph_breaks",
    "max_recompiles",
    "max_kernels",
    "max_cudagraph_skips",
    "min_speedup",
    "max_compile_time_s",
    "max_peak_memory_ratio",
    "max_kernels_per_call",
)


def make_plan(
    spec: CompileCheck, options: Options, *, nodeid: str, name: str, watched: bool = False
) -> Plan:
    """Resolve test > command line > ini > default."""
    own_backend = _value(spec.backend)
    arguments = CompileArguments(
        backend=own_backend if own_backend is not None else options.backend,
        mode=_value(spec.mode),
        fullgraph=_value(spec.fullgraph),
        dynamic=_value(spec.dynamic),
        options=_value(spec.options),
    )
    min_speedup = _value(spec.min_speedup)
    warm_limits = (min_speedup, *(_value(getattr(spec, name)) for name in _OF_WARM_CALLS))
    asked = any(limit is not None for limit in warm_limits)
    return Plan(
        nodeid=nodeid,
        name=name,
        arguments=arguments,
        own_arguments=tuple(n for n in _ARGUMENTS if _value(getattr(spec, n)) is not None),
        given_backend=options.origin("backend") if own_backend is None and options.backend else "",
        max_graph_breaks=_value(spec.max_graph_breaks),
        max_recompiles=_value(spec.max_recompiles),
        allow_graph_breaks=tuple(_value(spec.allow_graph_breaks) or ()),
        max_kernels=_value(spec.max_kernels),
        max_cudagraph_skips=_value(spec.max_cudagraph_skips),
        min_speedup=min_speedup,
        max_compile_time_s=_value(spec.max_compile_time_s),
        max_peak_memory_ratio=_value(spec.max_peak_memory_ratio),
        max_kernels_per_call=_value(spec.max_kernels_per_call),
        clock=_first(_value(spec.clock), "wall"),
        cache=_first(_value(spec.cache), "warm"),
        setup=_value(spec.setup),
        rtol=_value(spec.rtol),
        atol=_value(spec.atol),
        warmup=_first(_value(spec.warmup), options.warmup, DEFAULT_WARMUP),
        max_time_s=_first(_value(spec.max_time_s), options.max_time_s, DEFAULT_MAX_TIME_S),
        noise_threshold=_first(options.noise_threshold, NOISE_THRESHOLD),
        untimed="a watched block is not timed"
        if watched
        else _why_untimed(arguments, options, wanted=asked and own_backend is not None),
        declined=_declined(arguments, options, own_backend=own_backend is not None),
        watched=watched,
        strict=options.strict,
        update_baseline=options.update_baseline,
        locates=not options.no_locate,
        artifacts=options.artifacts,
        artifacts_for=options.artifacts_for or "failed",
        improvements=options.improvements or "offer",
        baseline_ref=options.baseline_ref,
        rootpath=options.rootpath,
        recording_arguments=options.recording_arguments(nodeid),
    )


def _why_untimed(arguments: CompileArguments, options: Options, *, wanted: bool) -> str | None:
    if options.no_timing:
        return TIMING_OFF
    if arguments.backend_name in UNTIMED_BACKENDS and not wanted:
        return f"backend {arguments.backend_name} runs eager kernels; its speed says nothing"
    return None


_WARM_METRICS = frozenset(
    {
        "speedup",
        "peak_memory",
        "kernels_per_call",
        "baseline.speedup",
        "baseline.device_speedup",
    }
)
_INDUCTOR_METRICS = frozenset({"kernels", "cudagraph_skips"})


def _declined(
    arguments: CompileArguments, options: Options, *, own_backend: bool
) -> frozenset[str]:
    """Name what can't be checked since the command line or the ini file asked for less."""
    given = not own_backend and arguments.backend_name != "inductor"
    untimed = options.no_timing or (given and arguments.backend_name in UNTIMED_BACKENDS)
    return (_WARM_METRICS if untimed else frozenset()) | (
        _INDUCTOR_METRICS if given else frozenset()
    )


def _value(value: Any) -> Any:
    return None if value is UNSET else value


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)
