"""Whose baseline a check is held against: never that of another test, file or revision."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import git as git_in
from tests.conftest import RunSuite

UPDATE = "--compileguard-update-baseline"
REF = "--compileguard-baseline-ref"
OPTIONS = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--compileguard-no-timing")
LIBRARY = """
import torch

def good(x):
    return torch.relu(x * 2 + 1)

def renamed(x):
    return torch.relu(x * 2 + 1)

def breaking(x):
    y = x.sin()
    print("debugging")
    return y.cos()
"""

WORSE = LIBRARY.replace("def good(x):", "def good(x):\n    print('debugging')")


def suite_of(target: str, name: str = "test_it") -> str:
    return (
        f"import library\nfrom torch import ones\ndef {name}(compileguard):\n"
        f"    compileguard(library.{target}, backend='eager')(ones(3))\n"
    )


@pytest.fixture(autouse=True)
def no_stale_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)


def keys(file: str) -> list[str]:
    return list(json.loads(Path(file).read_bytes())["entries"])


@pytest.mark.usefixtures("compiler_loaded")
def test_files_outside_the_root_folder_have_baselines_of_their_own(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(library=LIBRARY)
    pytester.syspathinsert()
    for folder, target in (("a", "good"), ("b", "breaking"), ("ci", "")):
        pytester.mkdir(folder)
        if target:
            Path(folder, "test_x.py").write_text(suite_of(target), encoding="utf-8")
    Path("ci/pytest.ini").write_text("[pytest]\naddopts=--import-mode=importlib\n")
    outside = (*OPTIONS, "-c", "ci/pytest.ini")

    pytester.runpytest_inprocess(*outside, "a", UPDATE).assert_outcomes(passed=1)
    assert keys("a/__compileguard__/test_x.json") == ["test_it::good"]
    assert not Path("ci/__compileguard__").exists()
    run = pytester.runpytest_inprocess(*outside, "b")
    run.assert_outcomes(passed=1)
    run.stdout.no_fnmatch_line("*test_it::good*")

    both = pytester.runpytest_inprocess(*outside, "a", "b")
    assert both.ret == pytest.ExitCode.USAGE_ERROR
    both.stderr.fnmatch_lines(["ERROR: test_x.py::test_it: pytest gives this name to both *"])
    pytester.runpytest_inprocess(*outside, "--rootdir=.", "a", "b").assert_outcomes(passed=2)


@pytest.mark.usefixtures("compiler_loaded")
def test_what_a_conftest_deselects_before_all_others_is_not_gone(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(library=LIBRARY)
    pytester.syspathinsert()
    folder = pytester.mkdir("sub")
    tests = suite_of("good") + suite_of("good", "test_other")
    folder.joinpath("test_x.py").write_text(tests, encoding="utf-8")
    pytester.runpytest_inprocess(*OPTIONS, UPDATE).assert_outcomes(passed=2)
    folder.joinpath("conftest.py").write_text(
        "import pytest\n"
        "@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
        "def pytest_collection_modifyitems(items):\n"
        "    items[:] = [i for i in items if 'other' not in i.name]\n"
        "    return (yield)\n",
        encoding="utf-8",
    )

    pytester.runpytest_inprocess(*OPTIONS, UPDATE).assert_outcomes(passed=1)

    assert len(keys("sub/__compileguard__/test_x.json")) == 2


def test_a_check_that_its_test_no_longer_makes_is_told_and_dropped(run_suite: RunSuite) -> None:
    file = "__compileguard__/test_suite.json"
    run_suite(suite_of("good"), UPDATE, library=LIBRARY)

    hinted = run_suite(suite_of("renamed"), library=LIBRARY)
    hinted.result.stdout.fnmatch_lines(
        ["*test_it::renamed: an entry of an old name with equal facts: test_it::good;*"]
    )
    hinted.result.stdout.fnmatch_lines(["*1 stored entry without a test or check: test_it::good;*"])
    failing = suite_of("renamed") + "    assert False\n"
    run_suite(failing, UPDATE, library=LIBRARY)
    assert keys(file) == ["test_it::good"]  # a test that failed may not have got to it

    run_suite(suite_of("renamed"), UPDATE, library=LIBRARY)
    assert keys(file) == ["test_it::renamed"]


def commit_baseline(run_suite: RunSuite) -> None:
    git_in(Path(), "init", "-q", "-b", "main")
    run_suite(suite_of("good"), UPDATE, library=LIBRARY)
    git_in(Path(), "add", "__compileguard__")
    git_in(Path(), "commit", "-qm", "record")


def test_a_renamed_file_is_told_the_old_one_of_the_revision(run_suite: RunSuite) -> None:
    commit_baseline(run_suite)
    old = Path("__compileguard__/test_suite.json")
    git_in(Path(), "mv", str(old), str(old.with_name("test_before.json")))
    git_in(Path(), "commit", "-qm", "as it was before")
    git_in(Path(), "rm", "-q", "-r", "__compileguard__")

    run = run_suite(suite_of("good"), f"{REF}=main", library=LIBRARY)

    told = " ".join(run.text.split())
    assert "test_suite.py: has no baseline at main, but test_before.json holds equal" in told
    assert "rename test_before.json to test_suite.json, and have that merged into main" in told
    assert "none for cpu" in told
    assert f"at main; record with {UPDATE}, and have it merged there" in told


def test_the_advice_can_be_followed_where_the_ini_file_names_the_revision(
    run_suite: RunSuite, pytester: pytest.Pytester
) -> None:
    commit_baseline(run_suite)
    key = "compileguard_baseline_ref"
    pytester.makeini(f"[pytest]\n{key} = main\n")

    worse = run_suite(suite_of("good"), library=WORSE)
    worse.result.assert_outcomes(failed=1)
    assert f"-o {key}= {UPDATE}" in " ".join(worse.text.split())
    refused = run_suite(suite_of("good"), UPDATE, library=LIBRARY)
    assert f"ini key {key}: 'main': another revision can't be recorded to" in refused.text
    run_suite(suite_of("good"), UPDATE, "-o", f"{key}=", library=LIBRARY).result.assert_outcomes(
        passed=1
    )
    unknown = run_suite(suite_of("good"), "-o", f"{key}=gone", library=LIBRARY)
    assert f"ini key {key}: 'gone': git knows no such revision" in unknown.text


@pytest.mark.usefixtures("compiler_loaded")
def test_a_revision_is_looked_up_behind_a_link_too(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(library=LIBRARY)
    pytester.syspathinsert()
    real = pytester.mkdir("real")
    real.joinpath("test_x.py").write_text(suite_of("good"), encoding="utf-8")
    Path("link").symlink_to(real, target_is_directory=True)
    git_in(Path(), "init", "-q", "-b", "main")
    pytester.runpytest_inprocess(*OPTIONS, "real", UPDATE).assert_outcomes(passed=1)
    git_in(Path(), "add", "--all")
    git_in(Path(), "commit", "-qm", "record")

    strict = (f"{REF}=HEAD", "--compileguard-strict", "link")
    pytester.runpytest_inprocess(*OPTIONS, *strict).assert_outcomes(passed=1)
