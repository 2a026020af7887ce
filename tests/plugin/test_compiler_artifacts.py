"""What is saved of the compiler for a check: torch's trace, graphs, guards, code, a page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_compileguard.artifacts.tlparse import TlparseError, program, write_page
from tests.conftest import LIBRARY, Run, RunSuite

SAVE = "--compileguard-artifacts=saved"
SUITE = """
import torch
from pytest_compileguard import compile_check
from library import *

@compile_check(max_graph_breaks=0, backend="aot_eager")
def test_breaks(compileguard):
    compileguard(printing)(torch.ones(3))

@compile_check(max_recompiles=0, backend="aot_eager")
def test_recompiles(compileguard):
    guarded = compileguard(double_relu)
    for size in (3, 4):
        guarded(torch.ones(size))

@compile_check(backend="aot_eager")
def test_passes(compileguard):
    compileguard(double_relu)(torch.ones(3))
"""
needs_tlparse = pytest.mark.skipif(program() is None, reason="needs tlparse (extra trace)")


def kinds(saved: dict[str, Any]) -> list[str]:
    return [f"{text['kind']} {text['compile_id']} call {text['call']}" for text in saved["texts"]]


def of_test(run: Run, name: str) -> dict[str, Any]:
    (check,) = [check for check in run.checks if check["nodeid"].endswith(f"::{name}")]
    return check


@pytest.fixture
def fake_tlparse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name, to be filled in, which is found first."""
    file = tmp_path / "bin" / "tlparse"
    file.parent.mkdir()
    file.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{file.parent}{os.pathsep}{os.environ['PATH']}")
    return file


