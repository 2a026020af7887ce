"""Timing on a GPU: both clocks, planted differences, and the lock by UUID."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_compileguard.finding import Speed
from pytest_compileguard.observation import Clock, SpeedObservation
from pytest_compileguard.speed import speed
from pytest_compileguard.timing.clock import CudaDeviceClock
from pytest_compileguard.timing.device_lock import _physical_name
from pytest_compileguard.timing.measuring import sample_speed

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("compiler_loaded")]

Call = Callable[[], object]

NAME = """
from pytest_compileguard.timing.device_lock import _physical_name
print(_physical_name("cuda:0"))
"""


def observe(eager: Call, compiled: Call, **changes: Any) -> SpeedObservation:
    arguments: dict[str, Any] = {
        "device": "cuda:0",
        "call": 0,
        "warmup": 10,
        "max_time_s": 1.0,
        "limit": None,
        "compile_count": lambda: 0,
    }
    seen = sample_speed(eager, compiled, **(arguments | changes))
    assert torch.cuda.current_device() == 0
    return seen


def speed_on(clock: Clock, seen: SpeedObservation) -> Speed:
    assert seen.void is None
    numbers = speed(seen, clock)
    assert numbers is not None, seen.notes
    return numbers


@pytest.fixture
def transform() -> Call:
    """Three kernels on 256 MiB: bound by the GPU."""
    x = torch.randn(8192, 8192, device="cuda")
    return lambda: torch.relu(x * 2 + 1)


@pytest.fixture
def mlp() -> Call:
    """Five kernels of some microseconds: bound by launches."""
    x = torch.randn(32, 1024, device="cuda")
    first, second = (torch.randn(1024, 1024, device="cuda") for _ in range(2))
    bias = torch.randn(1024, device="cuda")
    return lambda: torch.addmm(bias, torch.relu(torch.addmm(bias, x, first)), second)


def busy(call: Call, extra_s: float) -> Call:
    """Keep the processor busy for a while before each call."""

    def delayed() -> object:
        end_s = time.perf_counter() + extra_s
        while time.perf_counter() < end_s:
            pass
        return call()

    return delayed


def asleep(call: Call, part: float) -> Call:
    """Let each call cost the GPU ``part`` more, by a sleeping kernel."""
    clock = CudaDeviceClock()
    call_s = clock.block_s(call, 10)
    for _ in range(5):
        call_s = clock.block_s(call, 10) or call_s
    assert call_s is not None
    cycles = int(part * call_s * clock._cycles_per_s)
    cuda: Any = torch.cuda  # untyped there

    def slowed() -> object:
        cuda._sleep(cycles)
        return call()

    return slowed


def test_the_same_large_call_on_both_sides_has_ratio_1_on_both_clocks(transform: Call) -> None:
    seen = observe(transform, transform)

    assert (seen.clock, seen.device) == ("cuda_event", "cuda:0")
    for clock in ("wall", "device"):
        assert speed_on(clock, seen).speedup == pytest.approx(1, abs=0.01)


def test_the_same_launch_bound_call_on_both_sides_has_ratio_1_on_both_clocks(mlp: Call) -> None:
    seen = observe(mlp, mlp)

    for clock in ("wall", "device"):
        assert speed_on(clock, seen).speedup == pytest.approx(1, abs=0.05)


def test_a_planted_slowdown_of_the_gpu_is_read_on_the_device_clock(transform: Call) -> None:
    numbers = speed_on("device", observe(asleep(transform, 0.2), transform))

    # The launch of the sleeping kernel costs a little too.
    assert 1.17 < numbers.speedup < 1.27
    assert numbers.speedup_low > 1.15


def test_a_call_that_only_the_gpu_limits_takes_as_long_on_both_clocks() -> None:
    """The first launch on an idle GPU would add 5 to 15 us to each of ten calls of 130 us."""
    x = torch.randn(8192, 8192, device="cuda")
    compiled = torch.compile(lambda x: torch.relu((x + 1) * 2))
    compiled(x)
    seen = observe(lambda: torch.relu((x + 1) * 2), lambda: compiled(x))

    wall, device = speed_on("wall", seen), speed_on("device", seen)
    assert wall.eager_ms == pytest.approx(device.eager_ms, rel=0.02)
    assert wall.compiled_ms == pytest.approx(device.compiled_ms, rel=0.02)


def test_time_on_the_processor_is_on_the_wall_clock_alone(mlp: Call) -> None:
    seen = observe(busy(mlp, 200e-6), mlp)

    assert speed_on("wall", seen).speedup_low > 1.5
    assert speed_on("device", seen).speedup == pytest.approx(1, abs=0.05)
    assert speed_on("wall", seen).compiled_ms > speed_on("device", seen).compiled_ms


def test_a_compiled_chain_of_elementwise_operators_is_faster_on_both_clocks() -> None:
    x = torch.randn(8192, 8192, device="cuda")

    def transform(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + 1)

    compiled = torch.compile(transform)
    compiled(x)
    seen = observe(lambda: transform(x), lambda: compiled(x), limit=1.2)

    assert speed_on("wall", seen).speedup_low > 1.2
    assert speed_on("device", seen).speedup_low > 1.2


def test_a_block_whose_launches_fell_behind_does_not_count(mlp: Call) -> None:
    clock = CudaDeviceClock()
    clock._sleep_s = 1e-6
    call = busy(mlp, 50e-6)
    mlp()

    assert clock.block_s(call, 10) is None
    later = [clock.block_s(call, 10) for _ in range(6)]
    assert later[-1] is not None
    assert clock._sleep_s > 0.5e-3


def test_a_call_that_waits_for_the_gpu_has_no_device_clock(mlp: Call) -> None:
    def waiting() -> float:
        output = mlp()
        assert isinstance(output, torch.Tensor)
        return output.sum().item()

    seen = observe(waiting, waiting)

    assert speed_on("wall", seen).speedup == pytest.approx(1, abs=0.05)
    assert seen.device_eager_s == seen.device_compiled_s == ()
    assert any(note.startswith("no device clock") for note in seen.notes)


def test_an_exception_of_the_gpu_voids_and_leaves_it_usable(mlp: Call) -> None:
    seen = observe(lambda: torch.empty(1 << 50, device="cuda"), mlp)

    assert seen.void is not None
    assert seen.void.startswith("eager raised OutOfMemoryError: ")
    assert observe(mlp, mlp, max_time_s=0.2).void is None


def test_the_current_gpu_is_meant_where_no_index_is_given(mlp: Call) -> None:
    assert observe(mlp, mlp, device="cuda", max_time_s=0.2).device == "cuda:0"


def test_the_lock_goes_by_the_gpu_whatever_it_is_called() -> None:
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    visible = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    other = subprocess.run(
        [sys.executable, "-c", NAME],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": visible},
        capture_output=True,
        text=True,
        check=True,
    )

    assert other.stdout.strip() == _physical_name("cuda:0") == _physical_name("cuda")
    assert uuid.lower().removeprefix("gpu-") in _physical_name("cuda:0")
