"""Two GPUs: targets on the second one or on both, and workers that have one each."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_compileguard.gpu_pinning import VISIBLE
from pytest_compileguard.observation import LaunchObservation, MemoryObservation
from pytest_compileguard.speed import speed
from pytest_compileguard.timing.device_lock import _physical_name
from pytest_compileguard.timing.device_usage import kernel_launches, peak_memory
from pytest_compileguard.timing.gpu_state import GpuReader, GpuUnreadError
from pytest_compileguard.timing.measuring import _reader_of
from tests.conftest import RunSuite
from tests.gpu.test_device_state_gpu import computing_elsewhere, known
from tests.gpu.test_measures_gpu import MIB, never, sides
from tests.gpu.test_timing_gpu import observe
from tests.gpu.two_gpu_suites import (
    CURRENT,
    DRAWS_TWICE,
    GRAPHS,
    HEAD,
    LIBRARY,
    LOCKS,
    NEAR_AND_FAR,
    ON_EACH,
    PIPELINE,
    RANDOM,
    RANDOM_TIMED,
    WORKERS,
    WRONG,
)

pytestmark = [
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
    pytest.mark.gpu,
    pytest.mark.usefixtures("compiler_loaded"),
]

PLACES = ("cuda:0", "cuda:1")
SECOND = PLACES[1]
READ_ALIKE = 0.05
"""What the same call may differ by on two GPUs of one model."""
BY_HAND = 0.15
"""What a reading may differ by from one by the processor's clock."""

# Each worker loads all others anew, which takes seconds.
FEW_PLUGINS = ("-p", "xdist", "-p", "pytest_compileguard.plugin", "-p", "no:cacheprovider")


def uuids() -> tuple[str, str]:
    first, second = (str(torch.cuda.get_device_properties(place).uuid) for place in PLACES)
    assert first != second
    return first, second


def ratios_to(times: Sequence[float], truths: Sequence[float]) -> list[Any]:
    return [time / truth for time, truth in zip(times, truths, strict=True)]


def test_the_second_gpu_reads_as_the_first_one_does(run_suite: RunSuite) -> None:
    run = run_suite(HEAD + ON_EACH, library=LIBRARY, timing=True)

    run.result.assert_outcomes(passed=2)
    assert torch.cuda.current_device() == 0
    assert [check["samples"]["device"] for check in run.checks] == list(PLACES)
    assert [check["samples"]["void"] for check in run.checks] == [None, None]
    first, second = (check["observed"] for check in run.checks)
    timed = ("speedup", "device_speedup", "eager_ms", "compiled_ms")
    found = ratios_to([second[name] for name in timed], [first[name] for name in timed])
    assert found == pytest.approx([1] * 4, rel=READ_ALIKE)
    counted = ("kernels_per_call", "eager_kernels_per_call", "peak_memory_bytes")
    assert [second[name] for name in counted] == [1, 3, 256 * MIB]
    assert second["eager_peak_memory_bytes"] == first["eager_peak_memory_bytes"] >= 512 * MIB


def test_memory_kernels_and_bandwidth_are_those_of_the_second_gpu() -> None:
    x = torch.ones(16 * MIB, dtype=torch.uint8, device=SECOND)
    calls = sides(lambda: (x + 1) + (x + 2), lambda: x + 1)
    memory = peak_memory(*calls, device=SECOND, inputs=[x])
    kernels = kernel_launches(*calls, device=SECOND, compile_count=never)

    assert isinstance(memory, MemoryObservation)
    assert (memory.eager_bytes, memory.compiled_bytes) == (48 * MIB, 16 * MIB)
    # An event on the wrong GPU waits for no copy: it would read more than any memory gives.
    assert 1e11 < memory.copy_bytes_per_s < 2e13
    assert isinstance(kernels, LaunchObservation)
    assert (kernels.eager_kernels, kernels.compiled_kernels) == (3, 1)
    assert torch.cuda.current_device() == 0


