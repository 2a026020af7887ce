"""A check fails its test as an assertion would: what pytest does with failures works on it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunSuite

GOOD_AND_BAD = """
from library import double_relu, printing
from torch import ones

from pytest_compileguard import compile_check


@compile_check(max_graph_breaks=0, backend="eager")
def test_bad(compileguard):
    compileguard(printing)(ones(3))


@compile_check(max_graph_breaks=0, backend="eager")
def test_good(compileguard):
    compileguard(double_relu)(ones(3))
"""


def outcomes(checks: list[dict[str, Any]]) -> dict[str, str]:
    return {check["nodeid"].partition("::")[2]: check["outcome"] for check in checks}


XFAIL = """
import pytest
from library import double_relu, printing
from torch import ones

from pytest_compileguard import compile_check

pytestmark = compile_check(max_graph_breaks=0, backend="eager")


@pytest.mark.xfail(strict=True)
def test_fails_as_expected(compileguard):
    compileguard(printing)(ones(3))


@pytest.mark.xfail(strict=True)
def test_passes_unexpectedly(compileguard):
    compileguard(double_relu)(ones(3))


@pytest.mark.xfail(strict=False)
def test_passes_as_allowed(compileguard):
    compileguard(double_relu)(ones(3))


@pytest.mark.xfail(raises=ZeroDivisionError)
def test_fails_otherwise(compileguard):
    compileguard(printing)(ones(3))


@pytest.mark.xfail(run=False)
def test_does_not_run(compileguard):
    compileguard(printing)(ones(3))
"""


def test_xfail_works_both_ways(run_suite: RunSuite) -> None:
    run = run_suite(XFAIL)

    run.result.assert_outcomes(xfailed=2, xpassed=1, failed=2)
    run.result.stdout.fnmatch_lines(["[[]XPASS(strict)[]]*"])
    assert outcomes(run.checks) == {
        "test_fails_as_expected": "failed",
        "test_passes_unexpectedly": "passed",
        "test_passes_as_allowed": "passed",
        "test_fails_otherwise": "failed",
    }


WRONG_UNDER_XFAIL = """
import pytest
from library import double_relu, printing
from torch import ones

from pytest_compileguard import compile_check

pytestmark = [compile_check(max_graph_breaks=0), pytest.mark.xfail(strict=True)]

def off_by_one(graph, inputs):
    return lambda *args: tuple(out + 1 for out in graph(*args))

def test_known(compileguard):
    compileguard(printing, backend="eager")(ones(3))

def test_known_and_wrong(compileguard):
    compileguard(printing, backend=off_by_one)(ones(3))

def test_two(compileguard):
    compileguard(double_relu, backend=off_by_one)(ones(3))
    compileguard(printing, backend="eager")(ones(3))
"""


def test_a_wrong_result_shows_where_another_failure_was_expected(run_suite: RunSuite) -> None:
    run = run_suite(WRONG_UNDER_XFAIL, "-q", "--compileguard-no-locate")

    run.result.assert_outcomes(xfailed=3)
    told = [line for line in run.text.splitlines() if line.startswith("xfailed: ")]
    assert told == [
        "xfailed: test_known: graph breaks",
        "xfailed: test_known_and_wrong: graph breaks, parity",
        "xfailed: test_two (double_relu): parity",
        "xfailed: test_two (printing): graph breaks",
    ]
    strict = run_suite(WRONG_UNDER_XFAIL, "--compileguard-strict", "-k", "test_known")
    assert "xfailed: test_known: graph breaks, baseline (not checked)" in strict.text


DEBUGGER = """
from pathlib import Path

class Debugger:
    quitting = False

    def __init__(self, *args, **kwargs):
        pass

    def reset(self):
        pass

    def interaction(self, *args):
        with Path("opened").open("a") as file:
            file.write("opened ")
