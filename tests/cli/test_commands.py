"""The command ``compileguard``: what each subcommand shows, changes, refuses and returns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import pytest_compileguard
from pytest_compileguard.cli.output import escaped
from pytest_compileguard.cli.schema import KINDS, schema_of_kind
from tests.cli.conftest import H100, H200, NEWER, Command, git, record_in
from tests.stored import files_below

FACTS = "tests/__compileguard__/test_x.json"
SCHEMAS = Path(pytest_compileguard.__file__).parent / "baseline" / "schemas"
PROBE = """
import sys
from pytest_compileguard.cli import main
code = main(sys.argv[1:])
assert not {"torch", "pytest"} & set(sys.modules), "loaded"
sys.exit(code)
"""

# --- the command itself -----------------------------------------------------------------------


@pytest.mark.parametrize("subcommand", (("show",), ("diff", ".", "."), ("merge",), ("check",)))
def test_it_loads_neither_torch_nor_pytest(tmp_path: Path, subcommand: tuple[str, ...]) -> None:
    record_in(tmp_path)
    done = subprocess.run([sys.executable, "-c", PROBE, *subcommand], cwd=tmp_path, check=False)
    assert done.returncode == 0


def test_it_runs_as_a_module_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest_compileguard", "--version"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"compileguard {pytest_compileguard.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    (
        ((), "required: subcommand"),
        (("show", "nowhere"), "'nowhere': no such file or folder, nor a git revision"),
        (("diff", ".", "."), ".: holds no baselines"),
        (("merge", "--into=nowhere"), "'nowhere': no such folder"),
        (("diff", ".", "--regressions=1"), "--regressions"),
        (("show", "--format=html"), "invalid choice: 'html'"),
        (("prune", "--older-than=new"), "'new': write a minor version of torch, as 2.11"),
    ),
)
def test_what_is_wrong_is_said_with_exit_code_2(
    command: Command, arguments: tuple[str, ...], said: str
) -> None:
    done = command(*arguments)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_a_damaged_file_is_an_error_of_every_subcommand(command: Command) -> None:
    record_in(Path())
    Path(FACTS).write_text("{", encoding="utf-8")
    for arguments in (("show",), ("diff", ".", "."), ("prune",)):
        done = command(*arguments)
        assert done.code == 2
        assert done.err.startswith(f"compileguard: error: {FACTS}: line 1: the text ends too early")
    for fragments in ((), (".",)):
        done = command("merge", *fragments)
        assert done.code == 2
        assert f"can't be mended: {FACTS}: line 1: the text ends too early" in done.out
    assert Path(FACTS).read_text(encoding="utf-8") == "{"


# --- show -------------------------------------------------------------------------------------


def test_show_lists_facts_and_timings(command: Command) -> None:
    record_in(Path(), breaks=1)
    record_in(Path(), environment=H200, speedup=1.31)

    done = command("show")

    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "facts:"
    check = "tests/test_x.py::test_it::ToyModel"
    assert lines[2].split()[:9] == [check, *["cpu", "torch", "2.13", "1", "1", "0", "2", "12"]]
    (timing,) = [line for line in lines if "1.31x" in line]
    assert "NVIDIA H200, torch 2.13" in timing
    assert lines[-1] == "3 entries in 2 files"

    data = command("show", "--format=json").data
    assert [entry["kind"] for entry in data["entries"]] == ["timings", "facts", "facts"]
    markdown = command("show", "--format=markdown").out
    assert "### facts" in markdown
    assert "tests/test&#95;x.py" in markdown


def test_show_reads_a_folder_of_baselines_and_a_revision(command: Command) -> None:
    record_in(Path())
    git(Path(), "init", "-q")
    git(Path(), "add", ".")
    git(Path(), "commit", "-qm", "record")
    record_in(Path(), breaks=2)
    for tree, breaks in (("HEAD", 0), ("HEAD:tests", 0), (".", 2), (FACTS, 2), ("tests", 2)):
        (entry,) = command("show", tree, "--format=json").data["entries"]
        assert entry["entry"]["graph_breaks"] == breaks, tree


HOSTILE = "a|b`c` <img src=x> @team [x](y) *z* ::error::\x1b[31m\n## head"


def test_markdown_shows_text_and_does_nothing_else() -> None:
    text = escaped(HOSTILE)
    assert not set("|`<>@[]()*#\x1b\n") - {"#"} & set(text)
    assert "&#124;" in text


def test_text_has_no_escape_sequences(command: Command) -> None:
    record_in(Path(), f"tests/test_x.py::test_it[{HOSTILE}]")
    done = command("show")
    assert "\x1b" not in done.out
    assert len(done.out.splitlines()) == 5


# --- diff -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "kind"), ((1, 2, "worse"), (2, 1, "better")), ids=("worse", "better")
)
def test_diff_names_what_changed(command: Command, before: int, after: int, kind: str) -> None:
    record_in(Path("a"), breaks=before)
    record_in(Path("b"), breaks=after)

    done = command("diff", "a", "b")

    assert done.code == 1
    assert f"graph breaks {before} -> {after}" in done.out
    (difference,) = command("diff", "a", "b", "--format=json").data["differences"]
    assert difference["kind"] == kind
    assert command("diff", "a", "b", "--regressions").code == (1 if kind == "worse" else 0)


def test_diff_of_equal_results_is_fine_wherever_they_were_recorded(command: Command) -> None:
    record_in(Path("a"))
    record_in(Path("b"), environment=msgspec.structs.replace(NEWER, torch="2.13.9", python="3.14"))
    done = command("diff", "a", "b")
    assert (done.code, done.out) == (0, "no difference\n")


def test_diff_of_what_was_added_removed_and_made_incomparable(command: Command) -> None:
    record_in(Path("a"), "tests/test_x.py::gone", "tests/test_x.py::test_it", breaks=1)
    record_in(Path("b"), "tests/test_x.py::new", breaks=1)
    record_in(Path("b"), "tests/test_x.py::test_it", inputs=("int8[1]",))
    found = command("diff", "a", "b", "--format=json").data["differences"]
    assert [one["kind"] for one in found] == ["removed", "changed", "added"]
    assert "inputs [" in found[1]["told"]


def test_diff_of_two_revisions(command: Command) -> None:
    git(Path(), "init", "-q")
    for breaks in (1, 0):
        record_in(Path(), breaks=breaks)
        git(Path(), "add", ".")
        git(Path(), "commit", "-qm", "record")
    assert "graph breaks 1 -> 0" in command("diff", "HEAD~1", "HEAD").out
    assert command("diff", "HEAD", ".").code == 0
    assert command("diff", "HEAD~2", "HEAD").code == 2


# --- merge ------------------------------------------------------------------------------------


def test_fragments_become_one_tree(command: Command) -> None:
    record_in(Path("tree"), breaks=1)
    record_in(Path("cpu"), breaks=1)
    record_in(Path("newer"), environment=NEWER)
    for name, environment, speedup in (("h200", H200, 1.5), ("h100", H100, 1.2)):
        record_in(Path(name), breaks=1)  # the checkout that the job began with
        record_in(Path(name), environment=environment, speedup=speedup)

    done = command("merge", "cpu", "newer", "h200", "h100", "--into=tree")

    assert done.code == 0, done.out
    found = command("show", "tree", "--format=json").data["entries"]
    assert [(entry["kind"], entry["column"]) for entry in found] == [
        ("timings", "NVIDIA H100, torch 2.13"),
        ("timings", "NVIDIA H200, torch 2.13"),
        ("facts", "cpu torch 2.13"),
        ("facts", "cpu torch 2.14"),
        ("facts", "cuda torch 2.13"),
    ]
    again = command("merge", "cpu", "newer", "h200", "h100", "--into=tree")
    assert "0 files changed" in again.out


def test_a_fragment_that_changed_an_entry_wins_over_those_that_kept_it(command: Command) -> None:
    for root in ("kept", "better"):
        record_in(Path(root), breaks=2)
    record_in(Path("better"), breaks=1)
    for order in (("kept", "better"), ("better", "kept")):
        record_in(Path("tree"), breaks=2)
        assert command("merge", *order, "--into=tree").code == 0
        (entry,) = command("show", "tree", "--format=json").data["entries"]
        assert entry["entry"]["graph_breaks"] == 1


def test_two_results_for_one_entry_are_a_conflict_until_it_is_decided(command: Command) -> None:
    record_in(Path("tree"), breaks=1)
    record_in(Path("a"), breaks=0)
    record_in(Path("b"), breaks=2)
    before = files_below(Path("tree"))

    done = command("merge", "a", "b", "--into=tree")

    assert done.code == 1
    assert f"conflict: {FACTS}: test_it::ToyModel, cpu torch 2.13: graph breaks 0 -> 2" in done.out
    assert files_below(Path("tree")) == before
    assert command("merge", "a", "b", "--into=tree", "--prefer=theirs").code == 0
    (entry,) = command("show", "tree", "--format=json").data["entries"]
    assert entry["entry"]["graph_breaks"] == 2


def test_two_timings_within_the_noise_are_no_conflict(command: Command) -> None:
    record_in(Path("a"), environment=H200, speedup=1.50)
    record_in(Path("b"), environment=H200, speedup=1.52)
    Path("tree").mkdir()
    assert command("merge", "a", "b", "--into=tree").code == 0


# --- prune ------------------------------------------------------------------------------------


def test_prune_drops_what_has_no_module(command: Command) -> None:
    record_in(Path(), "tests/test_x.py::t", "tests/test_y.py::t", environment=H200, speedup=1.3)
    Path("tests/test_y.py").unlink()

    dry = command("prune", "--dry-run")
    assert dry.code == 1
    assert "2 entries would be dropped" in dry.out
    assert "tests/test_y.py is gone" in dry.out
    assert Path("tests/__compileguard__/test_y.json").exists()

    done = command("prune")
    assert done.code == 0
    assert not Path("tests/__compileguard__/test_y.json").exists()
    assert "test_y.py" not in Path("tests/__compileguard__/timings/nvidia-h200.json").read_text()
    assert "test_x.py" in Path("tests/__compileguard__/timings/nvidia-h200.json").read_text()
    assert command("prune", "--dry-run").code == 0


def test_prune_drops_what_an_old_torch_recorded(command: Command) -> None:
    record_in(Path())
    record_in(Path(), environment=NEWER)
    assert command("prune", "--older-than=2.14").code == 0
    (entry,) = command("show", "--format=json").data["entries"]
    assert entry["column"] == "cpu torch 2.14"


@pytest.mark.parametrize("folder", (".", "tests", "tests/__compileguard__"))
def test_what_prune_emptied_holds_nothing(command: Command, folder: str) -> None:
    record_in(Path())
    Path("tests/test_x.py").unlink()
    assert "1 entry dropped" in command("prune").out

    shown = command("show", folder)
    assert (shown.code, shown.out.strip()) == (0, "nothing stored")
    assert command("show", folder, "--format=json").data["entries"] == []
    assert "0 entries dropped" in command("prune", folder, "--tests=.").out
    assert command("diff", folder, folder).code == 2, "there is nothing to compare"


def test_prune_must_know_where_the_tests_are(command: Command) -> None:
    record_in(Path())
    Path("tests/__compileguard__").rename("kept")
    done = command("prune", "kept")
    assert done.code == 2
    assert "--tests=DIR" in done.err
    assert "0 entries dropped" in command("prune", "kept", "--tests=tests").out


def test_prune_refuses_a_folder_from_which_no_path_of_a_module_starts(command: Command) -> None:
    """``--tests tests`` where the modules are ``tests/test_x.py`` would drop all of them."""
    record_in(Path())

    done = command("prune", "--tests=tests")

    assert done.code == 2
    assert "none of the 1 test modules of these baselines is there, as tests/test_x.py" in done.err
    assert command("prune", "--tests=.", "--dry-run").code == 0


# --- check and schema -------------------------------------------------------------------------


def test_check_tells_every_damaged_file(command: Command) -> None:
    record_in(Path(), "tests/test_x.py::t", "tests/test_y.py::t", "tests/test_z.py::t")
    assert command("check").code == 0
    folder = Path("tests/__compileguard__")
    (folder / "test_y.json").write_text("<<<<<<< HEAD\n", encoding="utf-8")
    (folder / "test_z.json").write_bytes((folder / "test_z.json").read_bytes() + b"}")

    done = command("check")

    assert done.code == 2
    assert "test_y.json: line 1: conflict marker '<<<<<<< HEAD'" in done.out
    assert "test_z.json: line " in done.out
    assert done.out.splitlines()[-1] == "1 file with 1 entry can be read, 2 problems"


def test_a_check_of_nothing_is_not_fine(command: Command) -> None:
    done = command("check")
    assert done.code == 2
    assert "holds no baselines, so there is nothing to check" in done.out


def test_check_tells_of_an_older_schema_and_an_update_migrates_it(command: Command) -> None:
    record_in(Path())
    document = json.loads(Path(FACTS).read_bytes())
    document["schema"] = 1
    for columns in document["entries"].values():
        for entry in columns.values():
            del entry["inputs"], entry["seal"]
            del entry["recorded"]["commit"], entry["recorded"]["limits"]
    Path(FACTS).write_text(json.dumps(document), encoding="utf-8")

    done = command("check")
    assert done.code == 0
    assert f"{FACTS}: schema 1; the next update writes schema 3" in done.out
    record_in(Path())
    assert json.loads(Path(FACTS).read_bytes())["schema"] == 3
    assert "schema 1" not in command("check").out


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_published_schema_is_that_of_the_code(command: Command, kind: str) -> None:
    published = json.loads((SCHEMAS / f"{kind}.json").read_bytes())
    assert published == schema_of_kind(kind)
    assert command("schema", kind).data == published
