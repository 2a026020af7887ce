"""Update modes as a user meets them: what each records, what it drops, and where it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run, RunSuite
from tests.stored import sealed

UPDATE = "--compileguard-update-baseline"
FACTS = Path("__compileguard__/test_suite.json")
LIBRARY = """
import torch

def good(x):
    return torch.relu(x * 2 + 1)

def breaking(x):
    y = x.sin()
    print("debugging")
    return y.cos()

def twice_breaking(x):
    y = breaking(x)
    print("more")
    return y + 1
"""


@pytest.fixture(autouse=True)
def no_stale_bytecode(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The suites change faster than the clock by which Python knows its bytecode."""
    with monkeypatch.context() as patch:
        patch.setattr("sys.dont_write_bytecode", True)
        yield


def suite(**targets: str) -> str:
    """Write one test for each name, which guards the target of that name."""
    lines = ["import library", "from torch import ones", "import pytest"]
    for name, target in targets.items():
        lines += [
            f"def test_{name}(compileguard):",
            f"    compileguard(library.{target}, backend='eager')(ones(3))",
        ]
    return "\n".join(lines) + "\n"


def stored() -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(FACTS.read_bytes())["entries"]
    return {key.partition("::")[0].removeprefix("test_"): entry for key, entry in entries.items()}


def breaks() -> dict[str, int]:
    found = {}
    for name, columns in stored().items():
        (entry,) = columns.values()
        found[name] = entry["graph_breaks"]
    return found


def recorded(run_suite: RunSuite, tests: str, *arguments: str) -> Run:
    run = run_suite(tests, *(arguments or (UPDATE,)), library=LIBRARY)
    assert run.result.ret == pytest.ExitCode.OK, run.text
    return run


def totals(run: Run) -> str:
    (line,) = [t for t in run.text.splitlines() if t.startswith("compileguard baseline: ")]
    return line.removeprefix("compileguard baseline: ").partition(";")[0]


# --- the modes --------------------------------------------------------------------------------


def test_new_records_what_has_no_baseline_and_moves_nothing_else(run_suite: RunSuite) -> None:
    recorded(run_suite, suite(a="breaking", gone="good"))
    before = stored()

    run = recorded(run_suite, suite(a="breaking", b="good"), f"{UPDATE}=new")

    assert totals(run) == "1 added, 0 changed, 0 removed, 1 kept"
    assert {finding["message"].split(";")[0] for finding in run.findings("baseline")} >= {
        "none for cpu, torch 2.13: will be recorded".replace("2.13", torch_minor())
    }
    assert {name: entry for name, entry in stored().items() if name != "b"} == before


def torch_minor() -> str:
    import torch  # noqa: PLC0415  # the tests that need none stay fast

    return ".".join(torch.__version__.split(".")[:2])


def test_improved_records_what_became_better_and_adds_nothing(run_suite: RunSuite) -> None:
    worse = LIBRARY.replace("def good(x):", 'def good(x):\n    print("x")')
    tests = suite(a="good", b="breaking")
    assert run_suite(tests, UPDATE, library=worse).result.ret == pytest.ExitCode.OK
    assert breaks() == {"a": 1, "b": 1}

    run = recorded(run_suite, tests + suite(c="good"), f"{UPDATE}=improved")

    assert totals(run) == "0 added, 1 changed, 0 removed, 1 kept"
    assert breaks() == {"a": 0, "b": 1}
    assert run.result.ret == pytest.ExitCode.OK


def test_all_accepts_what_fails_only_against_the_old_baseline(run_suite: RunSuite) -> None:
    recorded(run_suite, suite(a="good"))
    worse = LIBRARY.replace("def good(x):", 'def good(x):\n    print("x")')
    assert run_suite(suite(a="good"), library=worse).result.ret == pytest.ExitCode.TESTS_FAILED
    for mode in ("new", "improved"):
        run = run_suite(suite(a="good"), f"{UPDATE}={mode}", library=worse)
        run.result.assert_outcomes(failed=1)
        assert breaks() == {"a": 0}

    run = run_suite(suite(a="good"), f"{UPDATE}=all", library=worse)

    assert totals(run) == "0 added, 1 changed, 0 removed, 0 kept"
    assert breaks() == {"a": 1}


@pytest.mark.parametrize("before", (True, False), ids=("path last", "path first"))
def test_the_bare_option_takes_no_path_for_its_value(
    run_suite: RunSuite, pytester: pytest.Pytester, *, before: bool
) -> None:
    arguments = [UPDATE, "test_suite.py"] if before else ["test_suite.py", UPDATE]
    pytester.makepyfile(test_other="def test_it(): assert False")

    recorded(run_suite, suite(a="good"), *arguments)

    assert breaks() == {"a": 0}


