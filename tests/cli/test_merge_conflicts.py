"""What git leaves of two branches: reported, mended entry by entry, and never guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_compileguard.baseline.entries import NO_FACTS
from pytest_compileguard.baseline.look_up import facts_key
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.cli.conflict import sides_of
from tests.cli.conftest import Command, git, record_in

FACTS = Path("tests/__compileguard__/test_x.json")
MODULE = "tests/test_x.py"


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    git(Path(), "init", "-q", "-b", "main")
    record_in(Path(), *(f"{MODULE}::test_{n}" for n in (1, 5, 9)), breaks=2)
    commit()


def commit() -> None:
    git(Path(), "add", "--all")
    git(Path(), "commit", "-qm", "change")


class Branch:
    """What happens on a branch of its own; main is checked out before and after."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        git(Path(), "checkout", "-q", "-b", self._name)

    def __exit__(self, *_: object) -> None:
        commit()
        git(Path(), "checkout", "-q", "main")


def drop(test: str) -> None:
    store = Store(Path())
    key = facts_key(f"{MODULE}::{test}", "ToyModel")

    def change(file: Any) -> Any:
        entries = {k: row for k, row in file.entries.items() if k != key}
        return type(file)(kind=file.kind, schema=file.schema, entries=entries)

    store.update(store.facts_place(f"{MODULE}::{test}"), NO_FACTS, change)


def merge_branches(*, style: str = "merge") -> bool:
    """Merge both branches into main; whether git left a conflict."""
    git(Path(), "config", "merge.conflictStyle", style)
    git(Path(), "merge", "-q", "a", check=False)
    git(Path(), "merge", "-q", "b", "-m", "b", check=False)
    return b"<<<<<<<" in FACTS.read_bytes()


def stored(command: Command) -> dict[str, int]:
    entries = command("show", "--format=json").data["entries"]
    return {e["check"].split("::")[1]: e["entry"]["graph_breaks"] for e in entries}


