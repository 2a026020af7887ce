"""What a subcommand can't see, can't read or was not given is told: never taken as fine."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from pytest_compileguard.baseline.recording import record
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.cli.tree import read_tree
from tests.cli.conftest import H200, Command, git, record_in
from tests.stored import make_speed, make_verdict

FACTS = Path("tests/__compileguard__/test_x.json")
CHOSEN = Path("chosen")


def record_chosen(*tests: str) -> None:
    """Record in a folder of baselines that the user chose."""
    for test in tests:
        record(Store(Path(), CHOSEN), [make_verdict(test)])


def commit() -> None:
    git(Path(), "init", "-q", "-b", "main")
    git(Path(), "add", "--all")
    git(Path(), "commit", "-qm", "change")


@pytest.mark.parametrize("damage", (b"", b"\0\0", None))
@pytest.mark.parametrize("beside", (False, True))
def test_a_damaged_file_of_a_chosen_folder_is_found(
    command: Command, damage: bytes | None, *, beside: bool
) -> None:
    record_chosen("a/test_x.py::test_it", "b/test_y.py::test_it")
    if beside:
        record_in(Path())
    assert command("check").code == 0
    file = CHOSEN / "a/test_x.json"
    file.write_bytes(file.read_bytes()[:300] if damage is None else damage)
    commit()

    for tree in (".", "HEAD", *(() if beside else ("chosen",))):
        done = command("check", tree)
        assert (done.code, "a/test_x.json: " in done.out) == (2, True), (tree, done.out)
        assert command("show", tree).code == 2


def test_what_is_no_baseline_is_left_alone(command: Command) -> None:
    record_in(Path())
    Path("data").mkdir()
    Path("data/empty.json").touch()
    Path("data/other.json").write_text('{"a": 1}', encoding="utf-8")
    commit()
    assert command("check").code == command("check", "HEAD").code == 0


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
def test_a_folder_that_cannot_be_read_is_a_problem(command: Command) -> None:
    record_in(Path())
    record_in(Path(), "tests/closed/test_y.py::test_it")
    Path("tests/closed").chmod(0)
    try:
        done = command("check")
    finally:
        Path("tests/closed").chmod(0o700)
    assert done.code == 2
    assert "tests/closed: can't be read: Permission denied" in done.out


def test_a_single_file_of_a_revision_is_read(command: Command) -> None:
    record_in(Path())
    commit()
    assert list(read_tree(f"HEAD:{FACTS}").files) == ["test_x.json"]
    assert command("show", f"HEAD:{FACTS}").code == 0
    assert command("diff", f"HEAD:{FACTS}", str(FACTS)).code == 0


@pytest.mark.parametrize("arguments", (("show",), ("prune",), ("merge",), ("merge", "empty")))
def test_a_place_without_baselines_is_an_error(
    command: Command, arguments: tuple[str, ...]
) -> None:
    Path("empty").mkdir()
    done = command(*arguments)
    assert done.code == 2
    assert "holds no baselines" in done.err


@pytest.mark.parametrize("swapped", (False, True))
def test_a_side_without_baselines_is_no_side_to_compare_with(
    command: Command, *, swapped: bool
) -> None:
    record_in(Path())
    Path("typo").mkdir()
    sides = ("typo", ".") if swapped else (".", "typo")
    done = command("diff", "--regressions", *sides)
    assert done.code == 2
    assert "typo: holds no baselines" in done.err


def test_a_revision_without_baselines_is_the_first_night(command: Command) -> None:
    Path("src").mkdir()
    Path("src/a.py").touch()
    commit()
    record_in(Path())

    done = command("diff", "HEAD", ".")
    assert done.code == 1, done.err
    assert re.search(r"^HEAD \([0-9a-f]{12}\) holds no baselines yet", done.out, re.MULTILINE)
    assert "1 difference: 0 worse, 0 removed, 0 changed, 1 added, 0 better" in done.out
    assert command("diff", "HEAD:src", ".", "--format=json").data["empty"] == ["HEAD:src"]
    regressions = command("diff", "HEAD", ".", "--regressions")
    assert regressions.code == 0
    assert "holds no baselines yet" in regressions.out
    assert command("diff", ".", "HEAD").code == 1

    # What can't be meant so stays an error.
    for before, after, said in (
        ("HEAD:typo", ".", "HEAD:typo: holds no baselines"),
        ("HEAD", "HEAD", "HEAD: holds no baselines"),
        ("HEAD", "src", "src: holds no baselines"),
        ("origin/typo", ".", "'origin/typo': no such file or folder, nor a git revision"),
    ):
        done = command("diff", before, after)
        assert done.code == 2
        assert said in done.err


def test_no_regression_is_not_said_to_be_no_difference(command: Command) -> None:
    record_in(Path("a"), breaks=2)
    record_in(Path("b"), breaks=1)
    assert command("diff", "--regressions", "a", "b").out == "no regression\n"


@pytest.mark.parametrize("version", ("2.13.1", "2.13.0+cu12.8", "", "2", "v2.13"))
def test_prune_refuses_what_it_could_misread_as_a_version(command: Command, version: str) -> None:
    record_in(Path())
    before = FACTS.read_bytes()
    done = command("prune", f"--older-than={version}")
    assert done.code == 2
    assert f"--older-than: {version!r}: write a minor version" in done.err
    assert FACTS.read_bytes() == before


def test_prune_refuses_tests_that_are_nowhere(command: Command) -> None:
    record_chosen("tests/test_x.py::test_it")
    for tests in ("typo", ""):
        done = command("prune", str(CHOSEN), f"--tests={tests}")
        assert (done.code, "no such folder" in done.err) == (2, True)
    assert command("show", str(CHOSEN)).code == 0


def test_prune_knows_a_module_with_a_dot_in_its_name(command: Command) -> None:
    record_in(Path(), "tests/test_x.v2.py::test_it")
    assert command("prune", "--dry-run").code == 0
    Path("tests/test_x.v2.py").unlink()
    assert command("prune", "--dry-run").code == 1


def test_a_folder_of_tests_may_be_called_as_the_one_of_timings(command: Command) -> None:
    test = "timings/test_x.py::test_it"
    Path("timings").mkdir()
    Path("timings/test_x.py").touch()
    store = Store(Path(), CHOSEN)
    for name in (test, "test_y.py::test_it"):
        record(store, [make_verdict(name, speed=make_speed(), environment=H200)])
    Path("test_y.py").touch()

    store.verify(test)
    store.verify("test_y.py::test_it")
    shown = command("show", "chosen", "--format=json").data["entries"]
    assert {e["check"].split("::")[0] for e in shown} == {"timings/test_x.py", "test_y.py"}
    assert command("prune", "chosen", "--tests=.", "--dry-run").code == 0


def test_a_file_that_no_merge_made_is_named_and_not_replaced(command: Command) -> None:
    record_in(Path())
    commit()
    for branch, test in (("a", "test_a"), ("b", "test_b")):
        git(Path(), "checkout", "-qb", branch, "main")
        record_in(
            Path(), f"tests/test_x.py::{test}" if branch == "a" else f"other/test_y.py::{test}"
        )
        git(Path(), "add", "--all")
        git(Path(), "commit", "-qm", branch)
    git(Path(), "merge", "-q", "a", "-m", "both")
    record_in(Path(), "tests/test_x.py::test_new")
    document = json.loads(FACTS.read_bytes())
    for columns in document["entries"].values():
        for entry in columns.values():
            entry["graph_breaks"] = 7
    damaged = json.dumps(document).encode()
    FACTS.write_bytes(damaged)

    done = command("merge")

    assert done.code == 2
    assert f"can't be mended: {FACTS}: " in done.out
    assert FACTS.read_bytes() == damaged


def test_the_markers_of_a_file_count_and_not_the_merge_before(command: Command) -> None:
    record_in(Path())
    commit()
    for branch in ("a", "b"):
        git(Path(), "checkout", "-qb", branch, "main")
        record_in(Path(), f"tests/test_x.py::test_{branch}")
        git(Path(), "add", "--all")
        git(Path(), "commit", "-qm", branch)
    git(Path(), "merge", "-q", "a", "-m", "both", check=False)
    if command("check").code != 0:
        assert command("merge").code == 0
    git(Path(), "add", "--all")
    git(Path(), "commit", "-qm", "both", check=False)
    sides = []
    for test in ("test_new", "test_other"):
        git(Path(), "checkout", "-q", "--", ".")
        record_in(Path(), f"tests/test_x.py::{test}")
        sides.append(FACTS.read_bytes())
    FACTS.write_bytes(b"<<<<<<< a\n%b=======\n%b>>>>>>> b\n" % tuple(sides))

    assert command("merge").code == 0

    entries = json.loads(FACTS.read_bytes())["entries"]
    tests = {key.partition("::")[0] for key in entries}
    assert tests == {"test_it", "test_a", "test_b", "test_new", "test_other"}


def test_a_base_that_markers_show_in_part_is_left_out(command: Command) -> None:
    record_in(Path(), "a/test_x.py::test_a")
    record_in(Path("b"), "a/test_x.py::test_b")
    file = Path("a/__compileguard__/test_x.json")
    ours, theirs = file.read_bytes(), (Path("b") / file).read_bytes()
    file.write_bytes(b"<<<<<<< a\n%b||||||| base\n}\n=======\n%b>>>>>>> b\n" % (ours, theirs))

    assert command("merge", "--into=a").code == 0

    entries = json.loads(file.read_bytes())["entries"]
    assert {key.partition("::")[0] for key in entries} == {"test_a", "test_b"}