"""


def test_pdb_opens_once_at_the_failure(run_suite: RunSuite, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(debugger=DEBUGGER)

    run = run_suite(GOOD_AND_BAD, "--pdb", "--pdbcls=debugger:Debugger")

    run.result.assert_outcomes(passed=1, failed=1)
    assert Path("opened").read_text() == "opened "
    run.result.stdout.fnmatch_lines(
        ["test_bad: graph breaks 1 > 0 (1 of 4 checks failed)", "*entering PDB*"]
    )


def test_stop_at_the_first_failure(run_suite: RunSuite) -> None:
    run = run_suite(GOOD_AND_BAD, "-x")

    run.result.assert_outcomes(failed=1)
    assert outcomes(run.checks) == {"test_bad": "failed"}


def test_last_failed(pytester: pytest.Pytester, run_suite: RunSuite) -> None:
    """The first run only writes the files."""
    run_suite(GOOD_AND_BAD, "--collect-only")
    pytester.runpytest_inprocess("--compileguard-no-timing").assert_outcomes(passed=1, failed=1)

    result = pytester.runpytest_inprocess("--lf", "--compileguard-no-timing")

    result.assert_outcomes(failed=1)


FLAKY = """
from pathlib import Path

from library import double_relu, printing
from torch import ones

from pytest_compileguard import compile_check


@compile_check(max_graph_breaks=0, backend="eager")
def test_flaky(compileguard):
    first = not Path("ran").exists()
    Path("ran").touch()
    compileguard(printing if first else double_relu)(ones(3))


@compile_check(max_graph_breaks=0, backend="eager")
def test_bad(compileguard):
    compileguard(printing)(ones(3))
"""


def test_a_rerun_is_judged_anew(run_suite: RunSuite) -> None:
    pytest.importorskip("pytest_rerunfailures")

    run = run_suite(FLAKY, "--reruns=1")

    found = run.result.parseoutcomes()
    assert (found["passed"], found["failed"], found["rerun"]) == (1, 1, 2)
    assert outcomes(run.checks) == {"test_bad": "failed", "test_flaky": "passed"}
    assert {check["name"] for check in run.checks} == {"printing", "double_relu"}


EXPECTED = """
import unittest
import pytest
from library import double_relu, printing
from torch import ones