def test_an_unknown_mode_is_refused_with_the_known_ones(run_suite: RunSuite) -> None:
    run = run_suite(suite(a="good"), f"{UPDATE}=better", library=LIBRARY)

    assert run.result.ret == pytest.ExitCode.USAGE_ERROR
    assert "'better'" in run.text
    assert f"{UPDATE}=improved" in run.text
    assert not FACTS.exists()


# --- in CI ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "refused"), (("true", True), ("1", True), ("", False)))
def test_recording_in_ci_is_refused_unless_told(
    run_suite: RunSuite, monkeypatch: pytest.MonkeyPatch, value: str, *, refused: bool
) -> None:
    monkeypatch.setenv("CI", value)

    run = run_suite(suite(a="good"), UPDATE, library=LIBRARY)

    assert FACTS.exists() is not refused
    if refused:
        assert run.result.ret == pytest.ExitCode.USAGE_ERROR
        (line,) = [t for t in run.text.splitlines() if t.startswith("ERROR: ")]
        assert "the environment variable CI is set" in line
        assert "--compileguard-update-in-ci" in line
        recorded(run_suite, suite(a="good"), UPDATE, "--compileguard-update-in-ci")
        assert breaks() == {"a": 0}


def test_comparing_in_ci_needs_no_permission(
    run_suite: RunSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    run_suite(suite(a="good"), library=LIBRARY).result.assert_outcomes(passed=1)


# --- entries of tests that are gone -----------------------------------------------------------


def test_entries_of_tests_that_are_gone_are_dropped(run_suite: RunSuite) -> None:
    recorded(run_suite, suite(a="good", b="good"))

    run = recorded(run_suite, suite(a="good"))

    assert totals(run) == "0 added, 0 changed, 1 removed, 1 kept"
    assert list(stored()) == ["a"]
    run.result.stdout.fnmatch_lines(["  - test_suite.py::test_b::good: cpu torch *"])


PARTIAL: dict[str, tuple[str, ...]] = {
    "a keyword": ("-k", "a"),
    "a node id": ("test_suite.py::test_a",),
    "a mark": ("-m", "not slow"),
    "deselected": ("--deselect=test_suite.py::test_slow",),
}


@pytest.mark.parametrize("arguments", PARTIAL.values(), ids=PARTIAL)
def test_nothing_is_dropped_where_the_module_ran_in_part(
    run_suite: RunSuite, pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    pytester.makeini("[pytest]\nmarkers = slow\n")
    slow = "@pytest.mark.slow\ndef test_slow(): pass\n"
    recorded(run_suite, suite(a="good", b="good") + slow)

    run = recorded(run_suite, suite(a="good") + slow, UPDATE, *arguments)

    assert totals(run).startswith("0 added, 0 changed, 0 removed")
    assert list(stored()) == ["a", "b"]


def test_nothing_is_dropped_of_a_run_that_stopped(run_suite: RunSuite) -> None:
    recorded(run_suite, suite(a="good", b="good"))
    stops = suite(a="good") + "def test_fails(): assert False\ndef test_last(): pass\n"

    run = run_suite(stops, UPDATE, "-x", library=LIBRARY)

    assert "0 removed" in totals(run)
    assert list(stored()) == ["a", "b"]
    # Through to its end, though one failed, all is known.
    run = run_suite(stops, UPDATE, library=LIBRARY)
    assert "1 removed" in totals(run)


def test_nothing_is_dropped_of_a_module_that_was_not_collected(run_suite: RunSuite) -> None:
    recorded(run_suite, suite(a="good", b="good"))
    broken = suite(a="good") + "class TestMore:\n    assert no_such_name\n"
    run = run_suite(broken, UPDATE, "--continue-on-collection-errors", library=LIBRARY)
    assert run.result.ret != pytest.ExitCode.OK
    assert list(stored()) == ["a", "b"]

    skipped = "import pytest\npytest.skip('not here', allow_module_level=True)\n"
    run_suite(skipped, UPDATE, library=LIBRARY)
    assert list(stored()) == ["a", "b"]


def test_nothing_is_dropped_after_last_failed(
    run_suite: RunSuite, pytester: pytest.Pytester
) -> None:
    recorded(run_suite, suite(a="good", b="good"))
    tests = suite(a="good") + "def test_fails(): assert False\n"
    pytester.makepyfile(library=LIBRARY, test_suite=tests)
    assert pytester.runpytest_inprocess().ret == pytest.ExitCode.TESTS_FAILED

    pytester.runpytest_inprocess("--lf", UPDATE)

    assert list(stored()) == ["a", "b"]


def test_a_skipped_test_keeps_its_entry(run_suite: RunSuite) -> None:
    recorded(run_suite, suite(a="good", b="good"))
    skips = suite(a="good", b="good").replace("def test_b", "@pytest.mark.skip\ndef test_b")

    recorded(run_suite, skips)

    assert list(stored()) == ["a", "b"]


def test_what_another_kind_of_device_recorded_stays(run_suite: RunSuite) -> None:
    """A test that exists only where there is a GPU is not gone because a CPU lacks it."""
    recorded(run_suite, suite(a="good", b="good"))
    text = FACTS.read_text(encoding="utf-8")
    document = json.loads(text)
    (column,) = document["entries"]["test_b::good"]
    entry = document["entries"]["test_b::good"][column]
    document["entries"]["test_b::good"] = {
        column: entry,
        "cpu torch 99.0": entry,
        "cuda torch 2.9": entry,
    }
    FACTS.write_text(sealed(json.dumps(document)), encoding="utf-8")

    recorded(run_suite, suite(a="good"))

    assert list(stored()["b"]) == ["cpu torch 99.0", "cuda torch 2.9"]


# --- names that changed -----------------------------------------------------------------------


def test_a_renamed_test_is_told_the_entry_of_its_old_name(run_suite: RunSuite) -> None:
    recorded(run_suite, suite(a="good", old="breaking"))

    run = run_suite(suite(a="good", new="breaking"), library=LIBRARY)

    run.result.assert_outcomes(passed=2)
    run.result.stdout.fnmatch_lines(
        [
            (
                "test_suite.py::test_new::breaking: an entry of an old name with equal facts: "
                "test_old::breaking; if the test was renamed, record it with *"
            ),
            "test_suite.py: 1 stored entry without a test or check: test_old::breaking; *",
        ]
    )


def test_an_entry_with_other_facts_is_not_taken_for_an_old_name(run_suite: RunSuite) -> None:
    recorded(run_suite, suite(a="good", old="breaking"))

    run = run_suite(suite(a="good", new="twice_breaking"), library=LIBRARY)

    assert "an entry of an old name" not in run.text
    assert "1 stored entry without a test" in run.text


def test_a_test_that_was_not_selected_is_not_called_gone(run_suite: RunSuite) -> None:
    recorded(run_suite, suite(a="good", old="good"))

    run = run_suite(suite(new="good", old="good"), "-k", "new", library=LIBRARY)

    assert "an entry of an old name" not in run.text
    assert "without a test" not in run.text


def test_a_renamed_file_is_told_the_old_one(run_suite: RunSuite) -> None:
    recorded(run_suite, suite(a="good", b="breaking"))
    FACTS.rename(FACTS.with_name("test_before.json"))

    run = run_suite(suite(a="good", b="breaking"), library=LIBRARY)

    told = "test_suite.py: has no baseline, but test_before.json holds equal facts for 2 checks "
    run.result.stdout.fnmatch_lines(
        [f"{told}of it, and test_before.py is gone; *rename test_before.json to test_suite.json"]
    )


# --- strict -----------------------------------------------------------------------------------


def test_strict_fails_a_check_without_a_baseline_and_says_the_command(run_suite: RunSuite) -> None:
    run = run_suite(suite(a="good"), "--compileguard-strict", library=LIBRARY)

    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(
        [
            "test_a: baseline not checked (1 of 4 checks not checked, strict)",
            f"  baseline       not checked: none for cpu, torch *; record with {UPDATE}",
            f"      pytest test_suite.py::test_a * {UPDATE}",
        ]
    )
    recorded(run_suite, suite(a="good"))
    run_suite(suite(a="good"), "--compileguard-strict", library=LIBRARY).result.assert_outcomes(
        passed=1
    )


def test_changed_inputs_are_not_compared_and_strict_fails(run_suite: RunSuite) -> None:
    recorded(run_suite, suite(a="good"))
    other = suite(a="good").replace("ones(3)", "ones(4)")

    run = run_suite(other, library=LIBRARY)

    run.result.assert_outcomes(passed=1)
    (finding,) = run.findings("baseline")
    assert finding["status"] == "not_checked"
    assert finding["message"].startswith(
        "recorded with other inputs: float32[3], this run float32[4]"
    )
    run_suite(other, "--compileguard-strict", library=LIBRARY).result.assert_outcomes(failed=1)
