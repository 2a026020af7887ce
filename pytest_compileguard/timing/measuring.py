"""Takes samples of eager and compiled in turn, until they tell enough.

How, and why so:

- Pairs, with the order inside each at random: the machine's pace cancels, and so does any
  advantage of going second, or of keeping step with what else repeats.
- Blocks of back-to-back calls, long against the resolution of the clock. On a GPU an untimed call
  leads in, as the first launch on an idle GPU costs more than those that follow.
- Both sides are warmed until neither gets faster. No first call is ever timed.
- At most ``stats.LOOKS`` looks, spread over the time there is: sampling stops once the interval
  settles the limit, or is tight. See ``stats`` for why the number of looks is fixed.
- The time budget covers warm-up and both clocks. A slow call may overrun it: ``LEAST_WARMUP``
  calls and ``LEAST_PAIRS`` pairs are always made, and up to ``run.GRACE`` budgets are spent on the
  ten or so pairs without which no interval exists, as a budget that buys no answer is wasted.
  If those don't suffice either, a note says what would.
- Collection of garbage is off, no tracer is active, and the process has the device for itself.
- What the driver knows of the GPU is read before and after. Disturbed samples are taken again,
  ``run.MOST_ATTEMPTS`` times at most and within the same grace, unless they lie above the limit
  anyway. So are those for which threads had to wait for a processor; they never count.
- Samples that don't count are void with the reason, and are kept for whoever wants to look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from pytest_compileguard.observation import Cache, Clock, SpeedObservation
from pytest_compileguard.timing.clock import Call
from pytest_compileguard.timing.conditions import (
    VoidError,
    change_of_pace,
    doubts,
    garbage_collection_off,
    refuse_tracers,
    shortfall,
    slow_minority,
    usable_cpus,
)
from pytest_compileguard.timing.cpu_contention import CpuWatch
from pytest_compileguard.timing.device_lock import LOCK_TIMEOUT_S, DeviceLockError, exclusive
from pytest_compileguard.timing.disturbance import Reader, Watch, WatchAll, Watching
from pytest_compileguard.timing.gpu_state import open_reader
from pytest_compileguard.timing.run import DEVICE_TYPES, Run
from pytest_compileguard.timing.sampling import Side


def sample_speed(  # noqa: PLR0913  # one plain call for the runner; each is a fact of the check
    eager: Call | Side,
    compiled: Call | Side,
    *,
    device: str,
    beside: Iterable[str] = (),
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
        beside: The other GPUs that they use. All are held, watched and waited for.
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
    places = tuple(dict.fromkeys(_place(name) for name in (device, *beside)))
    run = Run(
        eager=_side("eager", eager),
        compiled=_side("compiled", compiled),
        places=places,
        gated=clock,
        cache=cache,
        limit=limit,
        compile_count=compile_count,
        max_time_s=max_time_s,
    )
    void = None
    try:
        _refuse_unknown({place.type for place in places})
        refuse_tracers()
        held = exclusive(*map(str, places), timeout_s=lock_timeout_s)
        with held as released_s, garbage_collection_off():
            watches = [_watch(place, find_reader, released_s) for place in places]
            run.sample_undisturbed(warmup, WatchAll(watches))
            refuse_tracers()
    except (VoidError, DeviceLockError) as error:
        void = str(error)
    return _observation(run, places, call, void)


def _side(name: str, call: Call | Side) -> Side:
    return call if isinstance(call, Side) else Side(name=name, call=call)


def _place(device: str) -> torch.device:
    place = torch.device(device)
    if device == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return place


def _watch(
    place: torch.device, find_reader: Callable[[], Reader] | None, released_s: float
) -> Watching:
    if place.type == "cuda":
        return Watch(find_reader or _reader_of(place), released_s=released_s)
    return CpuWatch() if find_reader is None else Watch(find_reader, released_s=released_s)


def _reader_of(place: torch.device) -> Callable[[], Reader]:
    return lambda: open_reader(str(torch.cuda.get_device_properties(place).uuid))


def _refuse_unknown(device_types: set[str]) -> None:
    for unknown in sorted(device_types.difference(DEVICE_TYPES)):
        raise VoidError(f"there is no clock for device type {unknown!r}, only for cpu and cuda")


def _several(places: tuple[torch.device, ...]) -> tuple[str, ...]:
    if len(places) == 1:
        return ()
    return (f"the call uses {' and '.join(map(str, places))}: a time ends when all are done",)


def _observation(
    run: Run, places: tuple[torch.device, ...], call: int, void: str | None
) -> SpeedObservation:
    place = places[0]
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
            *slow_minority(run.wall.eager_s, run.wall.compiled_s),
            *doubts(place.type),
            *_several(places),
            *run.conditions.notes,
        ),
        gpu_before=run.conditions.before,
        gpu_after=run.conditions.after,
        gpu_unread=run.conditions.unread,
        attempts=max(run.attempts, 1),
        disturbed=run.conditions.disturbed,
    )