class Guarded(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def guard(self, compileguard):
        self.guarded = lambda f: compileguard(f, max_graph_breaks=0, backend="eager")(ones(3))

class TestMethods(Guarded):
    @unittest.expectedFailure
    def test_breaks(self):
        self.guarded(printing)

    @unittest.expectedFailure
    def test_fails_by_itself(self):
        self.guarded(printing)
        self.fail("mine")

    @unittest.expectedFailure
    def test_keeps(self):
        self.guarded(double_relu)

    def test_plain(self):
        self.guarded(printing)

@unittest.expectedFailure
class TestWhole(Guarded):
    def test_breaks(self):
        self.guarded(printing)
"""


def test_what_unittest_expects_to_fail_may_fail_by_its_checks(run_suite: RunSuite) -> None:
    run = run_suite(EXPECTED, "-rx", "-v")

    run.result.assert_outcomes(xfailed=3, failed=2)
    run.result.stdout.fnmatch_lines(
        [
            "*TestMethods::test_breaks XFAIL*",
            "*TestMethods::test_keeps FAILED*",
            "Unexpected success",
            "XFAIL *TestWhole::test_breaks - *test_breaks: graph breaks 1 > 0*",
        ]
    )
    expected = "xfailed: test_suite.py::TestMethods::test_breaks: graph breaks"
    assert expected in run.text


SHAPES = """
import unittest

import pytest
from library import Net, double_relu, printing
from torch import ones

from pytest_compileguard import compile_check

pytestmark = compile_check(max_graph_breaks=0, backend="eager")


@pytest.mark.parametrize("n", [2, 3])
def test_parameters(compileguard, n):
    compileguard(double_relu)(ones(n))


class TestMethods:
    def test_good(self, compileguard):
        compileguard(double_relu)(ones(3))

    def test_bad(self, compileguard):
        compileguard(printing)(ones(3))


@pytest.fixture
def guarded(compileguard):
    return compileguard(printing)


def test_fixture_guards(guarded):
    guarded(ones(3))


@pytest.fixture
def called(compileguard):
    return compileguard(printing)(ones(3))


def test_fixture_calls(called):
    assert called.shape == (3,)


class TestCase(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def guard(self, compileguard):
        self.compileguard = compileguard

    def test_good(self):
        self.compileguard(double_relu)(ones(3))

    def test_bad(self):
        self.compileguard(printing)(ones(3))

    def test_guards_nothing(self):
        pass


def test_several(compileguard):
    compileguard(double_relu)(ones(3))
    compileguard(printing)(ones(3))
    compileguard(double_relu)(ones(3))


def test_sub_tests(compileguard, subtests):
    guarded = compileguard(printing)
    with subtests.test("one"):
        guarded(ones(3))
"""


def test_every_shape_of_test_is_judged(run_suite: RunSuite) -> None:
    suite = SHAPES
    if pytest.version_tuple < (9,):
        suite = suite.partition("def test_sub_tests")[0]

    run = run_suite(suite)

    found = [
        (check["nodeid"].partition("::")[2], check["name"], check["outcome"])
        for check in run.checks
        if "sub_tests" not in check["nodeid"]
    ]
    assert found == [
        ("TestCase::test_bad", "printing", "failed"),
        ("TestCase::test_good", "double_relu", "passed"),
        ("TestMethods::test_bad", "printing", "failed"),
        ("TestMethods::test_good", "double_relu", "passed"),
        ("test_fixture_calls", "printing", "failed"),
        ("test_fixture_guards", "printing", "failed"),
        ("test_parameters[2]", "double_relu", "passed"),
        ("test_parameters[3]", "double_relu", "passed"),
        ("test_several", "double_relu", "passed"),
        ("test_several", "double_relu-2", "passed"),
        ("test_several", "printing", "failed"),
    ]
    failed = {line.split(" - ")[0] for line in run.result.outlines if line.startswith("FAILED ")}
    expected = {
        "TestCase::test_bad",
        "TestCase::test_guards_nothing",
        "TestMethods::test_bad",
        "test_fixture_calls",
        "test_fixture_guards",
        "test_several",
    } | ({"test_sub_tests"} if pytest.version_tuple >= (9,) else set())
    assert failed == {f"FAILED test_suite.py::{name}" for name in expected}


ASYNCHRONOUS = """
import pytest
from library import double_relu, printing
from torch import ones

from pytest_compileguard import compile_check

pytestmark = [compile_check(max_graph_breaks=0, backend="eager"), pytest.mark.{plugin}]


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def test_good(compileguard):
    compileguard(double_relu)(ones(3))


async def test_bad(compileguard):
    compileguard(printing)(ones(3))


async def test_guards_nothing(compileguard):
    pass
"""


@pytest.mark.parametrize(
    ("plugin", "module"), (("asyncio", "pytest_asyncio"), ("anyio", "anyio.pytest_plugin"))
)
def test_coroutines_are_judged(run_suite: RunSuite, plugin: str, module: str) -> None:
    pytest.importorskip(module)

    run = run_suite(ASYNCHRONOUS.format(plugin=plugin), "-W", "ignore::DeprecationWarning")

    run.result.assert_outcomes(passed=1, failed=2)
    assert outcomes(run.checks) == {"test_good": "passed", "test_bad": "failed"}


@pytest.mark.parametrize("absent", ("xdist", "benchmark", "rerunfailures", "asyncio", "logging"))
def test_other_plugins_are_not_needed(run_suite: RunSuite, absent: str) -> None:
    run = run_suite(GOOD_AND_BAD, "-p", f"no:{absent}")

    run.result.assert_outcomes(passed=1, failed=1)
    assert outcomes(run.checks) == {"test_bad": "failed", "test_good": "passed"}


def test_junit_counts_a_failure_not_an_error(run_suite: RunSuite) -> None:
    run_suite(GOOD_AND_BAD, "--junitxml=junit.xml")

    (suite,) = ET.parse("junit.xml").getroot()  # noqa: S314  # we wrote it
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    (failure,) = suite.iter("failure")
    assert "graph breaks   observed 1    limit 0" in str(failure.text)


def test_a_suite_without_checks_prints_nothing_of_ours(run_suite: RunSuite) -> None:
    run = run_suite("def test_plain(): pass\n", "-v")

    shown = [line for line in run.result.outlines if not line.startswith("plugins:")]
    assert "compileguard" not in "\n".join([*shown, *run.result.errlines])
    assert run.document["checks"] == []


TALKING = """
import logging
import sys
import warnings


def talking(x):
    print("to stdout")
    print("to stderr", file=sys.stderr)
    logging.getLogger("library").warning("logged")
    warnings.warn("warned", stacklevel=1)
    return x + 1
"""
LISTENING = """
from library import talking
from torch import ones


def test_capsys(compileguard, capsys):
    compileguard(talking, backend="eager")(ones(3))
    assert capsys.readouterr() == ("to stdout\\n", "to stderr\\n")


def test_capfd(compileguard, capfd):
    compileguard(talking, backend="eager")(ones(3))
    assert capfd.readouterr() == ("to stdout\\n", "to stderr\\n")


def test_caplog(compileguard, caplog):
    compileguard(talking, backend="eager")(ones(3))
    assert caplog.messages == ["logged"]


def test_recwarn(compileguard, recwarn):
    compileguard(talking, backend="eager")(ones(3))
    assert [str(warning.message) for warning in recwarn] == ["warned"]
"""


def test_what_a_target_says_is_heard_once(run_suite: RunSuite) -> None:
    run = run_suite(LISTENING, library=TALKING)

    run.result.assert_outcomes(passed=4)


def test_captured_output_is_shown_once(run_suite: RunSuite) -> None:
    run = run_suite(
        "from library import talking\n"
        "from torch import ones\n"
        "def test_it(compileguard):\n"
        "    compileguard(talking, backend='eager', max_graph_breaks=0)(ones(3))\n",
        library=TALKING,
    )

    run.result.assert_outcomes(failed=1, warnings=1)
    section = run.text.partition("Captured stdout call")[2]
    for said in ("to stdout", "to stderr", "logged"):
        assert section.count(f"{said}\n") == 1, said


OWN_FAILURES = """
import pytest
from library import printing
from torch import ones

from pytest_compileguard import compile_check

pytestmark = compile_check(max_graph_breaks=0, backend="eager")


def test_asserts(compileguard):
    out = compileguard(printing)(ones(3))
    assert out.sum() == 17


def test_skips(compileguard):
    compileguard(printing)(ones(3))
    pytest.skip("not today")


def test_exits_by_a_second_target(compileguard):
    compileguard(printing)(ones(3))
    compileguard(printing, max_graph_break=1)


@pytest.fixture
def broken(compileguard):
    compileguard(printing)
    raise LookupError("in the fixture")


def test_fixture_fails(broken):
    pass
"""


@pytest.mark.parametrize("arguments", ((), ("--compileguard-strict",)), ids=("", "strict"))
def test_own_failure_is_not_masked(run_suite: RunSuite, arguments: tuple[str, ...]) -> None:
    run = run_suite(OWN_FAILURES, *arguments)

    run.result.assert_outcomes(failed=2, skipped=1, errors=1)
    assert "assert tensor(" in run.text
    assert "graph breaks   observed" not in run.text
    assert outcomes(run.checks) == dict.fromkeys(
        ("test_asserts", "test_exits_by_a_second_target", "test_skips"), "not_checked"
    )
    for check in run.checks:
        (finding,) = check["findings"]
        assert "before this check was judged" in finding["message"]
        assert set(check["observed"].values()) == {None, "not_checked"}
        assert not check["fails"]


RAISING = """
def raising(x):
    y = x + 1
    raise ValueError("no good")
"""


def test_an_exception_of_the_target_is_that_of_the_test(run_suite: RunSuite) -> None:
    run = run_suite(
        "import pytest\n"
        "from library import raising\n"
        "from torch import ones\n"
        "def test_unhandled(compileguard):\n"
        "    compileguard(raising, backend='eager')(ones(3))\n"
        "def test_handled(compileguard):\n"
        "    with pytest.raises(ValueError, match='no good') as caught:\n"
        "        compileguard(raising, backend='eager')(ones(3))\n"
        "    assert caught.traceback[-1].name == 'raising'\n"
        "    pytest.skip('as expected')\n",
        library=RAISING,
    )

    run.result.assert_outcomes(failed=1, skipped=1)
    assert outcomes(run.checks) == {"test_unhandled": "not_checked", "test_handled": "not_checked"}
    assert "library.py:3: ValueError" in run.text
    assert "During handling" not in run.text
    assert "guard.py" not in run.text


def test_an_exception_of_the_target_is_shown_without_our_frames(run_suite: RunSuite) -> None:
    run = run_suite(
        "from library import raising\n"
        "from torch import ones\n"
        "def test_unhandled(compileguard):\n"
        "    compileguard(raising, backend='eager')(ones(3))\n",
        library=RAISING,
    )

    assert "pytest_compileguard" not in run.text.partition("FAILURES")[2]


LATE = """
import pytest
from library import double_relu
from torch import ones


@pytest.fixture
def calls_late(compileguard):
    guarded = compileguard(double_relu, backend="eager")
    yield guarded
    guarded(ones(3))


@pytest.fixture
def guards_late(compileguard):
    yield
    compileguard(double_relu, backend="eager")(ones(3))


def test_calls_late(calls_late):
    calls_late(ones(3))


def test_guards_late(guards_late):
    pass
"""


def test_a_call_that_nobody_would_judge_is_refused(run_suite: RunSuite) -> None:
    run = run_suite(LATE)

    run.result.assert_outcomes(passed=2, errors=2)
    assert run.text.count("the test is through and its checks are judged; make guarded calls") >= 2
    assert "guard.py" not in run.text


def test_warnings_as_errors_are_those_of_the_test_alone(run_suite: RunSuite) -> None:
    suite = (
        "from library import Net\n"
        "from torch import ones\n"
        "def test_it(compileguard):\n"
        "    compileguard(Net(), backend='aot_eager')(ones(2, 4)).sum().backward()\n"
    )

    run = run_suite(suite, "-W", "error", "-p", "no:asyncio", "-p", "no:xdist")

    run.result.assert_outcomes(passed=1)


GROUPED = """
import pytest
from library import double_relu, printing
from torch import ones

from pytest_compileguard import compile_check


@pytest.mark.xdist_group("one")
@compile_check(max_graph_breaks=0, backend="eager")
def test_good(compileguard):
    compileguard(double_relu)(ones(3))


@compile_check(max_graph_breaks=0, backend="eager")
def test_bad(compileguard):
    compileguard(printing)(ones(3))
"""


def test_xdist_loses_nothing(run_suite: RunSuite, pytester: pytest.Pytester) -> None:
    """Recorded by two workers, with node ids that have a group; compared in one process."""
    pytest.importorskip("xdist")
    run_suite(GROUPED, "--collect-only")

    result = pytester.runpytest_subprocess(
        *("-n2", "--dist=loadgroup", "-p", "no:cacheprovider", "--junitxml=junit.xml"),
        *("--compileguard-update-baseline", "--compileguard-json=workers.json"),
    )

    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert (
        str(result.stdout).count("compileguard baseline: 1 added, 0 changed, 0 removed, 0 kept")
        == 1
    )
    assert "test_suite.py::test_good" in Path("workers.json").read_text()
    (suite,) = ET.parse("junit.xml").getroot()  # noqa: S314  # we wrote it
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")

    run = run_suite(GROUPED, "-k", "good")
    assert run.status("baseline") == "passed"
    assert run.check["nodeid"] == "test_suite.py::test_good"
