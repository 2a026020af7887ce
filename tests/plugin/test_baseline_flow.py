"""Baselines as a user meets them: record, compare, fail, accept; and what moves none."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run, RunSuite
from tests.stored import sealed

UPDATE = "--compileguard-update-baseline"
FACTS = Path("__compileguard__/test_suite.json")

GOOD = """
import torch

def target(x):
    return torch.relu(x * 2 + 1)
"""
WORSE = """
import torch

def target(x):
    y = torch.relu(x * 2 + 1)
    print("debugging")
    return y.sin()
"""
SUITE = """
from library import target
from torch import ones

from pytest_compileguard import compile_check


@compile_check(backend="eager")
def test_it(compileguard):
    compileguard(target)(ones(3))
"""


@pytest.fixture(autouse=True)
def no_stale_bytecode(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The library changes faster than the clock by which Python knows its bytecode."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        yield


def stored() -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(FACTS.read_bytes())
    return entries


def recorded(run_suite: RunSuite, suite: str = SUITE, library: str = GOOD, **kind: bool) -> Run:
    run = run_suite(suite, UPDATE, library=library, **kind)
    assert run.result.ret == pytest.ExitCode.OK, run.text
    return run


def test_recorded_then_kept(run_suite: RunSuite) -> None:
    run = recorded(run_suite)
    assert run.status("baseline") == "passed"
    run.result.stdout.fnmatch_lines(
        [
            "compileguard baseline: 1 added, 0 changed, 0 removed, 0 kept; 1 file written",
            "  + test_suite.py::test_it::target: facts for cpu torch *",
            "  __compileguard__/test_suite.json",
        ]
    )

    run = run_suite(SUITE, library=GOOD)
    run.result.assert_outcomes(passed=1)
    assert run.status("baseline") == "passed"
    assert run.findings("baseline")[0]["message"].startswith("kept, recorded with torch ")
    assert "not checked" not in run.text


def test_recording_the_same_again_writes_nothing(run_suite: RunSuite) -> None:
    recorded(run_suite)
    before = FACTS.stat().st_mtime_ns

    run = recorded(run_suite)

    run.result.stdout.fnmatch_lines(
        ["compileguard baseline: 0 added, 0 changed, 0 removed, 1 kept; 0 files written"]
    )
    assert FACTS.stat().st_mtime_ns == before


def test_a_regression_is_told_with_its_numbers_and_the_command_accepts_it(
    run_suite: RunSuite, pytester: pytest.Pytester
) -> None:
    recorded(run_suite)

    run = run_suite(SUITE, library=WORSE)
    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(
        [
            "test_it: graph breaks 1 > 0 (3 of 6 checks failed)",
            "  graph breaks   observed 1    baseline 0    recorded with torch *",
            '    new: library.py:5 in target    print("debugging")',
            "  graphs         observed 2    baseline 1    recorded with torch *",
            "      if this is wanted, record it: pytest *",
        ]
    )
    command = command_told(run.text)
    assert command == ["pytest", "test_suite.py::test_it", "--compileguard-no-timing", UPDATE]

    result = pytester.runpytest_inprocess(*command[1:], "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "compileguard baseline: 0 added, 1 changed, 0 removed, 0 kept; 1 file written",
            "  ~ test_suite.py::test_it::target: graph breaks 0 -> 1, break events 0 -> 1, *",
        ]
    )
    run_suite(SUITE, library=WORSE).result.assert_outcomes(passed=1)


def command_told(text: str) -> list[str]:
    """Take the one command out of a failure, as a user would copy it."""
    told = set(re.findall(r"if this is wanted, record it: (.*)", text))
    assert len(told) == 1, told
    return shlex.split(told.pop())


BACKEND_OF_COMMAND_LINE = SUITE.replace('(backend="eager")', "")


def test_the_command_repeats_what_results_depend_on(
    run_suite: RunSuite, pytester: pytest.Pytester
) -> None:
    arguments = ("--compileguard-backend=eager", "--compileguard-baseline-dir=kept here")
    recorded_run = run_suite(BACKEND_OF_COMMAND_LINE, UPDATE, *arguments, library=GOOD)
    recorded_run.result.assert_outcomes(passed=1)

    run = run_suite(BACKEND_OF_COMMAND_LINE, *arguments, library=WORSE)

    run.result.assert_outcomes(failed=1)
    command = command_told(run.text)
    assert set(command[2:]) == {*arguments, "--compileguard-no-timing", UPDATE}
    result = pytester.runpytest_inprocess(*command[1:], "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["compileguard baseline: 0 added, 1 changed, 0 removed, 0 kept;*"])
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)
    result.assert_outcomes(passed=1)


PARAMETRISED = """
import pytest
from library import target
from torch import ones