def test_failing_checks_are_saved_and_linked(
    run_suite: RunSuite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    run = run_suite(SUITE, SAVE, "--compileguard-html=pages/report.html")
    run.result.assert_outcomes(failed=2, passed=1)
    saved = of_test(run, "test_breaks")["artifacts"]
    assert kinds(saved) == [
        "graph 0/0 call 0",
        "graph 1/0 call 0",
        "guards 0/0 call 0",
        "guards 1/0 call 0",
    ]
    assert kinds(of_test(run, "test_recompiles")["artifacts"]) == [
        "graph 0/0 call 0",
        "graph 0/1 call 1",
        "guards 0/0 call 0",
        "guards 0/1 call 1",
    ]
    assert of_test(run, "test_passes")["artifacts"] is None
    assert len(list(Path("saved").iterdir())) == 2

    files = [saved["trace"], *(text["file"] for text in saved["texts"])]
    assert all(Path(file).parent == Path(saved["folder"]) for file in files)
    assert "torch.sin" in Path(files[1]).read_text() or ".sin()" in Path(files[1]).read_text()
    assert "TREE_GUARD_MANAGER" in Path(files[3]).read_text()

    folder = saved["folder"]
    run.result.stdout.fnmatch_lines([f"artefacts: {folder} (trace, 2 graphs, 2 sets of guards)"])
    summary = (tmp_path / "summary.md").read_text()
    assert f"artefacts: {folder} (trace" in summary
    assert "they are among the artefacts of this run." in summary
    text = Path("pages/report.html").read_text()
    assert f'<a href="../{saved["trace"]}">trace of torch</a>' in text
    assert text.count('<details class="code">') == 8
    assert "TREE_GUARD_MANAGER" in text


def test_passing_checks_are_saved_where_that_is_asked_for(run_suite: RunSuite) -> None:
    run = run_suite(SUITE, "-k", "passes", SAVE, "--compileguard-artifacts-for=all")
    run.result.assert_outcomes(passed=1)
    assert kinds(run.check["artifacts"]) == ["graph 0/0 call 0", "guards 0/0 call 0"]
    Path("pytest.ini").write_text(
        "[pytest]\ncompileguard_artifacts = kept\ncompileguard_artifacts_for = all\n"
    )
    run = run_suite(SUITE, "-k", "passes")
    assert run.check["artifacts"]["trace"].startswith("kept/")
    run = run_suite(SUITE, "-k", "passes", "--compileguard-artifacts-for=failed")
    assert run.check["artifacts"] is None


def test_nothing_is_saved_unless_somebody_says_where(run_suite: RunSuite) -> None:
    run = run_suite(SUITE, "-k", "breaks", "--compileguard-html=report.html")
    assert run.check["artifacts"] is None
    assert '<details class="code">' not in Path("report.html").read_text()
    assert not list(Path().rglob("trace.log"))
    run = run_suite(SUITE, "--compileguard-artifacts-for=all")
    run.result.stderr.fnmatch_lines(["*--compileguard-artifacts-for: * add *artifacts=DIR*"])
    assert run.result.ret == pytest.ExitCode.USAGE_ERROR


@needs_tlparse
def test_tlparse_reads_every_line_of_each_trace(run_suite: RunSuite) -> None:
    """Also of a second check, before which torch has told the names of files already."""
    run = run_suite(SUITE, SAVE)
    found = program()
    assert found is not None
    for name in ("test_breaks", "test_recompiles"):
        saved = of_test(run, name)["artifacts"]
        assert saved["problems"] == []
        command = [found, saved["trace"], "-o", f"again_{name}", "--no-browser", "--strict"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "fail" not in done.stderr
        page = Path(saved["page"]).read_text()
        assert "test_suite.py" in page
        assert "(unknown)" not in page
        directory = json.loads(Path(saved["page"]).with_name("compile_directory.json").read_text())
        # With an underscore: an attempt that Dynamo began anew.
        assert len([cid for cid in directory if re.fullmatch(r"\[\d/\d\]", cid)]) == 2
    assert f"tlparse report: {saved['page']}" in run.text


CODE = """
import torch
from pytest_compileguard import compile_check
from library import *

@compile_check(max_kernels=0)
def test_it(compileguard):
    ones = torch.ones(4, 4, requires_grad=True)
    compileguard(product)(ones, ones)
"""
PRODUCT = """
def product(x, y):
    # </script><img src=x onerror=window.hit=1>
    return (x.sin() * 2) @ y  # ``` ::error file=x::</pre>
"""


def test_generated_code_is_saved_and_shown(run_suite: RunSuite) -> None:
    run = run_suite(CODE, SAVE, "--compileguard-html=report.html", library="import torch" + PRODUCT)
    run.result.assert_outcomes(failed=1)
    saved = run.check["artifacts"]
    code = [text for text in saved["texts"] if text["kind"] == "code"]
    assert [text["part"] for text in code] == ["forward", "backward"]
    assert [Path(text["file"]).name for text in code] == [
        "code_0_0_forward.py",
        "code_0_0_backward.py",
    ]
    for text in code:
        compile(Path(text["file"]).read_text(), text["file"], "exec")
    fused = run.check["inductor"]["fused"]
    assert {"name": "extern_kernels.mm", "ops": ["aten.mm"], "nodes": ["matmul"]} in fused
    page = Path("report.html").read_text()
    assert "code generated for graph 0/0, forward" in page
    assert '<span class="py-kt">void</span>' in page
    assert "<td>library</td><td>mm</td><td><code>matmul</code></td>" in page
    assert "<img" not in page
    assert page.count("</script>") == 1


def test_what_another_run_left_is_replaced_and_nothing_else(run_suite: RunSuite) -> None:
    run = run_suite(SUITE, "-k", "breaks", SAVE)
    folder = Path(run.check["artifacts"]["folder"])
    (folder / "graph_9_9.txt").write_text("stale")
    beside = [
        folder.parent / "reproduce.py",
        Path("saved/notes.txt"),
        Path("saved/other/trace.log"),
    ]
    for file in beside:
        file.parent.mkdir(exist_ok=True)
        file.write_text("kept")
    run = run_suite(SUITE, "-k", "breaks", SAVE)
    assert Path(run.check["artifacts"]["trace"]).exists()
    assert not (folder / "graph_9_9.txt").exists()
    assert [file.read_text() for file in beside] == ["kept"] * 3
    assert sorted(path.name for path in folder.parent.iterdir()) == ["compiled", "reproduce.py"]


def test_hostile_names_stay_within_their_folder(run_suite: RunSuite) -> None:
    suite = """
        import pytest, torch
        from library import *

        @pytest.mark.parametrize("name", ["../../up", "</script>`::error::", "a/b", "a_b"])
        def test_it(compileguard, name):
            compileguard(printing, max_graph_breaks=0, backend="aot_eager")(torch.ones(3))
        """
    run = run_suite(suite, SAVE, "--compileguard-html=report.html")
    run.result.assert_outcomes(failed=4)
    folders = {Path(check["artifacts"]["folder"]) for check in run.checks}
    assert len(folders) == 4
    assert {folder.parent.parent for folder in folders} == {Path("saved")}
    assert all((folder / "trace.log").exists() for folder in folders)
    assert Path("report.html").read_text().count("</script>") == 1


def test_workers_save_and_the_controller_links(run_suite: RunSuite) -> None:
    pytest.importorskip("xdist")
    run = run_suite(SUITE, SAVE, "-n", "1", "--compileguard-html=report.html")
    run.result.assert_outcomes(failed=2, passed=1)
    page = Path("report.html").read_text()
    for name in ("test_breaks", "test_recompiles"):
        saved = of_test(run, name)["artifacts"]
        assert f'<a href="{saved["trace"]}">' in page
        assert all(Path(text["file"]).exists() for text in saved["texts"])


def test_a_watched_block_is_saved(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import torch
        from library import *

        def test_it(compileguard):
            compiled = torch.compile(printing, backend="aot_eager")
            with compileguard.watch(max_graph_breaks=0):
                compiled(torch.ones(3))
        """,
        SAVE,
    )
    run.result.assert_outcomes(failed=1)
    assert kinds(run.check["artifacts"])[:1] == ["graph 0/0 call 0"]


def test_a_check_without_a_trace_says_so(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        from library import *

        def test_it(compileguard):
            compileguard(double_relu)
        """,
        SAVE,
        "--compileguard-html=report.html",
    )
    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(["artefacts: torch traced nothing of this check"])
    assert "torch traced nothing of this check" in Path("report.html").read_text()


def test_a_folder_that_can_not_be_made_is_told(run_suite: RunSuite) -> None:
    Path("saved").write_text("a file")
    run = run_suite(SUITE, "-k", "breaks", SAVE)
    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(["artefacts: can't write to saved/*: Not a directory"])


def test_a_tlparse_that_fails_is_told_and_spoils_nothing(
    run_suite: RunSuite, fake_tlparse: Path
) -> None:
    fake_tlparse.write_text("#!/bin/sh\nprintf 'no\\n::error::luck' >&2\nexit 3\n")
    run = run_suite(SUITE, "-k", "breaks", SAVE)
    run.result.assert_outcomes(failed=1)
    assert run.check["artifacts"]["page"] == ""
    run.result.stdout.fnmatch_lines(
        ["artefacts: tlparse ended with exit code 3 and no page: no ::error::luck"]
    )
    assert Path(run.check["artifacts"]["trace"]).exists()


def test_a_tlparse_that_hangs_is_stopped(fake_tlparse: Path, tmp_path: Path) -> None:
    fake_tlparse.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(600)\n")
    with pytest.raises(TlparseError, match=r"took more than 0\.2 s and was stopped"):
        write_page(tmp_path / "trace.log", tmp_path / "out", most_s=0.2)
    fake_tlparse.write_text("no program")
    with pytest.raises(TlparseError, match="can't be run: Exec format error"):
        write_page(tmp_path / "trace.log", tmp_path / "out")


def test_traces_and_copies_do_not_outlive_their_test(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import gc, weakref
        import torch
        from library import *

        checks = []

        def test_one(compileguard):
            compileguard(double_relu, backend="aot_eager")(torch.ones(3))
            checks.append(weakref.ref(compileguard.checks[0]))

        def test_two():
            gc.collect()
            assert checks[0]() is None
        """,
        SAVE,
        library=LIBRARY,
    )
    run.result.assert_outcomes(passed=2)


def test_two_runs_of_one_test_never_mix_their_files(tmp_path: Path) -> None:
    from pytest_compileguard.artifacts.saving import _replacing  # noqa: PLC0415  # imports torch

    folder = tmp_path / "check" / "compiled"

    def write(name: str) -> None:
        for _ in range(25):
            with _replacing(folder) as new:
                for number in range(5):
                    (new / f"{number}.txt").write_text(name)

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, ("one", "other")))
    assert len({file.read_text() for file in folder.iterdir()}) == 1
    assert len(list(folder.iterdir())) == 5
    assert list(folder.parent.iterdir()) == [folder]