def test_the_cache_that_is_flushed_is_that_of_the_second_gpu() -> None:
    x = torch.ones(MIB, device=SECOND)
    call = lambda: x + 1  # noqa: E731
    warm, cold = (
        speed(observe(call, call, device=SECOND, max_time_s=0.5, cache=cache), "device")
        for cache in ("warm", "cold")
    )

    assert warm is not None
    assert cold is not None
    assert cold.compiled_ms > 1.1 * warm.compiled_ms


def test_the_second_gpu_is_locked_and_read_by_its_own_uuid() -> None:
    for uuid, place in zip(uuids(), PLACES, strict=True):
        bare = uuid.lower().removeprefix("gpu-")
        assert bare in _physical_name(place)
        find = _reader_of(torch.device(place))
        assert find is not None
        try:
            reader = find()
        except GpuUnreadError as error:
            pytest.skip(str(error))
        assert isinstance(reader, GpuReader)
        if not reader.is_instance:
            assert bare in str(reader.nvml.nvmlDeviceGetUUID(reader.handle)).lower()


@pytest.mark.parametrize(
    ("target", "places", "held"),
    (("transform", (SECOND,), "False True"), ("near_and_far", PLACES, "True True")),
)
def test_the_gpus_that_a_call_uses_are_held_and_no_others(
    run_suite: RunSuite, target: str, places: tuple[str, ...], held: str
) -> None:
    suite = HEAD + LOCKS.format(places=places, target=target)
    run = run_suite(suite, library=LIBRARY, timing=True)

    run.result.assert_outcomes(passed=1)
    # None is held while it is seen what the call mutates, nor once it is timed.
    assert set(Path("locks.txt").read_text().splitlines()) == {"False False", held}


def test_what_computes_on_one_gpu_disturbs_what_is_timed_on_that_one_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ones = [torch.ones(64 * MIB, device=place) for place in PLACES]
    calls = [lambda x=x: x + 1 for x in ones]
    second = uuids()[1]
    monkeypatch.setenv(VISIBLE, second if second.startswith("GPU-") else f"GPU-{second}")
    with computing_elsewhere():
        alone, beside = (
            observe(call, call, device=place, max_time_s=0.5, limit=1.5)
            for call, place in zip(calls, PLACES, strict=True)
        )
    _, state = known(beside)

    assert (alone.attempts, alone.disturbed) == (1, ())
    if state.others_busy_percent is None:
        pytest.skip("the driver does not tell here what other processes compute")
    assert beside.attempts > 1


def test_a_pipeline_over_both_agrees_and_is_timed_to_its_end(run_suite: RunSuite) -> None:
    run = run_suite(HEAD + PIPELINE, library=LIBRARY, timing=True)

    run.result.assert_outcomes(passed=1)
    seen = run.check["observed"]
    assert (seen["graphs"], seen["parity"], run.check["samples"]["void"]) == (1, "passed", None)
    hand_ms = json.loads(Path("hand.json").read_text())
    assert seen["eager_ms"] == pytest.approx(hand_ms, rel=BY_HAND)


def test_a_wrong_result_on_the_second_gpu_of_a_pipeline_fails(run_suite: RunSuite) -> None:
    run = run_suite(HEAD + WRONG, "--compileguard-no-locate", library=LIBRARY)

    run.result.assert_outcomes(failed=1)
    assert run.status("parity") == "failed"


