"""A clock of the GPU for pytest-benchmark.

``pytest --benchmark-timer=pytest_compileguard.benchmark_timer.cuda_timer`` times any
benchmark by CUDA events on the current stream: with the launches, without the time that
Python needs to notice that the GPU is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_compileguard.errors import DeviceError

if TYPE_CHECKING:
    import torch


class _CudaClock:
    def __init__(self) -> None:
        self._last: torch.cuda.Event | None = None
        self._total_s = 0.0

    def now_s(self) -> float:
        import torch

        if not torch.cuda.is_available():
            raise DeviceError(
                "pytest_compileguard.benchmark_timer.cuda_timer needs a CUDA device, and torch "
                f"{torch.__version__} finds none; leave --benchmark-timer out on this machine"
            )
        now: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        now.record()
        now.synchronize()
        if self._last is not None:
            # Summed by steps: one elapsed time is a float32, which after an hour holds no more
            # than a quarter of a millisecond.
            self._total_s += self._last.elapsed_time(now) / 1e3
        self._last = now
        return self._total_s


_CLOCK = _CudaClock()


def cuda_timer() -> float:
    """Wait for the current stream; seconds since the first use, on the clock of the GPU.

    Raises:
        DeviceError: There is no CUDA device.
    """
    return _CLOCK.now_s()
