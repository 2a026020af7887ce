"""Clocks: each times a block of back-to-back calls and returns seconds a call.

Wall time is what a user feels: the cost of launching included. Device time is what the kernels
cost: the launch gaps are hidden by a kernel that keeps the GPU busy until every launch of the
block waits behind it. Both come from CUDA events on a GPU. An event knows some 0.5 us, and the
first launch after an idle moment costs 50 to 150 us more than later ones, so a block has many
calls, and follows a call that is not timed wherever one more is allowed. Without that one, a call
of 130 us that only the GPU limits read 3 to 12 % slower than its kernel on an H200, by how fast the
processor happened to be for some seconds; as eager took longer, the ratio moved by as much.

Calls may use several GPUs: a block begins when all of them are idle and ends when all of them are.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

Call = Callable[[], object]

_EVENT_RESOLUTION_S = 0.5e-6
_MS_PER_S = 1e3
_REMEMBERED_BLOCKS = 8
"""Of both sides, in turn."""
_MARGIN = 1.5
"""How much longer a sleep is than the slowest launching of late: a processor has slow moments."""


class BlockClock(Protocol):
    """Times blocks of calls."""

    def block_s(self, call: Call, calls: int) -> float | None:
        """Return seconds a call, above 0; ``None``: this block does not count, take another."""


class CpuClock:
    """Wall time on a processor."""

    def __init__(self) -> None:
        self._resolution_s = time.get_clock_info("perf_counter").resolution

    def block_s(self, call: Call, calls: int) -> float:
        """Return seconds a call."""
        start_s = time.perf_counter()
        for _ in repeat(None, calls):
            call()
        elapsed_s = time.perf_counter() - start_s
        return max(elapsed_s, self._resolution_s) / calls


class CudaWallClock:
    """Wall time of calls that launch work on GPUs.

    Args:
        places: The GPUs; events are recorded on the first one. Without, the current GPU.
        lead_in: Let an untimed call run ahead of each block, so that the timed ones follow it as
            they follow each other. Without, a block begins on an idle GPU.
    """

    def __init__(self, places: Sequence[torch.device] = (), *, lead_in: bool = False) -> None:
        import torch  # never at plugin load

        self._lead_in = lead_in
        event: Any = torch.cuda.Event  # torch leaves it untyped
        self._cuda = torch.cuda
        # Which GPU is current is a matter of the calls, so all is recorded on streams by name.
        self._stream, *others = [torch.cuda.current_stream(p) for p in places or (None,)]
        self._others = [(stream, event()) for stream in others]
        self._start = event(enable_timing=True)
        self._end = event(enable_timing=True)

    def block_s(self, call: Call, calls: int) -> float | None:
        """Return seconds a call, to the end of the work of the last one."""
        self._wait_for_all()
        if self._lead_in:
            call()
        self._record(self._start)
        for _ in repeat(None, calls):
            call()
        self._record(self._end)
        self._end.synchronize()
        return self._elapsed_s() / calls

    def _wait_for_all(self) -> None:
        self._cuda.synchronize(self._stream.device)
        for stream, _ in self._others:
            self._cuda.synchronize(stream.device)

    def _record(self, moment: Any) -> None:
        """Record the moment at which all GPUs have done what was launched so far."""
        for stream, done in self._others:
            done.record(stream)
            done.wait(self._stream)
        moment.record(self._stream)

    def _elapsed_s(self) -> float:
        elapsed_ms: float = self._start.elapsed_time(self._end)
        return max(elapsed_ms / _MS_PER_S, _EVENT_RESOLUTION_S)


class CacheFlush:
    """Empties the L2 caches of GPUs by writing to more memory than they hold.

    Args:
        places: The GPUs; without, the current one.
    """

    _OVER = 2
    """How many times its size is written, as it need not replace the oldest lines first."""

    def __init__(self, places: Sequence[torch.device] = ()) -> None:
        import torch  # never at plugin load

        self._memories = []
        for place in places or (torch.device("cuda", torch.cuda.current_device()),):
            size = self._OVER * torch.cuda.get_device_properties(place).L2_cache_size
            self._memories.append(torch.empty(size, dtype=torch.uint8, device=place))

    def __call__(self) -> None:
        """Launch the writing; the clocks wait for it before they start."""
        for memory in self._memories:
            memory.zero_()


class GapsShowError(Exception):
    """The launches of a block could not be kept ahead of the GPU."""


class CudaDeviceClock(CudaWallClock):
    """Time of the kernels alone: launches wait behind a sleeping kernel.

    The sleep must outlast the launching of the whole block, else gaps leak into the number. So
    each block is verified: once all of it is enqueued, its start must not have been reached. If
    it was, the block does not count and the next sleep is longer. A sleep that was long enough is
    followed by a shorter one, as sleeping is most of what a block costs.
    """

    FIRST_SLEEP_S = 1e-3
    SHORTEST_SLEEP_S = 100e-6
    LONGEST_SLEEP_S = 20e-3
    """Launching that takes longer than this fills the queue of launches or waits for results."""

    def __init__(self, places: Sequence[torch.device] = ()) -> None:
        super().__init__(places)
        self._sleep_s = self.FIRST_SLEEP_S
        self._launching_s: deque[float] = deque(maxlen=_REMEMBERED_BLOCKS)
        self._cycles_per_s = self._calibrate()

    def block_s(self, call: Call, calls: int) -> float | None:
        """Return seconds a call, or ``None`` if gaps may have leaked in.

        Raises:
            GapsShowError: They did behind the longest sleep as well.
        """
        self._wait_for_all()
        self._sleep(int(self._sleep_s * self._cycles_per_s))
        self._start.record(self._stream)
        for stream, _ in self._others:
            self._start.wait(stream)
        begin_s = time.perf_counter()
        for _ in repeat(None, calls):
            call()
        self._record(self._end)
        hidden = not self._start.query()
        launching_s = time.perf_counter() - begin_s
        self._end.synchronize()
        self._launching_s.append(launching_s)
        if hidden:
            needed_s = _MARGIN * max(self._launching_s)
            self._sleep_s = min(self._sleep_s, max(needed_s, self.SHORTEST_SLEEP_S))
            return self._elapsed_s() / calls
        self._sleep_longer(launching_s)
        return None

    def _sleep_longer(self, launching_s: float) -> None:
        if self._sleep_s >= self.LONGEST_SLEEP_S:
            raise GapsShowError
        # A margin, as the processor has slow moments.
        self._sleep_s = min(max(2 * self._sleep_s, 2 * launching_s), self.LONGEST_SLEEP_S)

    def _calibrate(self) -> float:
        """Measure how many cycles the sleeping kernel counts in a second."""
        cycles = 2_000_000
        for _ in range(2):  # the first one loads the kernel
            self._wait_for_all()
            self._start.record(self._stream)
            self._sleep(cycles)
            self._end.record(self._stream)
            self._end.synchronize()
        return cycles / self._elapsed_s()

    def _sleep(self, cycles: int) -> None:
        with self._cuda.device(self._stream.device):
            self._cuda._sleep(cycles)  # noqa: SLF001  # no public kernel keeps a GPU busy so long
