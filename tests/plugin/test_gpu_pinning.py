"""Workers of pytest-xdist see one GPU each, of those that the run was given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_compileguard.errors import OptionError
from pytest_compileguard.gpu_pinning import pin

pytest.importorskip("xdist")

SUITE = """
import os
import pytest

# Seen by a conftest and by modules, before any test runs.
EARLY = os.environ.get("CUDA_VISIBLE_DEVICES", "unset")


@pytest.mark.parametrize("number", range(8))
def test_where(number):
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    now = os.environ.get("CUDA_VISIBLE_DEVICES", "unset")
    with open(f"{worker}.txt", "a") as file:
        print(EARLY, now, file=file)
"""
# Each worker loads all others anew, which takes seconds.
FEW_PLUGINS = ("-p", "xdist", "-p", "pytest_compileguard.plugin", "-p", "no:cacheprovider")


def seen(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, given: str | None, *arguments: str
) -> dict[str, str]:
    """Run the suite, and give what each worker saw."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    pytester.makepyfile(test_suite=SUITE)
    result = pytester.runpytest_subprocess(*FEW_PLUGINS, *arguments)
    result.assert_outcomes(passed=8)
    found = {}
    for file in Path().glob("*.txt"):
        (line,) = set(file.read_text(encoding="utf-8").splitlines())
        early, now = line.split(" ")
        assert early == now, "set too late"
        found[file.stem] = now
    return found


def test_workers_take_turns_in_the_devices_that_were_given(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = seen(pytester, monkeypatch, "3,5", "-n3", "--compileguard-gpus=auto")

    assert found == {"gw0": "3", "gw1": "5", "gw2": "3"}


def test_the_ini_file_may_say_so_and_devices_go_by_any_name(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\ncompileguard_gpus = auto\n")

    found = seen(pytester, monkeypatch, "GPU-8932f937,MIG-c7384736", "-n2")

    assert found == {"gw0": "GPU-8932f937", "gw1": "MIG-c7384736"}


@pytest.mark.parametrize(
    ("given", "arguments"),
    (
        ("3,5", ("-n1",)),
        ("3,5", ("--compileguard-gpus=auto",)),
        ("", ("-n1", "--compileguard-gpus=auto")),
    ),
    ids=("unasked", "without xdist", "no GPU"),
)
def test_nothing_is_changed_where_nothing_is_to_be_done(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    given: str,
    arguments: tuple[str, ...],
) -> None:
    assert set(seen(pytester, monkeypatch, given, *arguments).values()) == {given}


def test_a_worker_that_can_not_be_given_a_gpu_runs_nothing_and_says_why(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(test_suite=SUITE)
    workers = ("-d", "--tx", "popen//id=mine")

    result = pytester.runpytest_subprocess(*FEW_PLUGINS, *workers, "--compileguard-gpus=auto")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["*--compileguard-gpus=auto: worker 'mine' has no number*"])
    assert not list(Path().glob("*.txt"))


def test_another_value_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_plain(): pass")

    result = pytester.runpytest_inprocess("--compileguard-gpus=all")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--compileguard-gpus: 'all': must be one of off, auto*"])


@pytest.mark.parametrize(
    ("given", "worker", "chosen"),
    (
        ("0,1,2,3", "gw2", "2"),
        (" 4 , 6 ", "gw1", "6"),
        ("4", "gw7", "4"),
        ("0,-1,2", "gw1", "0"),
        ("-1", "gw1", "-1"),
        ("0,nonsense,2", "gw5", "0"),
        ("MIG-GPU-ab/1/0,MIG-GPU-ab/2/0", "gw3", "MIG-GPU-ab/2/0"),
    ),
)
def test_the_variable_is_read_as_the_driver_reads_it(given: str, worker: str, chosen: str) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": given, "PYTEST_XDIST_WORKER": worker}

    for _ in range(2):
        pin(environ)
        assert environ["CUDA_VISIBLE_DEVICES"] == chosen


def test_a_worker_without_a_number_is_refused() -> None:
    with pytest.raises(OptionError, match="worker 'mine' has no number"):
        pin({"CUDA_VISIBLE_DEVICES": "0,1", "PYTEST_XDIST_WORKER": "mine"})


@pytest.mark.skipif(
    Path("/proc/driver/nvidia").exists() or Path("/dev/dxg").exists() or os.name == "nt",
    reason="the driver knows GPUs here",
)
def test_without_a_driver_there_is_no_gpu_to_choose() -> None:
    environ = {"PYTEST_XDIST_WORKER": "gw1"}

    pin(environ)

    assert environ == {"PYTEST_XDIST_WORKER": "gw1"}
