"""One test in several modes of torch.compile: a check for each, with limits of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import RunSuite

LIBRARY = """
import time
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2 + 1)

def sleepy(graph, inputs, mode=None, **_):
    def run(*args):
        time.sleep({"default": 0.002, "reduce-overhead": 0.0, None: 0.005}[mode])
        return graph(*args)
    return run
"""

TEST = """
import pytest, torch
from library import Net, sleepy
from pytest_compileguard import compile_check

@compile_check(modes=("default", "reduce-overhead"), backend=sleepy{more})
@pytest.mark.parametrize("size", (3, 4))
def test_net(compileguard, size):
    compileguard(Net(){override})(torch.randn(size))
"""


def suite(more: str = "", override: str = "") -> str:
    return TEST.format(more=more, override=override)


def test_each_mode_is_a_test_of_its_own(run_suite: RunSuite) -> None:
    run = run_suite(suite(), "-v", library=LIBRARY)

    run.result.assert_outcomes(passed=4)
    assert {(check["nodeid"].partition("::")[2], check["mode"]) for check in run.checks} == {
        (f"test_net[{size}-{mode}]", mode)
        for size in (3, 4)
        for mode in ("default", "reduce-overhead")
    }
    run_suite(suite(), "-k", "overhead", library=LIBRARY).result.assert_outcomes(
        passed=2, deselected=2
    )


def test_each_mode_has_a_baseline_of_its_own(run_suite: RunSuite) -> None:
    run_suite(suite(), "--compileguard-update-baseline", library=LIBRARY)
    stored = json.loads(Path("__compileguard__/test_suite.json").read_bytes())["entries"]
    again = run_suite(suite(), library=LIBRARY)

    assert len(stored) == 4
    assert all(finding["status"] == "passed" for finding in again.findings("baseline"))


def test_a_limit_of_one_mode_fails_that_one_alone(run_suite: RunSuite) -> None:
    limits = "max_time_s=0.2, min_speedup={'default': 10.0, 'reduce-overhead': 1e-6}"
    run = run_suite(suite(f", {limits}"), library=LIBRARY, timing=True)
    failed = [check["mode"] for check in run.checks if check["fails"]]

    run.result.assert_outcomes(passed=2, failed=2)
    assert failed == ["default", "default"]
    # The sleeping one loses, in a table for each parameter of the test.
    run.result.stdout.fnmatch_lines(
        [
            "modes of test_suite.py::test_net?3? (Net)",
            "  mode * speedup * compiling * peak memory * kernels * verdict",
            "  default *",
            "  reduce-overhead *",
            "  fastest of those that passed: reduce-overhead, *",
            "modes of test_suite.py::test_net?4? (Net)",
        ]
    )


def test_a_mode_without_a_limit_has_none(run_suite: RunSuite) -> None:
    run = run_suite(suite(", max_compile_time_s={'default': 1e-9}"), library=LIBRARY)

    run.result.assert_outcomes(passed=2, failed=2)
    assert len(run.findings("compile_time")) == 2


DEFALT = (
    ": compile_check: {name}={{'defalt': 1, 'x': 2}}: names the modes 'defalt', 'x', but "
    "modes=('default', 'reduce-overhead'); did you mean 'default'?"
)


@pytest.mark.parametrize(
    ("more", "words"),
    (
        (
            ", min_speedup={'max-autotune': 2.0}",
            "names the mode 'max-autotune', but modes=('default', 'reduce-overhead')",
        ),
        *(
            (f", {name}={{'defalt': 1, 'x': 2}}", DEFALT.format(name=name))
            for name in (
                "min_speedup",
                "max_compile_time_s",
                "max_peak_memory_ratio",
                "max_kernels_per_call",
            )
        ),
        (", min_speedup={'default': 0}", "must be a finite number above 0, for each mode"),
        (", min_speedup={}", "for each mode"),
        (", mode='default'", "either mode or modes, not both"),
        (", options={'a': 1}", "either modes or options, not both"),
    ),
)
def test_limits_of_modes_that_hold_for_nothing_are_refused(
    run_suite: RunSuite, more: str, words: str
) -> None:
    run = run_suite(suite(more), library=LIBRARY)

    assert run.result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in run.text


@pytest.mark.parametrize(
    ("modes", "odd"),
    (
        ("()", ""),
        ("('fast',)", "; 'fast' is none"),
        ("('default', 'fast', 'lite')", "; 'fast' is none"),
        ("('lite', 'defalt')", "; 'defalt' is none; did you mean 'default'?"),
        ("('lite', [])", "; [] is none"),
        ("'default'", ""),
        ("('default', 'default')", "; 'default' stands there twice"),
        ("3", ""),
    ),
)
def test_modes_that_do_not_exist_are_refused(run_suite: RunSuite, modes: str, odd: str) -> None:
    tests = suite().replace('("default", "reduce-overhead")', modes)
    run = run_suite(tests, library=LIBRARY)

    assert run.result.ret == pytest.ExitCode.USAGE_ERROR
    assert "modes=" in run.text
    assert "must be a list of some of default, reduce-overhead" in run.text
    assert f"each once{odd}" in run.text


@pytest.mark.parametrize(
    ("override", "words"),
    (
        (", mode='default'", "name the mode of this check"),
        (", modes=('default',)", "belongs to the marker"),
        (", min_speedup={'max-autotune': 1.0}", "names the mode 'max-autotune', but modes="),
    ),
)
def test_a_target_can_not_take_another_mode_than_its_test(
    run_suite: RunSuite, override: str, words: str
) -> None:
    run = run_suite(suite(override=override), library=LIBRARY)

    run.result.assert_outcomes(failed=4)
    assert words in run.text


UNEXPANDED = """
import unittest, pytest, torch
from library import Net, sleepy
from pytest_compileguard import compile_check

