"""Device memory and kernels of one warm call of each side.

Both are counted once timing is through: what counts (the allocator's statistics, a profiler)
must never run beside what is timed.
"""

from __future__ import annotations

import functools
import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from pytest_compileguard.observation import (
    LaunchedKernel,
    LaunchObservation,
    MemoryObservation,
    NotObserved,
)
from pytest_compileguard.parity.leaves import leaves_of, tensors_of
from pytest_compileguard.timing.conditions import collect_young
from pytest_compileguard.timing.sampling import Side

_COPIED_BYTES = 256 << 20
_COPIES = 7
_COPY_KINDS = ("gpu_memcpy", "gpu_memset")
_MOST_NAMED = 100
_MOST_IN_NAME = 300
Places = tuple[torch.device, ...]
Ran = tuple[str, str]
"""Kind and name of something that ran on the GPU."""
_NO_MEMORY = NotObserved(
    reason="torch counts the memory of calls on a GPU only, and this one ran on the CPU",
    unavailable=True,
)
_NO_KERNELS = NotObserved(
    reason="kernels are launched on a GPU, and this call ran on the CPU", unavailable=True
)


def peak_memory(
    eager: Side,
    compiled: Side,
    *,
    device: str,
    beside: Iterable[str] = (),
    inputs: Iterable[torch.Tensor] = (),
) -> MemoryObservation | NotObserved:
    """Measure how much memory one call of each side takes at its peak.

    Args:
        eager: One eager call, warm.
        compiled: One compiled call, warm.
        device: Where they run.
        beside: The other GPUs that they use; what each of them holds at its peak is added up.
        inputs: What the compiled call reads: its arguments, and the state of the target.
    """
    places = _places(device, beside)
    if places[0].type != "cuda":
        return _NO_MEMORY
    try:
        eager_bytes, _, _ = _peak_bytes(eager, places)
        compiled_bytes, active_bytes, written_bytes = _peak_bytes(compiled, places)
        graph_bytes, _ = _graph_pools(places)
        # Of several GPUs it is not known which of them moves what.
        copied_bytes_per_s = _copy_bytes_per_s(places[0]) if len(places) == 1 else 0.0
    except Exception as error:  # noqa: BLE001  # code of users may raise anything
        return NotObserved(reason=f"the call raised {_words(error)} while its memory was measured")
    # A CUDA graph replays in memory that it keeps: the allocator sees no peak of it.
    outside_bytes = max(compiled_bytes - active_bytes, 0) if graph_bytes else compiled_bytes
    return MemoryObservation(
        eager_bytes=eager_bytes,
        compiled_bytes=graph_bytes + outside_bytes,
        graph_bytes=graph_bytes,
        touched_bytes=_size_bytes(inputs) + written_bytes,
        copy_bytes_per_s=copied_bytes_per_s,
    )


def kernel_launches(
    eager: Side,
    compiled: Side,
    *,
    device: str,
    beside: Iterable[str] = (),
    compile_count: Callable[[], int],
) -> LaunchObservation | NotObserved:
    """Count what one call of each side launches, by torch's profiler.

    Args:
        eager: One eager call, warm.
        compiled: One compiled call, warm.
        device: Where they run.
        beside: The other GPUs that they use.
        compile_count: How many compiles there were so far; if it changes, nothing is counted.
    """
    places = _places(device, beside)
    if places[0].type != "cuda":
        return _NO_KERNELS
    before = compile_count()
    try:
        _start_profiler(places)
        eager_seen, compiled_seen = _profiled(eager, places), _profiled(compiled, places)
    except Exception as error:  # noqa: BLE001  # the profiler's, or code of users
        return NotObserved(reason=f"kernels could not be counted ({_words(error)})")
    if compile_count() != before:
        return NotObserved(reason="the call compiled anew while its kernels were counted")
    seen = LaunchObservation(
        eager_kernels=_of_kind(eager_seen, "kernel"),
        compiled_kernels=_of_kind(compiled_seen, "kernel"),
        eager_copies=_of_kind(eager_seen, *_COPY_KINDS),
        compiled_copies=_of_kind(compiled_seen, *_COPY_KINDS),
        eager_launched=_launched(eager_seen),
        compiled_launched=_launched(compiled_seen),
    )
    if not seen.eager_kernels or not seen.compiled_kernels:
        side = "compiled" if seen.eager_kernels else "eager"
        return NotObserved(reason=f"the profiler saw no kernel of the {side} side")
    return seen


