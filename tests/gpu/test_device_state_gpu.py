"""The state of a real GPU around a measurement, and workers that get a GPU each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from pytest_compileguard.observation import GpuState, SpeedObservation
from pytest_compileguard.timing.run import MOST_ATTEMPTS
from tests.gpu.test_timing_gpu import Call, observe, transform

__all__ = ["transform"]  # a fixture

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("compiler_loaded")]

COMPUTE = """
import torch
x = torch.randn(4096, 4096, device="cuda")
print("computing", flush=True)
while True:
    for _ in range(20):
        y = x @ x
    torch.cuda.synchronize()
"""
HASTY = "import torch\ntorch.cuda.init()\n"
SUITE = """
import os
import torch
import pytest
from pytest_compileguard import compile_check


@pytest.mark.parametrize("number", range(2))
@compile_check(max_recompiles=0, max_time_s=0.2)
def test_where(compileguard, number):
    assert os.environ["CUDA_VISIBLE_DEVICES"] == os.environ["GIVEN"]
    assert torch.cuda.device_count() == 1
    compileguard(torch.relu)(torch.randn(1024, device="cuda"))
"""


@contextmanager
def computing_elsewhere() -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", COMPUTE], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "computing\n"
        try:
            yield
        finally:
            other.kill()


def known(seen: SpeedObservation) -> tuple[GpuState, GpuState]:
    """Give both states; skip with the reason where they can't be read."""
    if seen.gpu_unread is not None:
        pytest.skip(seen.gpu_unread)
    assert seen.gpu_before is not None
    assert seen.gpu_after is not None
    return seen.gpu_before, seen.gpu_after


def test_both_states_are_those_of_this_gpu(transform: Call) -> None:
    for state in known(observe(transform, transform, max_time_s=0.3)):
        assert state.sm_clock_mhz
        assert state.temperature_c is None or 0 < state.temperature_c < 120
        assert state.clock_reasons is None or all(state.clock_reasons)


def test_another_process_that_computes_is_told_and_tried_again(transform: Call) -> None:
    with computing_elsewhere():
        seen = observe(transform, transform, max_time_s=0.5, limit=1.5)
    _, state = known(seen)

    if state.others_busy_percent is None:
        if not state.other_processes:
            pytest.skip("the driver shows no other process here")
        assert any("had this GPU open" in note for note in seen.notes)
    else:
        # The driver's figures come late: the last attempt may look undisturbed.
        assert 1 < seen.attempts <= MOST_ATTEMPTS


def test_a_quiet_gpu_needs_one_attempt(transform: Call) -> None:
    seen = observe(transform, transform, max_time_s=0.3)
    known(seen)

    assert (seen.attempts, seen.disturbed) == (1, ())


def test_workers_share_the_gpus_that_were_given_and_time_on_them(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xdist")
    given = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    monkeypatch.setenv("GIVEN", given)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    pytester.makepyfile(test_suite=SUITE)

    arguments = ("-n2", "--compileguard-gpus=auto", "--compileguard-json=out.json")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)

    result.assert_outcomes(passed=2)
    checks = json.loads(Path("out.json").read_bytes())["checks"]
    assert [check["samples"]["void"] for check in checks] == [None, None]
    assert all(check["samples"]["cpus"] == len(os.sched_getaffinity(0)) for check in checks)


def test_a_worker_that_uses_cuda_already_runs_nothing_and_says_why(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xdist")
    given = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    # One GPU, in more words than are needed: to choose it, the variable would have to change.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{given},-1")
    pytester.makepyfile(hasty=HASTY, test_suite="def test_plain(): pass")
    pytester.syspathinsert()

    result = pytester.runpytest_subprocess(
        *("-p", "hasty", "-n1", "--compileguard-gpus=auto", "-p", "no:cacheprovider")
    )

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["*CUDA is initialised already in worker gw0*"])