class TestClass:
    @pytest.mark.parametrize("text", ["it's $HOME", 'a "b" `c`', "[x]::y", "*"])
    def test_it(self, compileguard, text):
        compileguard(target, backend="eager")(ones(3))
"""


def test_each_parameter_has_a_baseline_and_a_command_of_its_own(
    run_suite: RunSuite, pytester: pytest.Pytester
) -> None:
    recorded(run_suite, PARAMETRISED)
    assert len(stored()["entries"]) == 4

    run = run_suite(PARAMETRISED, library=WORSE)

    run.result.assert_outcomes(failed=4)
    told = set(re.findall(r"if this is wanted, record it: (.*)", run.text))
    assert len(told) == 4
    command = shlex.split(min(told))
    result = pytester.runpytest_inprocess(*command[1:], "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    run_suite(PARAMETRISED, library=WORSE).result.assert_outcomes(passed=1, failed=3)


def test_the_command_holds_in_the_folder_of_the_call(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, compiler_loaded: None
) -> None:
    del compiler_loaded
    pytester.makeini("[pytest]\npythonpath = .\n")
    pytester.makepyfile(library=GOOD)
    tests, other = pytester.mkdir("tests"), pytester.mkdir("other")
    tests.joinpath("test_suite.py").write_text(SUITE, encoding="utf-8")
    plain = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    monkeypatch.chdir(tests)
    pytester.runpytest_inprocess(UPDATE, *plain).assert_outcomes(passed=1)
    Path("../library.py").write_text(WORSE, encoding="utf-8")

    inside = pytester.runpytest_inprocess(*plain)
    monkeypatch.chdir(other)
    beside = pytester.runpytest_inprocess("../tests", *plain)

    assert command_told(str(inside.stdout))[1] == "test_suite.py::test_it"
    command = command_told(str(beside.stdout))
    assert command[1] == "../tests/test_suite.py::test_it"
    pytester.runpytest_inprocess(*command[1:], *plain).assert_outcomes(passed=1)
    pytester.runpytest_inprocess("../tests", *plain).assert_outcomes(passed=1)


def test_an_entry_that_was_edited_by_hand_is_refused(run_suite: RunSuite) -> None:
    recorded(run_suite, library=WORSE)
    edited = FACTS.read_text(encoding="utf-8").replace('"graph_breaks": 1', '"graph_breaks": 9')
    FACTS.write_text(edited, encoding="utf-8")

    run = run_suite(SUITE, library=WORSE)

    assert run.result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [text for text in run.text.splitlines() if text.startswith("ERROR: ")]
    assert '["cpu torch ' in line
    assert "is not as it was recorded: edited by hand, or mixed up by a merge of git" in line
    assert FACTS.read_text(encoding="utf-8") == edited


TWO_RECOMPILES = SUITE.replace(
    "compileguard(target)(ones(3))",
    "guarded = compileguard(target, dynamic=False)\n    for n in (2, 3, 4):\n"
    "        guarded(ones(n))",
)


@pytest.mark.parametrize(
    ("number", "label"),
    (
        ("graph_breaks", "graph breaks"),
        ("break_events", "break events"),
        ("recompiles", "recompiles"),
        ("graphs", "graphs"),
    ),
)
def test_a_number_that_was_tampered_with_fails_until_it_is_restored(
    run_suite: RunSuite, number: str, label: str
) -> None:
    recorded(run_suite, TWO_RECOMPILES, library=WORSE)
    text = FACTS.read_text(encoding="utf-8")
    honest = re.search(rf'"{number}": (\d+)', text)
    assert honest is not None
    lower = int(honest[1]) - 1
    tampered = text.replace(honest[0], f'"{number}": {lower}')
    FACTS.write_text(sealed(tampered), encoding="utf-8")

    run = run_suite(TWO_RECOMPILES, library=WORSE)

    run.result.assert_outcomes(failed=1)
    assert run.status(f"baseline.{number}") == "failed"
    pattern = rf"^  {label} +observed {lower + 1} +baseline {lower} "
    assert re.search(pattern, run.text, re.MULTILINE)
    FACTS.write_text(text, encoding="utf-8")
    run_suite(TWO_RECOMPILES, library=WORSE).result.assert_outcomes(passed=1)


def test_an_improvement_passes_and_is_offered(run_suite: RunSuite) -> None:
    recorded(run_suite, library=WORSE)

    run = run_suite(SUITE, library=GOOD)

    run.result.assert_outcomes(passed=1)
    assert run.findings("baseline.graph_breaks")[0]["status"] == "passed"
    run.result.stdout.fnmatch_lines(
        [
            f"better than the baseline: 1 check; record with {UPDATE}=improved",
            "  tighten: graph breaks 1 -> 0, break events 1 -> 0, graphs 2 -> 1, run pytest *",
        ]
    )


@pytest.mark.parametrize("mode", ("", "=improved"))
def test_an_improvement_that_was_recorded_is_not_offered(run_suite: RunSuite, mode: str) -> None:
    recorded(run_suite, library=WORSE)

    run = run_suite(SUITE, f"{UPDATE}{mode}", library=GOOD)

    run.result.assert_outcomes(passed=1)
    assert "0 added, 1 changed" in run.text
    assert "better than the baseline" not in run.text
    assert "tighten:" not in run.text


def test_an_improvement_that_another_mode_leaves_is_offered(run_suite: RunSuite) -> None:
    recorded(run_suite, library=WORSE)

    run = run_suite(SUITE, f"{UPDATE}=new", library=GOOD)

    run.result.stdout.fnmatch_lines(["better than the baseline: 1 check; *", "  tighten: graph *"])


def test_an_improvement_fails_where_that_is_wanted(run_suite: RunSuite) -> None:
    recorded(run_suite, library=WORSE)

    run = run_suite(SUITE, "--compileguard-improvements=fail", library=GOOD)

    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(
        [
            "  graph breaks   observed 0    baseline 1    tighten: 1 -> 0",
            f"      better than the baseline, which is to be tightened: pytest * {UPDATE}=improved",
        ]
    )
    run_suite(SUITE, f"{UPDATE}=improved", library=GOOD).result.assert_outcomes(passed=1)
    again = run_suite(SUITE, "--compileguard-improvements=fail", library=GOOD)
    again.result.assert_outcomes(passed=1)


def test_a_break_that_comes_where_another_goes_is_named(run_suite: RunSuite) -> None:
    recorded(run_suite, library=WORSE)

    other = WORSE.replace("target(x):", "target(x):\n    return inner(x)\n\ndef inner(x):")
    run = run_suite(SUITE, library=other)

    run.result.stdout.fnmatch_lines(["*new: library.py:* in inner    print*"])


TIMED = """
from library import target
from torch import ones

