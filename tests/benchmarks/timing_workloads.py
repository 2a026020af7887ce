"""Calls of which the true ratio is known: one compiled function on both sides, or slowed by 3 %.

The slowdown is planted by a kernel that sleeps on a GPU, by a loop on a processor. The side without
it carries the same code with nothing to do, so that planting costs both the same. How much sleep
costs 3 % on the clock that decides is measured beforehand, and held there while checks read it: a
GPU that its power limits rests in the sleep and then multiplies faster, more so when it is hot, and
a sleep of 60 ns is as long as the kernel's loop happens to be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from pytest_compileguard.observation import Clock
from pytest_compileguard.timing.clock import (
    BlockClock,
    CpuClock,
    CudaDeviceClock,
    CudaWallClock,
)
from pytest_compileguard.timing.sampling import Pairs, Sampler, Side

PLANTED = 0.03
MOST_ADJUSTMENTS = 12
ADJUSTING_S = 0.2
NEAR = 0.001
"""How far the ratio may be from that of ``PLANTED`` when adjusting ends."""
GPU_BOUND = 0.5
"""Launching time / device time below which a slowdown of the kernels shows on the wall clock, as it
does while the processor is in a slow phase too."""
MODES = {"cuda": ("default", "reduce-overhead"), "cpu": ("default", "max-autotune")}

Call = Callable[[], object]
Function = Callable[..., torch.Tensor]


@dataclass
class Slowed:
    """A call with a delay before it."""

    call: Call
    delay: Callable[[float], None]
    amount: float

    def __call__(self) -> None:
        self.delay(self.amount)
        self.call()

    def adjust(self, ratio: float) -> None:
        """Come nearer to ``PLANTED``, by the ratio of the call without the delay to this one."""
        lost = 1 / ratio - 1
        self.amount *= min(max(PLANTED / max(lost, PLANTED / 4), 0.67), 1.5)


@dataclass(frozen=True)
class Workload:
    """A compiled call, and the same with the slowdown planted."""

    name: str
    mode: str
    call: Call
    slowed: Mapping[Clock, Slowed]
    """Slower by ``PLANTED`` on that clock, for the clocks on which kernels show."""

    @property
    def launch_bound(self) -> bool:
        """Whether the wall clock shows the processor, so that it is the harder one to read."""
        return "wall" not in self.slowed


def transform(x: torch.Tensor) -> torch.Tensor:
    return torch.relu((x + 1) * 2)


def product(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ x)


def make_functions(device: str) -> Iterator[tuple[str, Function, tuple[Any, ...]]]:
    """Name functions and arguments, from launch-bound to compute-bound."""
    large, matrix = (8192, 8192) if device == "cuda" else (1024, 512)
    half = torch.bfloat16 if device == "cuda" else torch.float32
    width = 1024 if device == "cuda" else 128
    mlp = torch.nn.Sequential(
        torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width)
    )
    tokens = (8, 512, 512) if device == "cuda" else (1, 32, 128)
    encoder = torch.nn.TransformerEncoderLayer(tokens[-1], 8, batch_first=True, dropout=0.0)
    yield "transform small", transform, (torch.randn(32, 1024, device=device),)
    yield "MLP", mlp.eval().to(device), (torch.randn(32, width, device=device),)
    yield (
        "encoder layer",
        encoder.eval().to(device, half),
        (torch.randn(*tokens, device=device, dtype=half),),
    )
    yield "transform large", transform, (torch.randn(large, large, device=device),)
    yield "matmul", product, (torch.randn(matrix, matrix, device=device, dtype=half),)


def make_workloads(device: str, names: Iterable[str] = ()) -> Iterator[Workload]:
    """Compile each function in each mode, and measure how much to plant."""
    plant = plant_on_gpu if device == "cuda" else plant_on_processor
    for name, function, arguments in make_functions(device):
        if names and name not in names:
            continue
        for mode in MODES[device]:
            compiled: Function = torch.compile(function, dynamic=False, mode=mode)

            def call(
                compiled: Function = compiled, arguments: tuple[Any, ...] = arguments
            ) -> object:
                return compiled(*arguments)

            for _ in range(20):
                call()
            yield plant(name, mode, call)


def plant_on_processor(name: str, mode: str, call: Call) -> Workload:
    clock = CpuClock()
    call_s = median(clock.block_s(call, 20) for _ in range(40))
    plain, slowed = Slowed(call, spin, 0.0), Slowed(call, spin, PLANTED * call_s)
    return Workload(name, mode, plain, {"wall": calibrated(plain, slowed, clock)})


def plant_on_gpu(name: str, mode: str, call: Call) -> Workload:
    """Plant 3 %; on the wall clock only where the GPU is the limit, as it would not show else."""
    plain = Slowed(call, sleep, 0.0)
    device = CudaDeviceClock()
    device_s = typical_s(lambda: device.block_s(plain, 5))
    cycles = PLANTED * device_s * device._cycles_per_s
    clocks: dict[Clock, BlockClock] = {"device": device}
    if launching_s(plain) < GPU_BOUND * device_s:
        clocks["wall"] = CudaWallClock(lead_in=True)
    slowed = {
        name: calibrated(plain, Slowed(call, sleep, cycles), clock)
        for name, clock in clocks.items()
    }
    return Workload(name, mode, plain, slowed)


def calibrated(plain: Call, slowed: Slowed, clock: BlockClock) -> Slowed:
    """Adjust a first guess until the call is slower by ``PLANTED``."""
    sides = (Side(name="eager", call=plain), Side(name="compiled", call=slowed))
    for _ in range(MOST_ADJUSTMENTS):
        sampler = Sampler(eager=sides[0], compiled=sides[1], clock=clock, calls=10)
        pairs = Pairs()
        end_s = time.perf_counter() + ADJUSTING_S
        sampler.sample(pairs, end_s=end_s, limit=None, at_look=lambda: None)
        ratio = pairs.interval().ratio
        if abs(ratio - 1 / (1 + PLANTED)) < NEAR:
            break
        slowed.adjust(ratio)
    return slowed


def launching_s(call: Call, calls: int = 10) -> float:
    """Return how long the processor takes to launch one of several calls."""

    def launch_s() -> float:
        torch.cuda.synchronize()
        begin_s = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin_s) / calls

    return typical_s(launch_s)


def typical_s(sample: Callable[[], float | None]) -> float:
    return median([taken for _ in range(30) if (taken := sample())])


def spin(seconds: float) -> None:
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        pass


def sleep(cycles: float) -> None:
    cuda: Any = torch.cuda  # untyped there
    cuda._sleep(int(cycles))
