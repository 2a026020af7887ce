"""What other tools get wrong about baselines, each with the test that shows it is not so here.

The one about xdist stands in ``tests/cli/test_fleet.py``.

| tool | what it does | test |
|---|---|---|
| pytest-torch | parameters share one key | test_each_parameter_is_apart |
| pytest-torch | xdist workers lose entries | test_a_fleet_ends_with_the_right_files |
| pytest-torch | no baseline: the test is skipped | test_a_first_run_checks_and_says_so |
| pytest-torch | stale entries are silent | test_a_stale_entry_is_named |
| pytest-torch | the torch of an entry is stored and never used | test_an_older_torch_is_said |
| pytest-torch | absolute times gate, and move by half | test_absolute_times_gate_nothing |
| pytest-memray | a run that fails moves the baseline | test_a_failing_run_moves_nothing |
| pytest-benchmark | no baseline: a usage error | test_the_first_run_is_no_usage_error |
| pytest-benchmark | a test without an entry passes silently | test_a_first_run_checks_and_says_so |
| pytest-benchmark | an entry without a test is not mentioned | test_a_stale_entry_is_named |
| pytest-benchmark | another machine is gated all the same | test_another_machine_gates_nothing |
| pytest-benchmark | 4 kB of CPU flags in a warning | test_another_machine_is_one_line |
| pytest-benchmark | tests stay green, JUnit says no failure | test_a_regression_fails_its_test |
| pytest-benchmark | xdist disables it without a word | test_a_fleet_ends_with_the_right_files |
| inline-snapshot | disabled with xdist | test_a_fleet_ends_with_the_right_files |
| syrupy | unused entries end a green run with 1 | test_a_stale_entry_is_named |
| pytest-regressions | no entry: the file is made, the run fails | test_comparing_never_writes |
| asv | compare exits 0 with a thing twice as slow | test_a_diff_of_a_loss_exits_1 |
| pytest-codspeed | no local comparison, exit code always 0 | test_a_regression_fails_its_test |
| dynamo-diff | compare exits 0 whatever differs | test_a_diff_of_a_loss_exits_1 |
| dynamo-diff | refuses every torch but one | test_an_older_torch_is_said |
| pytest-perf | a traceback without git | test_a_missing_git_is_told_in_one_line |
| pytest-perfguard | a separate command decides | test_a_regression_fails_its_test |
| PyTorch's scripts | recompiles are not tracked | test_more_recompiles_than_stored_fail |
| PyTorch's scripts | an improvement fails, like it or not | test_an_improvement_is_offered |
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_compileguard.cli import main
from tests.conftest import RunSuite
from tests.stored import sealed

UPDATE = "--compileguard-update-baseline"
FACTS = Path("__compileguard__/test_suite.json")
LIBRARY = """
import torch

def target(x):
    return torch.relu(x * 2 + 1)
"""
WORSE = LIBRARY.replace("    return", "    print('debugging')\n    return")
SUITE = """
import pytest
from library import target
from torch import ones

@pytest.mark.parametrize("n", range({count}))
def test_it(compileguard, n):
    guarded = compileguard(target, backend="eager", dynamic=False)
    for size in {sizes}:
        guarded(ones(size))
"""
ONE = SUITE.format(count=1, sizes=(3,))


@pytest.fixture(autouse=True)
def no_stale_bytecode(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The library changes faster than the clock by which Python knows its bytecode."""
    with monkeypatch.context() as patch:
        patch.setattr("sys.dont_write_bytecode", True)
        yield


def document(path: Path = FACTS) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def edit(path: Path, old: str, new: str) -> None:
    """Change a text, with seals that don't tell."""
    text = path.read_text(encoding="utf-8")
    assert re.search(old, text)
    path.write_text(sealed(re.sub(old, new, text)), encoding="utf-8")


def test_the_table_names_tests_that_exist() -> None:
    named = set(re.findall(r"\| (test_\w+) \|$", __doc__ or "", re.MULTILINE))
    fleet = Path(__file__).parents[1].joinpath("cli", "test_fleet.py").read_text(encoding="utf-8")
    assert len(named) > 10
    assert named <= {*globals(), *re.findall(r"^def (test_\w+)", fleet, re.MULTILINE)}


def test_each_parameter_is_apart(run_suite: RunSuite) -> None:
    run_suite(SUITE.format(count=8, sizes=(3,)), UPDATE, library=LIBRARY)
    assert len(document()["entries"]) == 8


def test_a_first_run_checks_and_says_so(run_suite: RunSuite) -> None:
    run = run_suite(ONE, library=LIBRARY)
    run.result.assert_outcomes(passed=1, skipped=0)
    run.result.stdout.fnmatch_lines(["not checked: baseline in 1 check: none for *"])


def test_the_first_run_is_no_usage_error(run_suite: RunSuite) -> None:
    for arguments in ((), (UPDATE,), ("--compileguard-improvements=fail",)):
        assert run_suite(ONE, *arguments, library=LIBRARY).result.ret == pytest.ExitCode.OK