from pytest_compileguard import compile_check


@compile_check(backend="eager", min_speedup=0.0001, max_time_s=0.3)
def test_it(compileguard):
    compileguard(target)(ones(3))
"""


def test_a_speedup_that_was_tampered_with_fails_beyond_the_noise_threshold(
    run_suite: RunSuite, pytester: pytest.Pytester
) -> None:
    recorded(run_suite, TIMED, timing=True)
    (file,) = Path("__compileguard__/timings").glob("*.json")
    text = file.read_text(encoding="utf-8")
    tampered = re.sub(r'"speedup(_low|_high)?": [\d.e-]+', r'"speedup\1": 100.0', text)
    file.write_text(sealed(tampered), encoding="utf-8")

    run = run_suite(TIMED, timing=True, library=GOOD)
    run.result.assert_outcomes(failed=1)
    assert run.status("baseline.speedup") == "failed"
    run.result.stdout.fnmatch_lines(
        ["  speedup *observed *x *baseline 100.00x*", "*beyond the noise threshold of 30 %"]
    )

    run = run_suite(TIMED, "--compileguard-noise-threshold=0.9999", timing=True, library=GOOD)
    assert run.status("baseline.speedup") == "passed"
    pytester.makeini("[pytest]\ncompileguard_noise_threshold = 0.9999\n")
    run = run_suite(TIMED, timing=True, library=GOOD)
    assert run.status("baseline.speedup") == "passed"


UNFIT = """
import pytest
from library import target
from torch import ones

from pytest_compileguard import compile_check

pytestmark = compile_check(backend="eager")


def test_good(compileguard):
    compileguard(target)(ones(3))


@compile_check(max_graph_breaks=0)
def test_over_its_limit(compileguard):
    def breaks(x):
        y = x + 1
        print()
        return y + 1

    compileguard(breaks)(ones(3))


