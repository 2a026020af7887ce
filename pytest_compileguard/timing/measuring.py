"""Takes samples of eager and compiled in turn, until they tell enough.

How, and why so:

- Pairs, with the order inside each at random: the machine's pace cancels, and so does any
  advantage of going second, or of keeping step with what else repeats.
- Blocks of back-to-back calls, long against the resolution of the clock.
- Both sides are warmed until neither gets faster. No first call is ever timed.
- At most ``stats.LOOKS`` looks, spread over the time there is: sampling stops once the interval
  settles the limit, or is tight. See ``stats`` for why the number of looks is fixed.
- The time budget covers warm-up and both clocks. A slow call may overrun it: ``LEAST_WARMUP``
  calls and ``LEAST_PAIRS`` pairs are always made, and up to ``GRACE`` budgets are spent on the
  ten or so pairs without which no interval exists, as a budget that buys no answer is wasted.
  If those don't suffice either, a note says what would.
- Collection of garbage is off, no tracer is active, and the process has the device for itself.
- What the driver knows of the GPU is read before and after. Disturbed samples are taken again,
  ``MOST_ATTEMPTS`` times at most and within the same grace, unless they lie above the limit anyway.
- Samples that don't count are void with the reason, and are kept for whoever wants to look.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import torch

from pytest_compileguard.observation import Cache, Clock, SpeedObservation
from pytest_compileguard.timing import stats
from pytest_compileguard.timing.clock import (
    BlockClock,
    CacheFlush,
    Call,
    CpuClock,
    CudaDeviceClock,
    CudaWallClock,
    GapsShowError,
)
from pytest_compileguard.timing.conditions import (
    VoidError,
    change_of_pace,
    collect_young,
    doubts,
    garbage_collection_off,
    refuse_tracers,
    shortfall,
    usable_cpus,
)
from pytest_compileguard.timing.device_lock import LOCK_TIMEOUT_S, DeviceLockError, exclusive
from pytest_compileguard.timing.disturbance import Conditions, Reader, Watch
from pytest_compileguard.timing.gpu_state import open_reader
from pytest_compileguard.timing.sampling import Pairs, Sampler, Side, WarmUp, calls_per_block

GRACE = 10
"""How many budgets may be spent if one does not give an interval."""
MOST_ATTEMPTS = 3
"""How often samples are taken at most while something disturbs them."""

_WARMUP_PART = 0.25
"""Part of the budget at which warm-up ends, steady or not."""
_WALL_PART = 0.65
"""Part of the budget at which the device clock has its turn, where there is one."""
_BLOCK_S = {"cpu": 200e-6, "cuda": 500e-6}
_LEAST_CALLS = {"cpu": 1, "cuda": 10}
"""On a GPU the first launch of a block costs more than the others."""
_MOST_DEVICE_CALLS = 10
"""A GPU queues about a thousand launches; a longer block would wait for the sleeping kernel."""
_TIGHT_DEVICE = 0.0015
"""As ``stats.TIGHT``, where nothing is to be decided: the time of kernels alone varies less."""


def sample_speed(  # noqa: PLR0913  # one plain call for the runner; each is a fact of the check
    eager: Call | Side,
    compiled: Call | Side,
    *,
    device: str,
    call: int,
    warmup: int,
    max_time_s: float,
    limit: float | None,
    compile_count: Callable[[], int],
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    clock: Clock = "wall",
    cache: Cache = "warm",
    find_reader: Callable[[], Reader] | None = None,
) -> SpeedObservation:
    """Time both sides. An exception of a side makes the samples void, with the reason.

    Args:
        eager: One eager call, without arguments; its result is dropped. As a ``Side``, with what
            prepares each block.
        compiled: One compiled call, on the same inputs.
        device: Where they run: ``cpu``, or ``cuda`` with an index.
        call: The call of the sequence whose inputs are timed; only recorded.
        warmup: Untimed calls of each side, at least; fewer only if the budget forbids.
        max_time_s: Budget for warm-up and both clocks; waiting for the device is not counted.
        limit: Speedup to be decided; ``None``: sample until the interval is tight.
        compile_count: How many compiles, and recordings of CUDA graphs, there were so far.
            If it changes, the samples are void.
        lock_timeout_s: Longest wait for the device.
        clock: The one on which the limit is to be decided.
        cache: Whether each call meets a warm L2 cache, or a flushed one.
        find_reader: Finds what reads the state of the device; without it, the driver of a GPU.
    """
    place = _place(device)
    run = _Run(
        eager=_side("eager", eager),
        compiled=_side("compiled", compiled),
        device_type=place.type,
        gated=clock,
        cache=cache,
        limit=limit,
        compile_count=compile_count,
        max_time_s=max_time_s,
    )
    void = None
    try:
        _refuse_unknown(place.type)
        refuse_tracers()
        held = exclusive(str(place), timeout_s=lock_timeout_s)
        with held as released_s, garbage_collection_off():
            watch = Watch(find_reader or _reader_of(place), released_s=released_s)
            with _current(place):
                run.sample_undisturbed(warmup, watch)
            refuse_tracers()
    except (VoidError, DeviceLockError) as error:
        void = str(error)
    return _observation(run, place, call, void)


def _side(name: str, call: Call | Side) -> Side:
    return call if isinstance(call, Side) else Side(name=name, call=call)


def _place(device: str) -> torch.device:
    place = torch.device(device)
    if device == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return place


def _current(place: torch.device) -> AbstractContextManager[object]:
    return torch.cuda.device(place) if place.type == "cuda" else nullcontext()


def _reader_of(place: torch.device) -> Callable[[], Reader] | None:
    if place.type != "cuda":
        return None
    return lambda: open_reader(str(torch.cuda.get_device_properties(place).uuid))


def _refuse_unknown(device_type: str) -> None:
    if device_type not in _BLOCK_S:
        raise VoidError(f"there is no clock for device type {device_type!r}, only for cpu and cuda")


@dataclass(kw_only=True)
class _Run:
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
            least=_LEAST_CALLS[self.device_type],
            time_s=time_s,
        )
        return min(calls, self.eager.most_calls, self.compiled.most_calls)

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
        clock, calls = CudaDeviceClock(), min(self.calls, _MOST_DEVICE_CALLS)
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


def _observation(run: _Run, place: torch.device, call: int, void: str | None) -> SpeedObservation:
    return SpeedObservation(
        clock="cuda_event" if place.type == "cuda" else "perf_counter",
        device=str(place),
        call=call,
        calls_per_block=run.calls,
        warmup=run.warmup,
        eager_s=tuple(run.wall.eager_s),
        compiled_s=tuple(run.wall.compiled_s),
        device_eager_s=tuple(run.device.eager_s),
        device_compiled_s=tuple(run.device.compiled_s),
        threads=torch.get_num_threads(),
        cpus=usable_cpus(),
        cache=run.cache,
        void=void,
        notes=(
            *run.notes,
            *shortfall(
                run.wall.eager_s,
                run.wall.compiled_s,
                calls=run.calls,
                warmup=run.warmup,
                max_time_s=run.max_time_s,
            ),
            *change_of_pace(run.wall.eager_s, run.wall.compiled_s),
            *doubts(place.type),
            *run.conditions.notes,
        ),
        gpu_before=run.conditions.before,
        gpu_after=run.conditions.after,
        gpu_unread=run.conditions.unread,
        attempts=max(run.attempts, 1),
        disturbed=run.conditions.disturbed,
    )
