"""Timing on the processor: real calls, real compiles, no assertion on absolute times."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_compileguard.observation import GpuState, SpeedObservation
from pytest_compileguard.speed import speed
from pytest_compileguard.timing import stats
from pytest_compileguard.timing.conditions import active_tracers, usable_cpus
from pytest_compileguard.timing.measuring import sample_speed
from pytest_compileguard.timing.run import MOST_ATTEMPTS

Call = Callable[[], object]

HOLD = """
import sys
from pytest_compileguard.timing.device_lock import exclusive
with exclusive("cpu"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def _undisturbed() -> Iterator[None]:
    # One thread: what is tested is the sampling, not how the threads of a shared machine fare.
    tracer, threads = sys.gettrace(), torch.get_num_threads()
    sys.settrace(None)
    torch.set_num_threads(1)
    try:
        if tracers := active_tracers():
            pytest.skip(f"timing refuses to run: {tracers}")
        yield
    finally:
        torch.set_num_threads(threads)
        sys.settrace(tracer)


def observe(eager: Call, compiled: Call, **changes: Any) -> SpeedObservation:
    arguments: dict[str, Any] = {
        "device": "cpu",
        "call": 2,
        "warmup": 10,
        "max_time_s": 0.5,
        "limit": None,
        "compile_count": lambda: 7,
    }
    return sample_speed(eager, compiled, **(arguments | changes))


def decision(seen: SpeedObservation, limit: float) -> stats.Decision:
    interval = stats.ratio_interval(seen.eager_s, seen.compiled_s, looks=stats.LOOKS)
    assert seen.void is None
    return stats.decide(interval, limit)


MATRIX = torch.randn(96, 96)


def one_product() -> torch.Tensor:
    return MATRIX @ MATRIX


def two_products() -> torch.Tensor:
    return MATRIX @ MATRIX @ MATRIX


def compiled_product() -> Call:
    product = torch.compile(lambda x: x @ x, backend="eager")
    product(MATRIX)
    return lambda: product(MATRIX)


def test_a_side_that_does_twice_the_work_is_found_slower_either_way() -> None:
    faster = observe(two_products, one_product, limit=1.25, max_time_s=5)
    slower = observe(one_product, two_products, limit=0.8, max_time_s=5)

    assert decision(faster, 1.25) == "above"
    assert decision(slower, 0.8) == "below"


def test_the_same_function_on_both_sides_keeps_a_limit_below_1_and_fails_one_above() -> None:
    compiled = compiled_product()

    kept = observe(compiled, compiled, limit=0.8, max_time_s=5)
    missed = observe(compiled, compiled, limit=1.25, max_time_s=5)

    assert decision(kept, 0.8) == "above"
    assert decision(missed, 1.25) == "below"


def test_the_record_says_how_the_samples_were_taken() -> None:
    compiled = compiled_product()
    seen = observe(one_product, compiled, limit=0.01, warmup=15)

    assert (seen.clock, seen.device, seen.call, seen.threads) == ("perf_counter", "cpu", 2, 1)
    assert seen.warmup >= 15
    assert seen.calls_per_block >= 1
    assert len(seen.eager_s) == len(seen.compiled_s) >= stats.fewest_pairs()
    assert seen.device_eager_s == seen.device_compiled_s == ()
    assert speed(seen, "wall") is not None
    assert speed(seen, "device") is None


def test_short_calls_are_timed_in_long_blocks() -> None:
    seen = observe(lambda: None, lambda: None)

    assert seen.calls_per_block > 100


def test_a_recompile_while_sampling_voids_the_samples_and_keeps_them() -> None:
    compiles = []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Callable[..., Any]:
        compiles.append(graph)
        return graph.forward

    doubled = torch.compile(lambda x: x + x, backend=backend, dynamic=False)
    calls = [0]

    def compiled() -> object:
        calls[0] += 1
        return doubled(torch.ones(4 if calls[0] < 100 else 5))

    seen = observe(lambda: None, compiled, compile_count=lambda: len(compiles))

    assert len(compiles) == 2
    assert seen.void is not None
    assert seen.void.startswith("compiled or recorded CUDA graphs 1 time(s) while sampling")
    assert len(seen.eager_s) == len(seen.compiled_s) > 0
    assert speed(seen, "wall") is None


def test_a_recompile_during_warm_up_is_no_fault() -> None:
    compiles = [0]

    def compiled() -> None:
        compiles[0] = min(compiles[0] + 1, 3)

    assert observe(lambda: None, compiled, compile_count=lambda: compiles[0]).void is None


@pytest.mark.parametrize("setter", ("settrace", "setprofile"))
def test_a_tracer_voids_at_once(setter: str) -> None:
    calls = []
    getattr(sys, setter)(_no_tracing)
    try:
        seen = observe(lambda: calls.append(1), lambda: None)
    finally:
        getattr(sys, setter)(None)

    assert seen.void is not None
    assert f"sys.{setter} is active" in seen.void
    assert "_no_tracing" in seen.void
    assert not calls


def test_a_tracer_that_a_call_starts_voids_too() -> None:
    try:
        seen = observe(lambda: sys.settrace(_no_tracing), lambda: None)
    finally:
        sys.settrace(None)

    assert seen.void is not None
    assert "sys.settrace is active" in seen.void


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
def test_a_tool_of_sys_monitoring_voids_by_name() -> None:
    monitoring: Any = getattr(sys, "monitoring")  # noqa: B009  # unknown to older Pythons
    monitoring.use_tool_id(4, "watcher")
    try:
        idle = observe(lambda: None, lambda: None, max_time_s=0.1)
        monitoring.set_events(4, monitoring.events.PY_START)
        watching = observe(lambda: None, lambda: None)
    finally:
        monitoring.free_tool_id(4)

    assert idle.void is None
    assert watching.void is not None
    assert "sys.monitoring is active (watcher)" in watching.void


def _no_tracing(*_: object) -> None:
    return None


@pytest.mark.parametrize("good_calls", (0, 5, 200))
@pytest.mark.parametrize("side", ("eager", "compiled"))
def test_an_exception_voids_with_its_reason(side: str, good_calls: int) -> None:
    left = [good_calls]

    def failing() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("size mismatch")

    sides: dict[str, Call] = {"eager": one_product, "compiled": one_product, side: failing}
    seen = observe(sides["eager"], sides["compiled"], limit=1.0)

    assert seen.void == f"{side} raised RuntimeError: size mismatch while it was being timed"
    assert len(seen.eager_s) == len(seen.compiled_s)


def test_an_interrupt_is_not_swallowed_and_the_collector_runs_again() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        observe(interrupted, one_product)
    assert gc.isenabled()
    assert observe(one_product, one_product).void is None  # the device is free again


@pytest.mark.parametrize("enabled", (True, False))
def test_the_collector_is_off_while_sampling_and_as_before_afterwards(*, enabled: bool) -> None:
    states = set()
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        observe(lambda: states.add(gc.isenabled()), lambda: None, max_time_s=0.1)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
    assert states == {False}


def test_cycles_that_calls_leave_are_freed_while_sampling() -> None:
    class Knot:
        alive = 0

        def __init__(self) -> None:
            self.me = self
            Knot.alive += 1

        def __del__(self) -> None:
            Knot.alive -= 1

    was = gc.isenabled()
    gc.disable()  # so that nothing but the sampling frees them
    try:
        observe(Knot, lambda: None, max_time_s=0.1)
        assert Knot.alive == 0
    finally:
        (gc.enable if was else gc.disable)()


def test_a_slow_call_overruns_its_budget_rather_than_answer_nothing() -> None:
    seen = observe(nap, nap, max_time_s=0.1)

    assert seen.warmup == 3
    assert len(seen.eager_s) >= stats.fewest_pairs()
    assert speed(seen, "wall") is not None
    assert "3 of 10 warm-up calls fitted in max_time_s=0.1" in seen.notes


def test_too_few_pairs_are_told_with_a_budget_that_suffices() -> None:
    seen = observe(nap, nap, max_time_s=0.001)

    assert len(seen.eager_s) == 3
    assert speed(seen, "wall") is None
    assert any("no interval: max_time_s=0.001 is too short, take" in note for note in seen.notes)


def nap() -> None:
    time.sleep(0.02)


def test_a_device_without_a_clock_voids() -> None:
    seen = observe(one_product, one_product, device="meta")

    assert seen.void == "there is no clock for device type 'meta', only for cpu and cuda"
    assert seen.eager_s == ()


def test_a_device_that_stays_taken_voids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        taken = observe(one_product, one_product, lock_timeout_s=0.1)
        other.communicate("let go\n")
    free = observe(one_product, one_product, lock_timeout_s=0.1)

    assert taken.void is not None
    assert taken.void.startswith("cpu was not free for 0.1 s: another process")
    assert taken.eager_s == ()
    assert free.void is None


def test_anomaly_detection_is_noted() -> None:
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        seen = observe(lambda: None, lambda: None, max_time_s=0.1)

    assert "autograd's anomaly detection is on: it slows both sides" in seen.notes


class Told:
    """Stands in for the driver of a GPU: gives one state after the other, the last one for good."""

    def __init__(self, *states: GpuState) -> None:
        self.states = list(states)
        self.read = 0

    def __call__(self, since_s: float | None = None) -> GpuState:
        del since_s
        self.read += 1
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


QUIET = GpuState(clock_reasons=())
HOT = GpuState(clock_reasons=("hardware thermal slowdown",))


def test_disturbed_samples_are_taken_again_until_they_are_quiet() -> None:
    told = Told(QUIET, HOT, QUIET)
    seen = observe(one_product, two_products, max_time_s=0.2, limit=0.9, find_reader=lambda: told)

    assert (seen.attempts, seen.disturbed, told.read) == (2, (), 4)
    assert (seen.gpu_before, seen.gpu_after) == (QUIET, QUIET)
    assert decision(seen, 0.9) == "below"


def test_samples_that_stay_disturbed_say_so_after_the_last_attempt() -> None:
    seen = observe(
        one_product, two_products, max_time_s=0.2, limit=0.9, find_reader=lambda: Told(HOT)
    )

    assert seen.attempts == MOST_ATTEMPTS
    assert seen.disturbed == ("the GPU was slowed down (hardware thermal slowdown)",)
    assert len(seen.eager_s) == len(seen.compiled_s) >= stats.fewest_pairs()


def test_disturbed_samples_above_the_limit_are_not_taken_again() -> None:
    seen = observe(
        two_products, one_product, max_time_s=0.2, limit=0.1, find_reader=lambda: Told(HOT)
    )

    assert seen.attempts == 1
    assert seen.disturbed
    assert decision(seen, 0.1) == "above"


def test_a_processor_has_no_such_state_and_tells_its_affinity() -> None:
    seen = observe(one_product, one_product, max_time_s=0.1)

    assert (seen.gpu_before, seen.gpu_after, seen.gpu_unread) == (None, None, None)
    assert seen.cpus == usable_cpus()
    if sys.platform == "linux":
        assert seen.cpus == len(os.sched_getaffinity(0))