@pytest.fixture(params=("merge", "diff3"))
def style(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_both_branches_did_comes_together(command: Command, style: str) -> None:
    with Branch("a"):
        record_in(Path(), f"{MODULE}::test_5", breaks=0)
        record_in(Path(), f"{MODULE}::test_6", breaks=1)
        record_in(Path(), f"{MODULE}::test_8", breaks=1, commit="1")
    with Branch("b"):
        record_in(Path(), f"{MODULE}::test_7", breaks=3)
        record_in(Path(), f"{MODULE}::test_8", breaks=1, commit="2")
    # Git may see no conflict here, and leave test_8 twice.
    merge_branches(style=style)
    left = FACTS.read_bytes()

    assert command("check").code == 2
    assert FACTS.read_bytes() == left

    done = command("merge")

    assert (done.code, done.out.splitlines()[0]) == (0, f"mended: {FACTS}")
    expected = {"test_1": 2, "test_5": 0, "test_6": 1, "test_7": 3, "test_8": 1, "test_9": 2}
    assert stored(command) == expected
    assert command("check").code == 0


@pytest.mark.parametrize("dropped", ("test_1", "test_9"))
def test_what_one_branch_dropped_is_gone_whatever_git_made_of_it(
    command: Command, dropped: str
) -> None:
    with Branch("a"):
        record_in(Path(), f"{MODULE}::test_6", breaks=1)
        record_in(Path(), f"{MODULE}::test_5", breaks=0)
    with Branch("b"):
        record_in(Path(), f"{MODULE}::test_7", breaks=3)
        drop(dropped)
    merge_branches()

    assert command("merge").code == 0

    expected = {"test_1": 2, "test_5": 0, "test_6": 1, "test_7": 3, "test_9": 2}
    del expected[dropped]
    assert stored(command) == expected


def test_one_entry_that_both_changed_is_told_and_decided_by_a_person(
    command: Command, style: str
) -> None:
    with Branch("a"):
        record_in(Path(), f"{MODULE}::test_5", breaks=1)
    with Branch("b"):
        record_in(Path(), f"{MODULE}::test_5", breaks=3)
    assert merge_branches(style=style)
    left = FACTS.read_bytes()

    done = command("merge")

    assert done.code == 1
    told = f"conflict: {FACTS}: test_5::ToyModel, cpu torch 2.13: graph breaks 1 -> 3"
    assert told in done.out
    assert "decide with --prefer=ours" in done.out
    assert FACTS.read_bytes() == left
    assert command("merge", "--prefer=theirs").code == 0
    assert stored(command) == {"test_1": 2, "test_5": 3, "test_9": 2}


def test_an_entry_that_one_branch_changed_and_the_other_dropped_stays(command: Command) -> None:
    with Branch("a"):
        record_in(Path(), f"{MODULE}::test_5", breaks=1)
    with Branch("b"):
        drop("test_5")
    assert merge_branches()
    assert command("merge").code == 0
    assert stored(command) == {"test_1": 2, "test_5": 1, "test_9": 2}


def test_equal_facts_of_two_machines_are_no_conflict(command: Command) -> None:
    for branch, commit_name in (("a", "1"), ("b", "2")):
        with Branch(branch):
            record_in(Path(), f"{MODULE}::test_6", breaks=1, commit=commit_name)
    assert merge_branches()
    check = command("check")
    assert check.code == 2
    assert "test_x.json: line " in check.out
    assert "of an unfinished merge" in check.out
    assert command("merge").code == 0
    assert stored(command) == {"test_1": 2, "test_5": 2, "test_6": 1, "test_9": 2}


def test_a_conflict_that_was_added_as_if_resolved_is_mended(command: Command) -> None:
    with Branch("a"):
        record_in(Path(), f"{MODULE}::test_6", breaks=1)
    with Branch("b"):
        record_in(Path(), f"{MODULE}::test_7", breaks=3)
        drop("test_1")
    assert merge_branches()
    git(Path(), "add", "--all")  # as somebody does who wants it out of the way
    assert command("merge").code == 0
    assert stored(command) == {"test_5": 2, "test_6": 1, "test_7": 3, "test_9": 2}


def test_lines_that_git_mixed_up_are_refused_and_mended(command: Command) -> None:
    """Git sees no conflict, and gives to one test what belongs to another."""
    with Branch("a"):
        record_in(Path(), f"{MODULE}::test_5", breaks=0)
    with Branch("b"):
        drop("test_1")
        record_in(Path(), f"{MODULE}::test_7", breaks=2)
    assert not merge_branches()
    truth = {"test_5": 0, "test_7": 2, "test_9": 2}
    if command("check").code == 0:  # this git was lucky
        assert stored(command) == truth
        return
    assert "is not as it was recorded" in command("check").out
    done = command("merge")
    assert done.code == 0, done.err
    assert stored(command) == truth


@pytest.mark.parametrize(
    "text",
    (
        b"{}\n",
        b"<<<<<<< a\n",
        b"<<<<<<< a\n=======\n",
        b"=======\n>>>>>>> b\n",
        b"<<<<<<< a\n>>>>>>> b\n",
        b"<<<<<<< a\n<<<<<<< a\n=======\n>>>>>>> b\n",
    ),
)
def test_markers_out_of_order_are_no_conflict_that_can_be_mended(
    command: Command, text: bytes
) -> None:
    assert sides_of(text) is None
    FACTS.write_bytes(text)
    done = command("merge", ".")
    assert done.code == 2
    marked = text != b"{}\n"
    assert ("the conflict markers are not as git writes them" in done.out) is marked
    assert ("no merge of git left it like this" in done.out) is not marked
    assert "restore it from version control, or delete it and record again" in done.out
    assert FACTS.read_bytes() == text


def test_a_side_that_is_damaged_itself_is_refused(command: Command) -> None:
    text = b"<<<<<<< a\n{\n=======\n{}\n>>>>>>> b\n"
    FACTS.write_bytes(text)
    done = command("merge")
    assert done.code == 2
    (told,) = [line for line in done.out.splitlines() if line.startswith("can't be mended: ")]
    assert "git knows of no merge of it, and between its markers a side is damaged itself" in told
    assert "restore it from version control, or delete it and record again" in told
    assert FACTS.read_bytes() == text