@pytest.mark.parametrize(("near", "far"), (PLACES, PLACES[::-1]))
def test_all_that_a_call_does_on_either_gpu_is_measured(
    run_suite: RunSuite, near: str, far: str
) -> None:
    suite = HEAD + NEAR_AND_FAR.format(near=near, far=far)
    run = run_suite(suite, library=LIBRARY, timing=True)

    run.result.assert_outcomes(passed=1)
    assert run.check["samples"]["void"] is None
    seen = run.check["observed"]
    hand_ms = json.loads(Path("hand.json").read_text())
    times_ms = [seen["eager_ms"], seen["compiled_ms"]]
    # All three at once, so that one run tells of each.
    kernels, peaks = (
        [seen[f"eager_{name}"] or 0, seen[name] or 0]
        for name in ("kernels_per_call", "peak_memory_bytes")
    )
    wrong = {
        "times": ratios_to(times_ms, hand_ms) != pytest.approx([1, 1], rel=BY_HAND) and times_ms,
        "kernels": min(kernels) < 2 and kernels,
        "peaks": (peaks[0] < 64 * MIB or peaks[1] < 16 * MIB) and peaks,
    }
    assert not any(wrong.values()), (wrong, hand_ms)


def test_a_call_is_timed_with_the_gpu_current_that_was_current(run_suite: RunSuite) -> None:
    run = run_suite(HEAD + CURRENT, library=LIBRARY, timing=True)

    run.result.assert_outcomes(passed=2)
    assert [check["observed"]["parity"] for check in run.checks] == ["passed"] * 2
    assert [(c["samples"] or {}).get("void", "untimed") for c in run.checks] == [None] * 2, run.text
    assert torch.cuda.current_device() == 0


def test_generators_of_both_gpus_are_left_as_one_eager_call_leaves_them(
    run_suite: RunSuite,
) -> None:
    run = run_suite(HEAD + RANDOM, library=LIBRARY)

    run.result.assert_outcomes(passed=2)
    assert [check["observed"]["parity"] for check in run.checks] == ["passed"] * 2


def test_timing_leaves_the_generator_of_the_second_gpu_alone(run_suite: RunSuite) -> None:
    run = run_suite(HEAD + RANDOM_TIMED, library=LIBRARY, timing=True)

    run.result.assert_outcomes(passed=2)
    assert run.check["samples"]["void"] is None


def test_a_draw_too_many_on_the_second_gpu_fails(run_suite: RunSuite) -> None:
    run = run_suite(HEAD + DRAWS_TWICE, "--compileguard-no-locate", library=LIBRARY)

    run.result.assert_outcomes(failed=1)
    assert "random state" in str(run.findings("parity"))


def test_cuda_graphs_of_the_second_gpu_are_recorded_once_and_timed(run_suite: RunSuite) -> None:
    run = run_suite(HEAD + GRAPHS, library=LIBRARY, timing=True)

    run.result.assert_outcomes(passed=1)
    seen, samples = run.check["inductor"], run.check["samples"]
    assert (seen["cudagraph_recordings"], seen["cudagraph_rerecordings"]) == (1, 0)
    assert (samples["device"], samples["void"]) == (SECOND, None)
    assert run.status("cudagraph_skips") == "passed"
    # What the graph keeps on the second GPU: the allocator sees nothing of a replay.
    assert run.check["observed"]["peak_memory_bytes"] >= 64 * MIB
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("step", (1, -1), ids=("in order", "in the other order"))
def test_each_worker_has_a_gpu_of_its_own_and_they_may_time_at_once(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    pytest.importorskip("xdist")
    given = os.environ.get(VISIBLE)
    if step == -1:
        names = (given or "0,1").split(",")[:2]
        monkeypatch.setenv(VISIBLE, ",".join(names[::step]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makepyfile(test_suite=WORKERS)

    arguments = ("-n2", "--compileguard-gpus=auto", "--compileguard-json=out.json")
    result = pytester.runpytest_subprocess(*FEW_PLUGINS, *arguments)

    result.assert_outcomes(passed=2)
    assert tuple(Path(f"gw{number}").read_text() for number in range(2)) == uuids()[::step]
    checks = json.loads(Path("out.json").read_bytes())["checks"]
    assert [check["samples"]["void"] for check in checks] == [None, None]
    assert [check["samples"]["device"] for check in checks] == ["cuda:0"] * 2
