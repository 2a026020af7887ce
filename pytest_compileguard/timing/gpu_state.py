"""Reads the state of a GPU through nvidia-ml-py, if that is installed. Changes nothing.

The GPU is found by its UUID, as its index depends on ``CUDA_VISIBLE_DEVICES`` and on the
container. What a GPU does not tell is ``None``; that nothing can be read is an error with the
reason. Each reading takes a millisecond or so and stands outside of everything that is timed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.observation import GpuState

CLOCK_REASONS = {
    0x001: "idle",
    0x002: "clocks set by the user",
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
    0x100: "display clocks",
}
"""By the bit that stands for it in NVML, named as ``nvidia-smi -q`` does."""

_MS_PER_S = 1e3
_US_PER_S = 1e6
_NS_PER_S = 1e9

T = TypeVar("T")


class GpuUnreadError(CompileGuardError):
    """The state of the GPU can't be read; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuReader:
    """Reads the state of one physical GPU."""

    nvml: Any
    """The module ``pynvml``, or what speaks like it."""
    handle: Any
    is_instance: bool
    """Whether this process has an instance of the GPU only."""

    def __call__(self, since_s: float | None = None) -> GpuState:
        """Read it.

        Args:
            since_s: Moment, in seconds since the epoch, from which on the work of other
                processes counts.

        Raises:
            GpuUnreadError: The driver does not answer any more.
        """
        nvml, handle = self.nvml, self.handle
        listed = self._told(self._process_ids)
        power_mw = self._told(nvml.nvmlDeviceGetPowerUsage, handle)
        rates = self._told(nvml.nvmlDeviceGetUtilizationRates, handle)
        return GpuState(
            sm_clock_mhz=self._told(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._told(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            clock_reasons=self._told(self._clock_reasons),
            temperature_c=self._told(
                nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
            ),
            power_w=None if power_mw is None else power_mw / _MS_PER_S,
            utilisation_percent=None if rates is None else int(rates.gpu),
            other_processes=None if listed is None else _others(listed),
            others_busy_percent=None if since_s is None else self._told(self._busy, since_s),
            mig=self.is_instance or self._told(self._is_split),
            thermal_slowdown_s=self._told(self._thermal_slowdown_s),
        )

    def _told(self, ask: Callable[..., T], *arguments: Any) -> T | None:
        """Ask; ``None`` if this GPU or driver has no such answer."""
        try:
            return ask(*arguments)
        except self.nvml.NVMLError as error:
            if type(error).__name__ in _NO_ANSWER:
                return None
            raise GpuUnreadError(f"the driver failed: {_first_line(error)}") from error
        except (AttributeError, TypeError, ValueError):  # another version of the binding
            return None

    def _clock_reasons(self) -> tuple[str, ...]:
        nvml = self.nvml
        try:  # the name that newer ones have
            bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(self.handle)
        except (AttributeError, nvml.NVMLError):
            bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle)
        return tuple(name for bit, name in CLOCK_REASONS.items() if bits & bit)

    def _process_ids(self) -> list[int]:
        return [int(p.pid) for p in self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)]

    def _busy(self, since_s: float) -> int | None:
        """Give the most that one other process computed since then, in percent, if it is told."""
        samples = self.nvml.nvmlDeviceGetProcessUtilization(self.handle, int(since_s * _US_PER_S))
        most: dict[int, int] = {}
        for sample in samples:
            if int(sample.timeStamp) >= since_s * _US_PER_S:
                most[int(sample.pid)] = max(most.get(int(sample.pid), 0), int(sample.smUtil))
        return busiest_other(most, os.getpid()) if most else None

    def _is_split(self) -> bool:
        current, _pending = self.nvml.nvmlDeviceGetMigMode(self.handle)
        return bool(current)

    def _thermal_slowdown_s(self) -> float:
        nvml = self.nvml
        status = nvml.nvmlDeviceGetViolationStatus(self.handle, nvml.NVML_PERF_POLICY_THERMAL)
        return float(status.violationTime) / _NS_PER_S


_NO_ANSWER = (
    "NVMLError_NotSupported",
    "NVMLError_NoPermission",
    "NVMLError_NotFound",
    "NVMLError_FunctionNotFound",
    "NVMLError_InvalidArgument",
    "NVMLError_ArgumentVersionMismatch",
)


def busiest_other(busy_percent: dict[int, int], own: int) -> int:
    """Leave this process out, and give the most that one of the others has.

    In a container the driver may know this process by a number that it does not know itself. It
    has just computed more than anything beside it that does not matter, so the busiest goes.
    """
    others = dict(busy_percent)
    if own in others:
        del others[own]
    elif others:
        del others[max(others, key=others.__getitem__)]
    return max(others.values(), default=0)


def _others(process_ids: list[int]) -> int:
    """Count the others: one of those listed is this process, by whichever number."""
    return max(len(set(process_ids)) - 1, 0)


def open_reader(uuid: str) -> GpuReader:
    """Find the GPU of a UUID, as torch gives it: without ``GPU-`` before it.

    Raises:
        GpuUnreadError: nvidia-ml-py is not installed, there is no driver, or no such GPU.
    """
    nvml = _nvml()
    try:
        return _found(nvml, uuid)
    except nvml.NVMLError as error:
        raise GpuUnreadError(f"the driver has no GPU {uuid}: {_first_line(error)}") from error


def gpu_count() -> int:
    """Count the GPUs that the driver shows to this process, without loading torch.

    Raises:
        GpuUnreadError: It can't be asked.
    """
    nvml = _nvml()
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        raise GpuUnreadError(f"the driver can't be asked: {_first_line(error)}") from error


def _found(nvml: Any, uuid: str) -> GpuReader:
    bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{bare}")
    except nvml.NVMLError:
        # An instance has few answers of its own; the GPU that it is a part of has them.
        instance = nvml.nvmlDeviceGetHandleByUUID(f"MIG-{bare}")
        handle = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)
        return GpuReader(nvml=nvml, handle=handle, is_instance=True)
    return GpuReader(nvml=nvml, handle=handle, is_instance=False)


@lru_cache(maxsize=1)
def _nvml() -> Any:
    """Load the binding and connect to the driver, once a process.

    Raises:
        GpuUnreadError: Either is missing.
    """
    try:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415
    except ImportError:
        raise GpuUnreadError(
            "nvidia-ml-py is not installed, so throttling and other processes go unseen; "
            "install pytest-compileguard[gpu]"
        ) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise GpuUnreadError(f"the driver can't be asked: {_first_line(error)}") from error
    return pynvml


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
