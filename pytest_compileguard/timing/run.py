"""One run of sampling: on which clock, in blocks of how many calls, how often, and until when."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pytest_compileguard.observation import Cache, Clock
from pytest_compileguard.timing import stats
from pytest_compileguard.timing.clock import (
    BlockClock,
    CacheFlush,
    CpuClock,
    CudaDeviceClock,
    CudaWallClock,
    GapsShowError,
)
from pytest_compileguard.timing.conditions import VoidError, collect_young
from pytest_compileguard.timing.disturbance import Conditions, Watch
from pytest_compileguard.timing.sampling import Pairs, Sampler, Side, WarmUp, calls_per_block

GRACE = 10
"""How many budgets may be spent if one does not give an interval."""
MOST_ATTEMPTS = 3
"""How often samples are taken at most while something disturbs them."""

_WARMUP_PART = 0.25
"""Part of the budget at which warm-up ends, steady or not."""
_WALL_PART = 0.75
"""Part of the budget at which the device clock has its turn, where there is one."""
DEVICE_TYPES = ("cpu", "cuda")
_BLOCK_S = {"cpu": 200e-6, "cuda": 300e-6}
"""What a block of the faster side takes at least. No longer: what disturbs a processor lasts longer
than some calls, so more pairs tell more than longer blocks."""
_LONGEST_LEAD_IN_S = 20e-3
"""Of a longer call, what the first launch costs more is below 1 %, and a lead-in costs much."""
_DEVICE_BLOCK_S = 400e-6
"""What a block of the faster side takes of the GPU, at least: much more than events resolve."""
_LONGEST_DEVICE_BLOCK_S = 800e-6
"""What one of the slower side may take, as long as few calls suffice for that: a GPU queues about
a thousand launches, and no kernel takes less than a microsecond. When the queue is full, launching
waits for the sleeping kernel."""
_MOST_DEVICE_CALLS = 100
_FEW_CALLS = 3
_TIGHT_DEVICE = 0.0015
"""As ``stats.TIGHT``, where nothing is to be decided: the time of kernels alone varies less."""


@dataclass(kw_only=True)
class Run:
    """One run of sampling; what it gathered outlives the reason why it was cut short."""

    eager: Side
    compiled: Side
    device_type: str
    limit: float | None
    compile_count: Callable[[], int]
    max_time_s: float
    gated: Clock
    cache: Cache
    wall: Pairs = field(default_factory=Pairs)
    device: Pairs = field(default_factory=Pairs)
    warmup: int = 0
    calls: int = 1
    notes: list[str] = field(default_factory=list)
    compiles: int = 0
    attempts: int = 0
    conditions: Conditions = field(default_factory=Conditions)

    def sample_undisturbed(self, warmup: int, watch: Watch) -> None:
        """Sample, and again while what disturbed the samples may have decided them."""
        end_s = time.perf_counter() + GRACE * self.max_time_s
        if self.cache == "cold":
            self._flush_between()
        while True:
            self.attempts += 1
            watch.begin()
            try:
                self.sample(warmup)
            finally:
                self.conditions = watch.end()
            late = time.perf_counter() + self.max_time_s > end_s
            if not self.conditions.disturbed or self._is_above() or late:
                return
            if self.attempts == MOST_ATTEMPTS:
                return
            self.wall, self.device, self.notes = Pairs(), Pairs(), []

    def _is_above(self) -> bool:
        """Whether the limit is kept, in spite of what disturbed."""
        gated = self.wall if self.gated == "wall" else self.device
        return self.limit is not None and stats.decide(gated.interval(), self.limit) == "above"

    def sample(self, warmup: int) -> None:
        """Take samples on all clocks of the device, once."""
        start_s, budget_s = time.perf_counter(), self.max_time_s
        cuda = self.device_type == "cuda"
        part = _WALL_PART if self.gated == "wall" else 1 - _WALL_PART
        wall_end_s = start_s + budget_s * (part if cuda else 1)
        clock = CudaWallClock() if cuda else CpuClock()
        warm = self._sampler(clock, 1).warm_up(warmup, end_s=start_s + budget_s * _WARMUP_PART)
        self._record(warm, warmup)
        self.compiles = self.compile_count()
        self.calls = self._calls_per_block(warm, wall_end_s - time.perf_counter())
        if cuda and self._may_lead_in(warm):
            clock = CudaWallClock(lead_in=True)
        sampler = self._sampler(clock, self.calls)
        limit = self.limit if self.gated == "wall" else None
        sampler.sample(self.wall, end_s=wall_end_s, limit=limit, at_look=self._at_look)
        sampler.fill_up(self.wall, end_s=start_s + GRACE * budget_s)
        if cuda:
            self._sample_device(start_s + budget_s, start_s + GRACE * budget_s)
        self._refuse_recompile()

    def _calls_per_block(self, warm: WarmUp, time_s: float) -> int:
        calls = calls_per_block(
            warm,
            block_s=_BLOCK_S[self.device_type],
            time_s=time_s,
        )
        return min(calls, self._most_calls)

    def _may_lead_in(self, warm: WarmUp) -> bool:
        """Whether a call more than those timed does no harm, and is worth its time."""
        return self._most_calls > 1 and max(warm.eager_s, warm.compiled_s) < _LONGEST_LEAD_IN_S

    @property
    def _most_calls(self) -> int:
        return min(self.eager.most_calls, self.compiled.most_calls)

    def _flush_between(self) -> None:
        """Let each call meet a cold cache: only the first one of a block does."""
        flush = CacheFlush()
        self.eager = self.eager.also_prepared(flush)
        self.compiled = self.compiled.also_prepared(flush)

    def _sampler(self, clock: BlockClock, calls: int) -> Sampler:
        return Sampler(eager=self.eager, compiled=self.compiled, clock=clock, calls=calls)

    def _record(self, warm: WarmUp, wanted: int) -> None:
        self.warmup = warm.calls
        if warm.calls < wanted:
            fitted = f"{warm.calls} of {wanted} warm-up calls"
            self.notes.append(f"{fitted} fitted in max_time_s={self.max_time_s:g}")
        elif not warm.steady:
            self.notes.append(f"still getting faster after {warm.calls} warm-up calls")

    def _sample_device(self, end_s: float, grace_s: float) -> None:
        clock = CudaDeviceClock()
        calls = self._calls_behind_sleep(clock)
        limit = self.limit if self.gated == "device" else None
        while calls and time.perf_counter() < end_s:
            tight = _TIGHT_DEVICE if self.limit is None else stats.TIGHT
            sampler = replace(self._sampler(clock, calls), tight=tight)
            try:
                sampler.sample(self.device, end_s=end_s, limit=limit, at_look=self._at_look)
                if self.gated == "device":
                    sampler.fill_up(self.device, end_s=grace_s)
                break
            except GapsShowError:
                self.device, calls = Pairs(), calls // 2
        if not calls:
            self.notes.append(
                "no device clock: the launches of one call can't be kept ahead of the GPU "
                "(it waits for a result, or launches more than the GPU queues)"
            )
        elif not self.device.interval().defined:
            self.notes.append(f"device clock: only {len(self.device)} pairs fitted in the time")

    def _calls_behind_sleep(self, clock: CudaDeviceClock) -> int:
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
        return min(max(min(wanted, fitting), few), _MOST_DEVICE_CALLS, self._most_calls)

    def _at_look(self) -> None:
        collect_young()
        self._refuse_recompile()

    def _refuse_recompile(self) -> None:
        if (compiles := self.compile_count()) != self.compiles:
            raise VoidError(
                f"compiled or recorded CUDA graphs {compiles - self.compiles} time(s) while "
                "sampling, so samples hold that time; make the guards stable, or warm up longer"
            )