def test_asserts(compileguard):
    compileguard(target)(ones(3))
    assert False


@pytest.mark.xfail
def test_xfails(compileguard):
    compileguard(target)(ones(3))
    assert False


def test_skips(compileguard):
    compileguard(target)(ones(3))
    pytest.skip()


@pytest.fixture
def failing_teardown():
    yield
    raise LookupError


def test_fails_in_teardown(failing_teardown, compileguard):
    compileguard(target)(ones(3))


def test_wrong(compileguard):
    def off_by_one(graph, inputs):
        return lambda *args: tuple(out + 1 for out in graph(*args))

    compileguard(target, backend=off_by_one)(ones(3))


def test_one_of_two_is_wrong(compileguard):
    compileguard(target)(ones(3))
    compileguard(lambda x: x)(ones(3))
"""
SUB_TESTS = """

def test_sub_test_fails(compileguard, subtests):
    with subtests.test():
        assert False
    compileguard(target)(ones(3))
"""


def test_only_a_test_that_passes_as_a_whole_is_recorded(run_suite: RunSuite) -> None:
    suite = UNFIT + (SUB_TESTS if pytest.version_tuple >= (9,) else "")

    run = run_suite(suite, UPDATE, library=GOOD)

    assert run.result.ret == pytest.ExitCode.TESTS_FAILED
    assert list(stored()["entries"]) == ["test_good::target"]
    assert run.text.count("  + ") == 1


def test_a_limit_that_is_not_kept_cannot_be_accepted(run_suite: RunSuite) -> None:
    limited = SUITE.replace('backend="eager"', 'backend="eager", max_graph_breaks=0')
    recorded(run_suite, limited)
    before = FACTS.read_bytes()

    run = run_suite(limited, UPDATE, library=WORSE)

    run.result.assert_outcomes(failed=1)
    assert FACTS.read_bytes() == before
    assert "record it" not in run.text
    finding = run.findings("baseline")[0]
    assert finding["message"] == "not recorded: only a check that passes in full is"


FLAKY = """
from pathlib import Path

from library import target
from torch import ones


def test_flaky(compileguard):
    first = not Path("ran").exists()
    Path("ran").touch()
    guarded = compileguard(target, backend="eager")
    guarded(ones(3))
    if first:
        guarded(ones(5))
        assert False


def test_never_passes(compileguard):
    compileguard(target, backend="eager")(ones(3))
    assert False
"""


def test_of_a_rerun_only_the_attempt_that_passed_is_recorded(run_suite: RunSuite) -> None:
    pytest.importorskip("pytest_rerunfailures")

    run_suite(FLAKY, UPDATE, "--reruns=1", library=GOOD)

    ((key, columns),) = stored()["entries"].items()
    (entry,) = columns.values()
    assert key == "test_flaky::target"
    assert (entry["calls"], entry["graphs"]) == (1, 1)


STOPPED = """
import pytest
from library import target
from torch import ones


def test_first(compileguard):
    compileguard(target, backend="eager")(ones(3))


def test_second(compileguard):
    compileguard(target, backend="eager")(ones(3))
    {stop}


def test_third(compileguard):
    compileguard(target, backend="eager")(ones(3))