def _places(device: str, beside: Iterable[str]) -> Places:
    return tuple(dict.fromkeys(map(torch.device, (device, *beside))))


def _wait_for_all(places: Places) -> None:
    for place in places:
        torch.cuda.synchronize(place)


def _peak_bytes(side: Side, places: Places) -> tuple[int, int, int]:
    """Return the most that was allocated, what CUDA graphs hold, and the size of the result."""
    side.prepare_block()
    collect_young()
    _wait_for_all(places)
    before = sum(map(torch.cuda.memory_allocated, places))
    for place in places:
        torch.cuda.reset_peak_memory_stats(place)
    result = side.call()
    _wait_for_all(places)
    peak = sum(map(torch.cuda.max_memory_allocated, places)) - before
    _, active = _graph_pools(places)
    written = _size_bytes(tensor for _, tensor in tensors_of(leaves_of(result, "output")))
    return peak, active, written


def _size_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Add up what tensors on a GPU take, each of them once."""
    sizes = {
        (tensor.data_ptr(), min(tensor.nbytes, tensor.untyped_storage().nbytes()))
        for tensor in tensors
        if tensor.is_cuda and tensor.layout == torch.strided
    }
    return sum(size for _, size in sizes)


@functools.cache
def _copy_bytes_per_s(place: torch.device) -> float:
    """Time a copy that is far larger than any cache, once a process."""
    free_bytes, _ = torch.cuda.mem_get_info(place)
    size = min(_COPIED_BYTES, free_bytes // 8)
    source = torch.empty(size, dtype=torch.uint8, device=place)
    target = torch.empty_like(source)
    event: Any = torch.cuda.Event  # torch leaves it untyped
    taken_ms = []
    with torch.cuda.device(place):
        for _ in range(_COPIES):
            start, end = event(enable_timing=True), event(enable_timing=True)
            start.record()
            target.copy_(source)
            end.record()
            end.synchronize()
            taken_ms.append(float(start.elapsed_time(end)))
    return 2 * size / (median(taken_ms) / 1e3)


def _graph_pools(places: Places) -> tuple[int, int]:
    """Return the bytes that private pools of memory hold on devices, and those of them in use."""
    indices = {place.index or 0 for place in places}  # the runner names it
    snapshot: list[dict[str, Any]] = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    private = [
        segment
        for segment in snapshot
        if segment["device"] in indices and tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
    ]
    held = sum(segment["total_size"] for segment in private)
    return held, sum(segment["allocated_size"] for segment in private)


@functools.cache
def _start_profiler(places: Places) -> None:
    """Use the profiler once for nothing: its first use loads CUPTI, and may miss launches."""
    launch = lambda: [torch.ones(1, device=place) for place in places]  # noqa: E731
    _profiled(Side(name="nothing", call=launch), places)


def _profiled(side: Side, places: Places) -> Counter[Ran]:
    """Count what ran on the GPU, by the kinds and names that torch's trace of it has."""
    side.prepare_block()
    _wait_for_all(places)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the profiler: that it keeps the events of one cycle
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            result = side.call()
            _wait_for_all(places)
    del result
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        trace = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    return Counter((str(e.get("cat")), str(e.get("name"))) for e in trace["traceEvents"])


def _of_kind(seen: Counter[Ran], *kinds: str) -> int:
    return sum(count for (kind, _), count in seen.items() if kind in kinds)


def _launched(seen: Counter[Ran]) -> tuple[LaunchedKernel, ...]:
    kernels = [(name, count) for (kind, name), count in seen.most_common() if kind == "kernel"]
    return tuple(
        LaunchedKernel(name=name[:_MOST_IN_NAME], launches=count)
        for name, count in kernels[:_MOST_NAMED]
    )


def _words(error: Exception) -> str:
    first, *_ = (*str(error).splitlines(), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
