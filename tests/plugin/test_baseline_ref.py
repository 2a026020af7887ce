"""Compared with the baseline of another revision, a branch can't relax its own gate."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import git as git_in
from tests.conftest import RunSuite

UPDATE = "--compileguard-update-baseline"
REF = "--compileguard-baseline-ref"
GOOD = "import torch\n\ndef target(x):\n    return torch.relu(x * 2 + 1)\n"
WORSE = "def target(x):\n    y = x.sin()\n    print('debugging')\n    return y.cos()\n"
SUITE = """
from library import target
from torch import ones

def test_it(compileguard):
    compileguard(target, backend="eager")(ones(3))
"""


@pytest.fixture(autouse=True)
def repository(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    del pytester  # it goes to a folder of its own
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    git("init", "-q", "-b", "main")


def git(*arguments: str) -> str:
    return git_in(Path(), *arguments)


def test_a_relaxed_baseline_does_not_count(run_suite: RunSuite) -> None:
    run_suite(SUITE, UPDATE, library=GOOD).result.assert_outcomes(passed=1)
    git("add", "__compileguard__")
    git("commit", "-qm", "record")
    git("checkout", "-qb", "topic")
    run_suite(SUITE, UPDATE, library=WORSE).result.assert_outcomes(passed=1)
    run_suite(SUITE, library=WORSE).result.assert_outcomes(passed=1)

    run = run_suite(SUITE, f"{REF}=main", library=WORSE)

    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(
        [
            "  graph breaks   observed 1    baseline 0    recorded with *, baseline of main",
            "      the baseline of main counts here, whatever this branch stores; *",
        ]
    )
    run_suite(SUITE, f"{REF}=topic", library=GOOD)  # nothing is stored there: not compared
    assert run_suite(SUITE, f"{REF}=main", library=GOOD).status("baseline") == "passed"


def test_what_the_revision_lacks_is_not_checked(run_suite: RunSuite) -> None:
    git("commit", "-q", "--allow-empty", "-m", "empty")
    run_suite(SUITE, UPDATE, library=GOOD)

    run = run_suite(SUITE, f"{REF}=HEAD", library=GOOD)

    assert run.status("baseline") == "not_checked"


def test_a_file_that_is_damaged_there_is_told_with_its_revision(run_suite: RunSuite) -> None:
    folder = Path("__compileguard__")
    folder.mkdir()
    (folder / "test_suite.json").write_text("{", encoding="utf-8")
    git("add", "__compileguard__")
    git("commit", "-qm", "damage")
    (folder / "test_suite.json").unlink()

    run = run_suite(SUITE, f"{REF}=HEAD", library=GOOD)

    assert run.result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [text for text in run.text.splitlines() if text.startswith("ERROR: ")]
    assert "test_suite.json at HEAD (" in line
    assert "truncated" in line


@pytest.mark.parametrize("name", ("gone", "--output=x", "HEAD:file", ""))
def test_an_unknown_revision_is_refused_in_one_line(run_suite: RunSuite, name: str) -> None:
    run = run_suite(SUITE, f"{REF}={name}", library=GOOD)

    assert run.result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [text for text in run.text.splitlines() if text.startswith("ERROR: ")]
    assert line.startswith(f"ERROR: {REF}: {name!r}: ")
    assert not Path("x").exists()


def test_another_revision_is_not_recorded_to(run_suite: RunSuite) -> None:
    run = run_suite(SUITE, UPDATE, f"{REF}=main", library=GOOD)

    assert run.result.ret == pytest.ExitCode.USAGE_ERROR
    assert "another revision can't be recorded to" in run.text


def test_the_entry_says_which_commit_recorded_it(run_suite: RunSuite) -> None:
    git("commit", "-q", "--allow-empty", "-m", "empty")
    run_suite(SUITE, UPDATE, library=GOOD)

    commit = git("rev-parse", "--short=12", "HEAD").strip()
    assert f'"commit": "{commit}"' in Path("__compileguard__/test_suite.json").read_text()


def test_without_a_repository_it_is_refused(
    run_suite: RunSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    run = run_suite(SUITE, f"{REF}=main", library=GOOD)
    assert run.result.ret == pytest.ExitCode.USAGE_ERROR
    assert "git is not installed" in run.text
