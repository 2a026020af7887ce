"""What the commands make of digests of generated code: shown, compared and merged, no conflict."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_compileguard.observation import GraphCode
from tests.cli.conftest import H200, Command, record_in

ONE, TWO, THREE = "1" * 16, "2" * 16, "3" * 16


def record(root: Path, *digests: str, speedup: float = 1.31) -> None:
    root.mkdir(exist_ok=True)
    code = tuple(
        GraphCode(graph=number, compile_id=f"0/{number}", part="forward", digest=digest)
        for number, digest in enumerate(digests, 1)
    )
    record_in(root, environment=H200, speedup=speedup, code=code)


def code_in(command: Command, root: str = ".") -> Any:
    entries = command("show", root, "--format=json").data["entries"]
    (timing,) = [entry["entry"] for entry in entries if entry["kind"] == "timings"]
    return timing["code"]


def test_show_tells_the_digest_or_how_many_there_are(command: Command) -> None:
    for digests, told in (((), "-"), ((ONE,), ONE), ((ONE, TWO), "2 digests")):
        shutil.rmtree("tests", ignore_errors=True)
        record(Path(), *digests)
        (line,) = [line for line in command("show").out.splitlines() if "1.31x" in line]
        assert f"  {told}  " in line


def test_diff_tells_of_which_graph_the_code_changed_and_it_is_no_regression(
    command: Command,
) -> None:
    record(Path("a"), ONE, TWO)
    record(Path("b"), ONE, THREE)
    done = command("diff", "a", "b")
    assert "generated code (graph no. 2 forward)" in done.out
    assert done.out.splitlines()[-1].startswith("1 difference: 0 worse, 0 removed, 1 changed")
    assert command("diff", "a", "b", "--regressions").code == 0
    assert command("diff", "a", "a").code == 0


@pytest.mark.parametrize(
    ("target", "fragments", "merged"),
    (
        ((ONE,), ((TWO,),), {"1 forward": TWO}),
        ((ONE,), ((),), {"1 forward": ONE}),
        ((ONE,), ((ONE,), (TWO,)), {"1 forward": TWO}),
        (None, ((), (TWO,)), {"1 forward": TWO}),
        (None, ((TWO,), ()), {"1 forward": TWO}),
        (None, ((ONE, TWO), (ONE, THREE)), {"1 forward": ONE}),
        (None, ((ONE,), (ONE, TWO)), {"1 forward": ONE, "2 forward": TWO}),
        # Of a digest on which two disagree, none is taken, also not that of a third.
        (None, ((ONE,), (TWO,)), None),
        (None, ((ONE,), (TWO,), (ONE,)), None),
    ),
)
def test_merge_keeps_what_is_known_of_code_and_sees_no_conflict(
    command: Command,
    target: tuple[str, ...] | None,
    fragments: tuple[tuple[str, ...], ...],
    merged: dict[str, str] | None,
) -> None:
    if target is not None:
        record(Path(), *target)
    for number, digests in enumerate(fragments):
        record(Path(f"f{number}"), *digests, speedup=1.31 + number / 100)
    into = Path("all")
    into.mkdir()
    if target is not None:
        shutil.move("tests", into / "tests")
    done = command("merge", *(f"f{n}" for n in range(len(fragments))), "--into=all")
    assert done.code == 0, done.out
    assert code_in(command, "all") == merged


@pytest.mark.parametrize(("prefer", "kept"), (("ours", ONE), ("theirs", TWO)))
def test_digests_that_differ_are_told_and_left_out_unless_a_side_is_preferred(
    command: Command, prefer: str, kept: str
) -> None:
    record(Path("a"), ONE)
    record(Path("b"), TWO, speedup=1.32)
    Path("all").mkdir()
    done = command("merge", "a", "b", "--into=all")
    assert done.code == 0
    (told,) = [line for line in done.out.splitlines() if line.startswith("left out: ")]
    assert "test_x.py::test_it::ToyModel, torch 2.13: generated code (graph no. 1 forward)" in told
    assert "or choose with --prefer" in done.out
    assert code_in(command, "all") is None

    shutil.rmtree("all")
    Path("all").mkdir()
    done = command("merge", "a", "b", "--into=all", f"--prefer={prefer}")
    assert "left out" not in done.out
    assert code_in(command, "all") == {"1 forward": kept}


def test_prune_leaves_the_code_of_other_tests(command: Command) -> None:
    record(Path(), ONE)
    record_in(Path(), "tests/test_gone.py::test_it", environment=H200, speedup=1.31)
    Path("tests/test_gone.py").unlink()
    assert command("prune").code == 0
    assert code_in(command) == {"1 forward": ONE}