"""


def test_stopping_at_a_failure_is_no_interruption(run_suite: RunSuite) -> None:
    run = run_suite(STOPPED.format(stop="assert False"), UPDATE, "-x", library=GOOD)

    assert run.result.ret == pytest.ExitCode.TESTS_FAILED
    assert list(stored()["entries"]) == ["test_first::target"]


@pytest.mark.parametrize(
    ("stop", "code"),
    (
        ("raise KeyboardInterrupt", pytest.ExitCode.INTERRUPTED),
        ("pytest.exit('enough')", pytest.ExitCode.INTERRUPTED),
        ("pytest.exit('enough', returncode=0)", pytest.ExitCode.OK),
        ("compileguard(interrupting, backend='eager')(1)", pytest.ExitCode.INTERRUPTED),
    ),
)
def test_an_interrupted_run_records_nothing(
    pytester: pytest.Pytester, compiler_loaded: None, stop: str, code: int
) -> None:
    del compiler_loaded
    helper = "\n\ndef interrupting(x):\n    raise KeyboardInterrupt\n"
    pytester.makepyfile(test_suite=STOPPED.format(stop=stop) + helper, library=GOOD)
    pytester.syspathinsert()

    result = pytester.runpytest_inprocess(
        *(UPDATE, "--compileguard-json=out.json", "-p", "no:cacheprovider"),
        no_reraise_ctrlc=True,
    )

    assert result.ret == (code or pytest.ExitCode.USAGE_ERROR)
    assert not FACTS.exists()
    result.stdout.fnmatch_lines(
        ["ERROR: compileguard: the run was interrupted: no baseline was changed"]
    )
    assert Path("out.json").exists()


@pytest.mark.parametrize("arguments", ((), (UPDATE,)), ids=("compare", "update"))
@pytest.mark.parametrize(
    "damage",
    (
        b"",
        b"{",
        b"<<<<<<< HEAD\n",
        b'{"format": 999}',
        b"\xff\xfe",
    ),
)
def test_a_damaged_file_is_refused_in_one_line_and_left_alone(
    run_suite: RunSuite, damage: bytes, arguments: tuple[str, ...]
) -> None:
    FACTS.parent.mkdir()
    FACTS.write_bytes(damage)

    run = run_suite(SUITE + SUITE.replace("test_it", "test_too"), *arguments, library=GOOD)

    (line,) = [text for text in run.text.splitlines() if text.startswith("ERROR: ")]
    assert str(FACTS) in line
    remedy = "restore it from version control, or delete it and record again"
    assert ("with `compileguard merge`" if b"<<<" in damage else remedy) in line
    assert "Traceback" not in run.text
    assert run.result.ret == pytest.ExitCode.USAGE_ERROR
    assert FACTS.read_bytes() == damage


def test_a_damaged_file_of_another_module_hurts_nobody(run_suite: RunSuite) -> None:
    FACTS.parent.mkdir()
    FACTS.with_name("test_other.json").write_bytes(b"{")

    run_suite(SUITE, library=GOOD).result.assert_outcomes(passed=1)


def test_a_folder_that_cannot_be_written_is_told(run_suite: RunSuite) -> None:
    FACTS.parent.write_text("a file where the folder should be", encoding="utf-8")

    run = run_suite(SUITE, UPDATE, library=GOOD)

    assert run.result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [text for text in run.text.splitlines() if text.startswith("ERROR: ")]
    assert "__compileguard__" in line
    assert "Traceback" not in run.text


def test_a_worker_of_xdist_compares_as_well(run_suite: RunSuite, pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    recorded(run_suite)
    pytester.makepyfile(library=WORSE)

    result = pytester.runpytest_subprocess("-n1", "-p", "no:cacheprovider")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["  graph breaks   observed 1    baseline 0    recorded with *"])
    assert command_told(str(result.stdout)) == ["pytest", "test_suite.py::test_it", UPDATE]


def test_other_entries_of_a_file_stay(run_suite: RunSuite) -> None:
    both = SUITE + SUITE.replace("test_it", "test_too")
    recorded(run_suite, both)

    run_suite(both, UPDATE, "-k", "too", library=WORSE).result.assert_outcomes(passed=1)

    run = run_suite(both, library=WORSE)
    run.result.assert_outcomes(passed=1, failed=1)


def test_without_a_baseline_nothing_fails_and_it_is_said(run_suite: RunSuite) -> None:
    run = run_suite(SUITE, library=GOOD)

    run.result.assert_outcomes(passed=1)
    assert run.status("baseline") == "not_checked"
    run.result.stdout.fnmatch_lines(
        [f"not checked: baseline in 1 check: none for *; record with {UPDATE}"]
    )
    assert not FACTS.parent.exists()


def test_another_number_of_calls_is_not_compared(run_suite: RunSuite) -> None:
    recorded(run_suite)
    twice = SUITE.replace("compileguard(target)(ones(3))", "g = compileguard(target)") + (
        "    g(ones(3))\n    g(ones(3))\n"
    )

    run = run_suite(twice, library=GOOD)

    assert run.findings("baseline")[0]["message"].startswith(
        "recorded with 1 call, this run made 2"
    )


def test_a_file_whose_module_is_gone_is_told(run_suite: RunSuite) -> None:
    run_suite(SUITE, "--compileguard-update-baseline", library=GOOD)
    FACTS.with_name("test_old.json").write_bytes(FACTS.read_bytes())

    run = run_suite(SUITE, library=GOOD)

    (line,) = [text for text in run.text.splitlines() if "test_old.json" in text]
    assert "its test module is gone; if that was renamed, rename the file too" in line
    run.result.assert_outcomes(passed=1)