class TestNet(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _guard(self, compileguard):
        self.guard = compileguard

    @compile_check(modes=("default",), backend=sleepy)
    def test_net(self):
        self.guard(Net())(torch.randn(3))
"""
OF_PARAMETER = """
import pytest, torch
from library import Net, sleepy
from pytest_compileguard import compile_check

MARK = compile_check(modes=("default",), backend=sleepy)

@pytest.mark.parametrize("size", (pytest.param(3, marks=MARK),))
def test_net(compileguard, size):
    compileguard(Net())(torch.randn(size))
"""


@pytest.mark.parametrize("tests", (UNEXPANDED, OF_PARAMETER))
def test_modes_that_pytest_can_not_expand_are_refused(run_suite: RunSuite, tests: str) -> None:
    run = run_suite(tests, library=LIBRARY)

    assert run.result.ret == pytest.ExitCode.USAGE_ERROR
    assert "modes=('default',) can't expand this test" in run.text


def test_a_class_or_module_can_be_marked_and_a_function_can_switch_it_off(
    run_suite: RunSuite,
) -> None:
    tests = """
import torch
from library import Net, sleepy
from pytest_compileguard import compile_check

pytestmark = compile_check(modes=("default", "reduce-overhead"), backend=sleepy)

def test_net(compileguard):
    compileguard(Net())(torch.randn(3))

@compile_check(mode="default")
def test_one(compileguard):
    compileguard(Net())(torch.randn(3))
"""
    run = run_suite(tests, library=LIBRARY)

    run.result.assert_outcomes(passed=3)
    assert [c["mode"] for c in run.checks] == ["default", "reduce-overhead", "default"]


OWN_MODES = """
import pytest, torch
from library import Net, sleepy
from pytest_compileguard import compile_check

@compile_check(mode="fast", backend=lambda graph, inputs, **_: graph)
@pytest.mark.parametrize("backend", ({}, {"backend": "aot_eager"}))
def test_own(compileguard, backend):
    compileguard(Net(), **backend)(torch.randn(3))

def test_named(compileguard):
    compileguard(Net(), mode="fast", backend="aot_eager")(torch.randn(3))
"""


def test_only_a_callable_has_modes_of_its_own(run_suite: RunSuite) -> None:
    run = run_suite(OWN_MODES, library=LIBRARY)

    run.result.assert_outcomes(passed=1, failed=2)
    assert run.text.count("compileguard(Net): mode='fast': must be one of default, ") >= 2
