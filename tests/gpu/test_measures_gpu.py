"""What a GPU alone can show: memory, kernels, the device clock, cold caches and modes."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from pytest_compileguard.observation import (
    LaunchObservation,
    MemoryObservation,
    NotObserved,
    SpeedObservation,
)
from pytest_compileguard.speed import speed
from pytest_compileguard.timing.clock import CacheFlush
from pytest_compileguard.timing.device_usage import kernel_launches, peak_memory
from pytest_compileguard.timing.measuring import sample_speed
from pytest_compileguard.timing.sampling import Side
from tests.conftest import Run, RunSuite

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("compiler_loaded")]

MIB = 1 << 20
DEVICE = "cuda:0"

LIBRARY = """
import torch

def transform(x):
    return torch.relu(x * 2 + 1)

def doubles_in_place(x):
    x.mul_(2)
    return x + 1
"""

TEST = """
import torch, library
from pytest_compileguard import compile_check

@compile_check({arguments})
def test_it(compileguard):
    guarded = compileguard(library.{target})
    for _ in range(3):
        guarded(torch.randn({size}, device="cuda"))
"""


def run(
    run_suite: RunSuite, arguments: str, *, target: str = "transform", size: str = "4096, 4096"
) -> Run:
    tests = TEST.format(arguments=arguments, target=target, size=size)
    return run_suite(tests, library=LIBRARY, timing=True)


def sides(eager: Any, compiled: Any) -> tuple[Side, Side]:
    return Side(name="eager", call=eager), Side(name="compiled", call=compiled)


def never() -> int:
    return 0


def test_the_peak_of_each_side_is_what_it_allocates_beyond_before() -> None:
    x = torch.ones(16 * MIB, dtype=torch.uint8, device=DEVICE)
    seen = peak_memory(*sides(lambda: (x + 1) + (x + 2), lambda: x + 1), device=DEVICE, inputs=[x])

    assert isinstance(seen, MemoryObservation)
    assert seen.eager_bytes == 48 * MIB
    assert seen.compiled_bytes == 16 * MIB
    assert seen.graph_bytes == 0
    assert seen.touched_bytes == 32 * MIB
    assert seen.copy_bytes_per_s > 1e11


def test_an_exception_while_memory_is_measured_is_told() -> None:
    seen = peak_memory(*sides(lambda: 1 / 0, lambda: None), device=DEVICE)

    assert isinstance(seen, NotObserved)
    assert "ZeroDivisionError" in seen.reason


def test_kernels_are_counted_apart_from_copies() -> None:
    x = torch.ones(1024, device=DEVICE)
    other = torch.empty_like(x)
    calls = sides(lambda: torch.relu(x * 2 + 1), lambda: (other.copy_(x), x.sin()))
    for _ in range(2):
        seen = kernel_launches(*calls, device=DEVICE, compile_count=never)
        assert isinstance(seen, LaunchObservation)
        assert (seen.eager_kernels, seen.eager_copies) == (3, 0)
        assert (seen.compiled_kernels, seen.compiled_copies) == (1, 1)


def test_a_side_without_kernels_is_not_observed() -> None:
    x = torch.ones(1024, device=DEVICE)
    seen = kernel_launches(*sides(lambda: x + 1, lambda: None), device=DEVICE, compile_count=never)

    assert seen == NotObserved(reason="the profiler saw no kernel of the compiled side")


def test_a_fused_chain_launches_one_kernel_and_takes_less_memory(run_suite: RunSuite) -> None:
    limits = "max_kernels_per_call=1, max_peak_memory_ratio=0.9, min_speedup=1.2"
    ended = run(run_suite, limits, size="8192, 8192")
    observed = ended.check["observed"]

    ended.result.assert_outcomes(passed=1)
    assert (observed["eager_kernels_per_call"], observed["kernels_per_call"]) == (3, 1)
    ((compiled,), eager) = (ended.check["launched"][side] for side in ("compiled", "eager"))
    assert compiled["launches"] == 1
    assert compiled["name"].startswith("triton_")
    assert sum(kernel["launches"] for kernel in eager) == 3
    assert compiled["name"] in [kernel["name"] for kernel in ended.check["inductor"]["fused"]]
    assert observed["peak_memory_bytes"] == 256 * MIB
    assert observed["eager_peak_memory_bytes"] >= 512 * MIB
    evidence = json.dumps(ended.findings("speedup"))
    assert "eager 3 kernels, compiled 1 kernel a call" in evidence
    assert "memory-bound: " in evidence


def test_more_kernels_and_more_memory_than_the_limit_fail(run_suite: RunSuite) -> None:
    ended = run(run_suite, "max_kernels_per_call=0, max_peak_memory_ratio=0.1")

    ended.result.assert_outcomes(failed=1)
    assert ended.status("kernels_per_call") == "failed"
    assert ended.status("peak_memory") == "failed"


def test_counting_kernels_leaves_the_facts_of_later_checks_alone(run_suite: RunSuite) -> None:
    first = run(run_suite, "max_graph_breaks=0, max_recompiles=0")
    second = run(run_suite, "max_graph_breaks=0, max_recompiles=0")

    for name in ("graphs", "ops", "recompiles", "fallbacks", "kernels", "kernels_per_call"):
        assert first.check["observed"][name] == second.check["observed"][name]
    assert second.status("fallbacks") == "passed"
    assert second.check["unreliable"] == []


def test_the_memory_that_cuda_graphs_keep_is_charged(run_suite: RunSuite) -> None:
    ended = run(run_suite, "mode='reduce-overhead', max_peak_memory_ratio=1e-3")

    ended.result.assert_outcomes(failed=1)
    (finding,) = ended.findings("peak_memory")
    assert "kept by CUDA graphs" in finding["evidence"][0]
    # At least the output, and the copy of the input that the graph reads.
    assert ended.check["observed"]["peak_memory_bytes"] >= 64 * MIB


def test_the_device_clock_can_be_gated(run_suite: RunSuite) -> None:
    # A tiny call: slower on the wall clock by its guards, faster on the device by its one kernel.
    ended = run(run_suite, "clock='device', min_speedup=1.2", size="32, 1024")
    observed = ended.check["observed"]

    ended.result.assert_outcomes(passed=1)
    assert observed["clock"] == "device"
    assert observed["speedup"] == observed["device_speedup"]
    assert "on the wall clock: " in json.dumps(ended.findings("speedup"))
    missed = run(run_suite, "clock='device', min_speedup=50", size="32, 1024")
    missed.result.assert_outcomes(failed=1)
    assert "device clock" in missed.text


def test_a_call_that_waits_for_the_gpu_never_passes_on_the_device_clock() -> None:
    x = torch.ones(64, device=DEVICE)
    seen = observe(lambda: x.sum().item(), lambda: x.sum().item(), clock="device", limit=0.5)

    assert speed(seen, "device") is None
    assert any(note.startswith("no device clock") for note in seen.notes)


def observe(eager: Any, compiled: Any, **changes: Any) -> SpeedObservation:
    arguments: dict[str, Any] = {
        "device": DEVICE,
        "call": 0,
        "warmup": 10,
        "max_time_s": 0.5,
        "limit": None,
        "compile_count": never,
    }
    seen = sample_speed(eager, compiled, **(arguments | changes))
    assert seen.void is None
    return seen


def test_a_flushed_cache_makes_a_call_that_fits_in_it_slower() -> None:
    # 4 MiB: all of it stays in the L2 cache of any GPU that runs these tests.
    x = torch.ones(MIB, device=DEVICE)
    call = lambda: x + 1  # noqa: E731
    warm = speed(observe(call, call), "device")
    cold_seen = observe(call, call, cache="cold")
    cold = speed(cold_seen, "device")

    assert (cold_seen.cache, cold_seen.calls_per_block) == ("cold", 1)
    assert warm is not None
    assert cold is not None
    assert cold.compiled_ms > 1.1 * warm.compiled_ms
    assert cold.speedup == pytest.approx(1, abs=0.05)


def test_what_is_flushed_is_larger_than_the_cache() -> None:
    properties = torch.cuda.get_device_properties(0)

    (memory,) = CacheFlush()._memories
    assert memory.numel() >= 2 * properties.L2_cache_size > 0


def test_mutated_inputs_are_restored_between_blocks(run_suite: RunSuite) -> None:
    ended = run(run_suite, "", target="doubles_in_place", size="1024")
    samples = ended.check["samples"]

    ended.result.assert_outcomes(passed=1)
    assert samples["restored"] == ["x"]
    assert samples["calls_per_block"] <= 10
    assert samples["void"] is None


MODES = """
import torch, library
from pytest_compileguard import compile_check

@compile_check(
    modes=("default", "reduce-overhead", "max-autotune-no-cudagraphs"),
    min_speedup={"default": 1.2},
    max_time_s=0.3,
)
def test_it(compileguard):
    guarded = compileguard(library.transform)
    for _ in range(3):
        guarded(torch.randn(8192, 8192, device="cuda"))
"""


def test_modes_are_compared_in_a_table(run_suite: RunSuite) -> None:
    ended = run_suite(MODES, library=LIBRARY, timing=True)

    ended.result.assert_outcomes(passed=3)
    ended.result.stdout.fnmatch_lines(
        [
            "modes of test_suite.py::test_it (transform)",
            "  mode * speedup * compiled * compiling * peak memory * kernels * verdict",
            "  default * ms * MiB *",
            "  reduce-overhead * ms * MiB *",
            "  fastest*",
        ]
    )
    recorded = [check["inductor"]["cudagraph_recordings"] for check in ended.checks]
    assert sum(count > 0 for count in recorded) == 1  # in reduce-overhead alone