def test_comparing_never_writes(run_suite: RunSuite) -> None:
    run_suite(ONE, library=LIBRARY)
    assert not FACTS.parent.exists()


def test_a_stale_entry_is_named(run_suite: RunSuite) -> None:
    run_suite(SUITE.format(count=2, sizes=(3,)), UPDATE, library=LIBRARY)
    run = run_suite(ONE, library=LIBRARY)
    assert run.result.ret == pytest.ExitCode.OK
    run.result.stdout.fnmatch_lines(
        ["test_suite.py: 1 stored entry without a test or check: test_it?1?*"]
    )


def test_an_older_torch_is_said(run_suite: RunSuite) -> None:
    run_suite(ONE, UPDATE, library=LIBRARY)
    edit(FACTS, r"cpu torch [\d.]+", "cpu torch 2.8")

    run = run_suite(ONE, library=LIBRARY)
    (finding,) = run.findings("baseline")
    assert finding["status"] == "passed"
    assert finding["message"].startswith("kept, recorded with torch 2.8, this is ")
    run_suite(ONE, library=WORSE).result.assert_outcomes(failed=1)


TIMED = """
from library import target
from torch import ones

def test_it(compileguard):
    compileguard(target, backend="eager", min_speedup=0.0001, max_time_s=0.2)(ones(3))
"""


@pytest.fixture
def timings(run_suite: RunSuite) -> Path:
    run_suite(TIMED, UPDATE, library=LIBRARY, timing=True)
    (path,) = Path("__compileguard__/timings").glob("*.json")
    return path


def test_absolute_times_gate_nothing(run_suite: RunSuite, timings: Path) -> None:
    edit(timings, r'"(eager|compiled)_ms": [\d.e-]+', r'"\1_ms": 1e-9')
    run = run_suite(TIMED, "--compileguard-noise-threshold=0.99", library=LIBRARY, timing=True)
    run.result.assert_outcomes(passed=1)


def test_another_machine_gates_nothing(run_suite: RunSuite, timings: Path) -> None:
    edit(timings, r'"speedup(_low|_high)?": [\d.e-]+', r'"speedup\1": 1000.0')
    edit(timings, r'"device": "[^"]*"', '"device": "Another CPU"')
    run = run_suite(TIMED, library=LIBRARY, timing=True)
    run.result.assert_outcomes(passed=1)
    assert run.status("baseline.speedup") == "not_checked"


def test_another_machine_is_one_line(run_suite: RunSuite, timings: Path) -> None:
    timings.rename(timings.with_name("another-machine.json"))
    run = run_suite(TIMED, library=LIBRARY, timing=True)
    (line,) = [t for t in run.text.splitlines() if t.startswith("not checked: baseline speedup")]
    assert len(line) < 240


def test_a_regression_fails_its_test(run_suite: RunSuite) -> None:
    run_suite(ONE, UPDATE, library=LIBRARY)
    run = run_suite(ONE, "--junitxml=junit.xml", library=WORSE)
    assert run.result.ret == pytest.ExitCode.TESTS_FAILED
    (suite,) = ET.parse("junit.xml").getroot()  # noqa: S314  # we wrote it
    assert suite.get("failures") == "1"


def test_a_failing_run_moves_nothing(run_suite: RunSuite) -> None:
    run_suite(ONE, UPDATE, library=LIBRARY)
    before = FACTS.read_bytes()
    failing = ONE + "    assert False\n"
    run_suite(failing, UPDATE, library=WORSE).result.assert_outcomes(failed=1)
    assert FACTS.read_bytes() == before


def test_more_recompiles_than_stored_fail(run_suite: RunSuite) -> None:
    two = SUITE.format(count=1, sizes=(3, 4, 5))
    run_suite(two, UPDATE, library=LIBRARY)
    edit(FACTS, r'"recompiles": 2', '"recompiles": 1')
    run = run_suite(two, library=LIBRARY)
    assert run.status("baseline.recompiles") == "failed"


def test_an_improvement_is_offered(run_suite: RunSuite) -> None:
    run_suite(ONE, UPDATE, library=WORSE)
    run = run_suite(ONE, library=LIBRARY)
    run.result.assert_outcomes(passed=1)
    run.result.stdout.fnmatch_lines(["  tighten: graph breaks 1 -> 0, * run pytest *=improved"])


def test_a_diff_of_a_loss_exits_1(run_suite: RunSuite, capsys: pytest.CaptureFixture[str]) -> None:
    run_suite(ONE, UPDATE, library=LIBRARY)
    before = Path("before.json")
    before.write_bytes(FACTS.read_bytes())
    run_suite(ONE, UPDATE, library=WORSE)
    capsys.readouterr()
    FACTS.rename("after.json")
    assert main(["diff", "before.json", "after.json"]) == 1
    assert main(["diff", "before.json", "before.json"]) == 0


def test_a_missing_git_is_told_in_one_line(
    run_suite: RunSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    run = run_suite(ONE, "--compileguard-baseline-ref=main", library=LIBRARY)
    (line,) = [t for t in run.text.splitlines() if t.startswith("ERROR: ")]
    assert "git is not installed" in line
    assert "Traceback" not in run.text
