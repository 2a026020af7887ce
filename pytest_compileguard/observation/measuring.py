"""What was measured: times, device memory, launched kernels, and the state of the GPU."""

from __future__ import annotations

from typing import Literal

from pytest_compileguard.observation.record import Record

Clock = Literal["wall", "device"]
Cache = Literal["warm", "cold"]


class GpuState(Record):
    """What the driver said of a GPU at one moment; what this GPU does not tell is ``None``."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    clock_reasons: tuple[str, ...] | None = None
    """Why the clocks are lower than they could be, in the driver's terms; empty: they are not."""
    temperature_c: int | None = None
    power_w: float | None = None
    utilisation_percent: int | None = None
    """Part of the last moments in which any kernel ran, of this process too."""
    other_processes: int | None = None
    """Processes that compute on it beside this one, whether busy or not."""
    others_busy_percent: int | None = None
    """Most that one of them computed since the state before; ``None`` in a first state."""
    mig: bool | None = None
    """Whether it is split into instances, each of which sees a part of it."""
    thermal_slowdown_s: float | None = None
    """Time spent below its clocks as it was too hot, since the driver was loaded."""


class SpeedObservation(Record, tag=True):
    """Samples of both sides, taken in turn. Raw; ``stats`` derives numbers from them."""

    clock: Literal["cuda_event", "perf_counter"]
    device: str
    """Device type and index, for example ``cuda:0`` or ``cpu``."""
    call: int
    """The call of the sequence whose inputs were timed."""
    calls_per_block: int
    warmup: int
    eager_s: tuple[float, ...]
    """Seconds a call, one value a pair; back-to-back calls, launch overhead included (wall)."""
    compiled_s: tuple[float, ...]
    """As ``eager_s``, for the compiled side."""
    device_eager_s: tuple[float, ...] = ()
    """Seconds a call with launch gaps hidden; empty where there is no device clock."""
    device_compiled_s: tuple[float, ...] = ()
    """As ``device_eager_s``, for the compiled side."""
    threads: int = 1
    cpus: int | None = None
    """Logical CPUs that this process may run on; ``None``: not known."""
    cache: Cache = "warm"
    """``cold``: the L2 cache was flushed before each block."""
    restored: tuple[str, ...] = ()
    """What the call mutates, and was brought back before each block."""
    void: str | None = None
    """Why the samples don't count (a recompile while sampling, a tracer), else ``None``."""
    notes: tuple[str, ...] = ()
    gpu_before: GpuState | None = None
    gpu_after: GpuState | None = None
    gpu_unread: str | None = None
    """Why the state of the GPU is not known, else ``None``; on the CPU there is none to know."""
    attempts: int = 1
    """How often samples were taken, as something disturbed them; those of the last one are here."""
    disturbed: tuple[str, ...] = ()
    """What disturbed the last attempt too: then a ratio that is too low proves nothing."""


class MemoryObservation(Record, tag=True):
    """Most device memory that one warm call of each side took beyond what was taken before it."""

    eager_bytes: int
    compiled_bytes: int
    """With the memory that CUDA graphs keep for themselves."""
    graph_bytes: int = 0
    """That of CUDA graphs alone."""
    touched_bytes: int = 0
    """Inputs, state and outputs of the compiled call."""
    copy_bytes_per_s: float = 0.0
    """What a plain copy within this GPU reads and writes in a second."""


class LaunchedKernel(Record):
    """A kernel that one warm call launched, by the name that the profiler gives it."""

    name: str
    launches: int


class LaunchObservation(Record, tag=True):
    """What one warm call of each side launched on the GPU."""

    eager_kernels: int
    compiled_kernels: int
    eager_copies: int = 0
    """Copies and fills of memory, which are no kernels."""
    compiled_copies: int = 0
    eager_launched: tuple[LaunchedKernel, ...] = ()
    """Most often launched first; the rarest are left out where there are very many."""
    compiled_launched: tuple[LaunchedKernel, ...] = ()
