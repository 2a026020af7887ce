"""One run of sampling: on which clocks, how often, and until when."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_compileguard.observation import Cache, Clock
from pytest_compileguard.timing import stats
from pytest_compileguard.timing.blocks import Blocks
from pytest_compileguard.timing.clock import (
    BlockClock,
    CacheFlush,
    CpuClock,
    CudaDeviceClock,
    CudaWallClock,
    GapsShowError,
)
from pytest_compileguard.timing.conditions import VoidError, collect_young
from pytest_compileguard.timing.disturbance import Conditions, WatchAll
from pytest_compileguard.timing.sampling import Pairs, Sampler, Side, WarmUp

if TYPE_CHECKING:
    import torch

GRACE = 10
"""How many budgets may be spent if one does not give an interval."""
MOST_ATTEMPTS = 3
"""How often samples are taken at most while something disturbs them."""

_WARMUP_PART = 0.25
"""Part of the budget at which warm-up ends, steady or not."""
_GATED_PART = 0.8
"""Part of the budget that the clock which decides has, where there are two."""
DEVICE_TYPES = ("cpu", "cuda")
_TIGHT_DEVICE = 0.0015
"""As ``stats.TIGHT``, where nothing is to be decided: the time of kernels alone varies less."""


@dataclass(kw_only=True)
class Run:
    """One run of sampling; what it gathered outlives the reason why it was cut short."""

    eager: Side
    compiled: Side
    places: tuple[torch.device, ...]
    """Where they run; their results lie on the first one."""
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

    def sample_undisturbed(self, warmup: int, watch: WatchAll) -> None:
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
                # A ratio that will fail is worth waiting for what the driver has to say.
                self.conditions = watch.end(patient=self.limit is not None and not self._is_above())
            late = time.perf_counter() + self.max_time_s > end_s
            if self._needs_no_other() or late or self.attempts == MOST_ATTEMPTS:
                break
            self.wall, self.device, self.notes = Pairs(), Pairs(), []

        if self.conditions.void is not None:
            raise VoidError(self.conditions.void)

    def _needs_no_other(self) -> bool:
        """Whether nothing disturbed the samples, or nothing that matters."""
        if self.conditions.void is not None:
            return False
        return not self.conditions.disturbed or self._is_above()

    def _is_above(self) -> bool:
        """Whether the limit is kept, in spite of what disturbed."""
        gated = self.wall if self.gated == "wall" else self.device
        return self.limit is not None and stats.decide(gated.interval(), self.limit) == "above"

    def sample(self, warmup: int) -> None:
        """Take samples on all clocks of the device, once."""
        start_s, budget_s = time.perf_counter(), self.max_time_s
        cuda = self.places[0].type == "cuda"
        part = _GATED_PART if self.gated == "wall" else 1 - _GATED_PART
        wall_end_s = start_s + budget_s * (part if cuda else 1)
        blocks = Blocks(eager=self.eager, compiled=self.compiled, places=self.places)
        clock: BlockClock = CudaWallClock(self.places) if cuda else CpuClock()
        warm = self._sampler(clock, 1).warm_up(warmup, end_s=start_s + budget_s * _WARMUP_PART)
        self._record(warm, warmup)
        self.compiles = self.compile_count()
        choose = blocks.on_gpu if cuda else blocks.on_processor
        clock, self.calls = choose(warm, wall_end_s - time.perf_counter())
        sampler = self._sampler(clock, self.calls)
        limit = self.limit if self.gated == "wall" else None
        sampler.sample(self.wall, end_s=wall_end_s, limit=limit, at_look=self._at_look)
        sampler.fill_up(self.wall, end_s=start_s + GRACE * budget_s)
        if cuda:
            gapless = CudaDeviceClock(self.places)
            calls = blocks.behind_sleep(gapless, warm)
            self._sample_device(gapless, calls, start_s + budget_s, start_s + GRACE * budget_s)
        self._refuse_recompile()

    def _flush_between(self) -> None:
        """Let each call meet a cold cache: only the first one of a block does."""
        flush = CacheFlush(self.places)
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

    def _sample_device(
        self, clock: CudaDeviceClock, calls: int, end_s: float, grace_s: float
    ) -> None:
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

    def _at_look(self) -> None:
        collect_young()
        self._refuse_recompile()

    def _refuse_recompile(self) -> None:
        if (compiles := self.compile_count()) != self.compiles:
            raise VoidError(
                f"compiled or recorded CUDA graphs {compiles - self.compiles} time(s) while "
                "sampling, so samples hold that time; make the guards stable, or warm up longer"
            )
