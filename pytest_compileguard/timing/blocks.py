"""How many calls make a block of each clock, and whether an untimed call leads in to it.

A block is long against what a clock resolves, and no longer: what disturbs a processor lasts longer
than some calls, so more pairs tell more than longer blocks. Behind a lead-in a block has at least
eight calls while they are short, as the lead-in is time that tells nothing. On an H200 an encoder
layer of 0.2 ms that launching limits was read 14 times for 0.7 s each: the spread was 0.70, 0.58,
0.50 and 0.46 % from blocks of 1, 2, 4 and 8 calls. Behind a sleep a block costs the sleep, which
outlasts the launching, so calls that take long to launch get shorter blocks: a CUDA graph of small
kernels was read with a spread of 0.02, 0.04 and 0.17 % in 0.6 s from blocks of 50, 100 and 200.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_compileguard.timing.clock import (
    BlockClock,
    CpuClock,
    CudaDeviceClock,
    CudaWallClock,
    GapsShowError,
)
from pytest_compileguard.timing.sampling import MOST_CALLS, Side, WarmUp

if TYPE_CHECKING:
    import torch

_PAIRS_WORTH_HAVING = 50
_BLOCK_S = 200e-6
"""What a block of the faster side takes on a processor, at least."""
_LED_BLOCK_S = 300e-6
"""The same on a GPU, behind a lead-in."""
_LED_CALLS = 8
"""And as many calls at least, while they are short: of fewer, the lead-in would be a large part."""
_LONGEST_LED_BLOCK_S = 2e-3
_LONGEST_LEAD_IN_S = 20e-3
"""Of a longer call, what the first launch costs more is below 1 %, and a lead-in costs much."""
_DEVICE_BLOCK_S = 400e-6
"""What a block of the faster side takes of the GPU, at least: much more than events resolve."""
_LONGEST_DEVICE_BLOCK_S = 800e-6
"""What one of the slower side may take, as long as few calls suffice for that: a GPU queues about
a thousand launches, and no kernel takes less than a microsecond. When the queue is full, launching
waits for the sleeping kernel."""
_LONGEST_LAUNCHING_S = 2.5e-3
"""What launching one may take, as long as few calls do with less."""
_MOST_DEVICE_CALLS = 100
_FEW_CALLS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """Chooses the blocks of two sides that are warm."""

    eager: Side
    compiled: Side
    places: tuple[torch.device, ...]
    """Where they run."""

    def on_processor(self, warm: WarmUp, time_s: float) -> tuple[BlockClock, int]:
        """Return the clock, and calls a block; ``time_s`` is there for all pairs."""
        return CpuClock(), self._calls(warm, _BLOCK_S, time_s)

    def on_gpu(self, warm: WarmUp, time_s: float) -> tuple[BlockClock, int]:
        """Return the same for wall time on a GPU."""
        fastest_s = min(warm.eager_s, warm.compiled_s)
        few_s = min(_LED_CALLS * fastest_s, _LONGEST_LED_BLOCK_S)
        calls = self._calls(warm, max(_LED_BLOCK_S, few_s), time_s)
        return CudaWallClock(self.places, lead_in=self._may_lead_in(warm)), calls

    def behind_sleep(self, clock: CudaDeviceClock, warm: WarmUp) -> int:
        """Choose how many calls are launched at once, by how long a few of them take."""
        few = min(_FEW_CALLS, self._most_calls)
        try:
            found_s = [side.block_s(clock, few) for side in (self.eager, self.compiled) * 3]
        except GapsShowError:
            return few
        times_s = [found for found in found_s if found is not None]
        if not times_s:
            return few
        wanted = math.ceil(_DEVICE_BLOCK_S / min(times_s))
        fitting = math.ceil(_LONGEST_DEVICE_BLOCK_S / max(times_s))
        # A call takes at least as long as its launching does.
        launched = math.ceil(_LONGEST_LAUNCHING_S / max(warm.eager_s, warm.compiled_s))
        most = min(_MOST_DEVICE_CALLS, self._most_calls)
        return min(max(min(wanted, fitting, launched), few), most)

    def _may_lead_in(self, warm: WarmUp) -> bool:
        """Whether a call more than those timed does no harm, and is worth its time."""
        return self._most_calls > 1 and max(warm.eager_s, warm.compiled_s) < _LONGEST_LEAD_IN_S

    def _calls(self, warm: WarmUp, block_s: float, time_s: float) -> int:
        return min(calls_per_block(warm, block_s=block_s, time_s=time_s), self._most_calls)

    @property
    def _most_calls(self) -> int:
        return min(self.eager.most_calls, self.compiled.most_calls)


def calls_per_block(warm: WarmUp, *, block_s: float, time_s: float) -> int:
    """Choose how many calls make a block.

    Args:
        warm: How long one call takes.
        block_s: How long the block of the faster side is to take, at least.
        time_s: Time for all pairs. Slow calls get smaller blocks, as the number of pairs is what
            makes an interval.
    """
    wanted = math.ceil(block_s / min(warm.eager_s, warm.compiled_s))
    affordable = int(time_s / (_PAIRS_WORTH_HAVING * (warm.eager_s + warm.compiled_s)))
    return max(1, min(wanted, affordable, MOST_CALLS))
