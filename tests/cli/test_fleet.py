"""A fleet: CPU runners gate facts, GPU runners record timings, one job merges, people branch.

The CPU results are those of real runs under pytest-xdist. There is no GPU here, so the
results of GPUs are entries as such runs record them.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from pytest_compileguard.baseline.recording import Wish, record
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.environment import Environment
from tests.cli.conftest import H100, H200, NEWER, Command, git
from tests.stored import CPU, make_compilation, make_speed, make_verdict

LIBRARY = """
import torch

def good(x):
    return torch.relu(x * 2 + 1)

def breaking(x):
    y = x.sin()
    print("debugging")
    return y.cos()
"""
TESTS = {
    "test_layers": {"test_a": "good", "test_b": "breaking", "test_c": "good"},
    "test_models": {"test_d": "good"},
}
JOBS: dict[str, tuple[Environment, float]] = {
    "h200": (H200, 1.6),
    "h200-newer": (msgspec.structs.replace(H200, torch="2.14.1+cu130"), 1.7),
    "h100": (H100, 1.3),
}


def write_tests() -> None:
    Path("library.py").write_text(LIBRARY, encoding="utf-8")
    Path("tests").mkdir(exist_ok=True)
    Path("pytest.ini").write_text("[pytest]\npythonpath = .\n", encoding="utf-8")
    for module, tests in TESTS.items():
        lines = ["import library", "from torch import ones"]
        for name, target in tests.items():
            lines += [
                f"def {name}(compileguard):",
                f"    compileguard(library.{target}, backend='eager')(ones(3))",
            ]
        Path(f"tests/{module}.py").write_text("\n".join(lines) + "\n", encoding="utf-8")


def gpu_job(name: str, environment: Environment, speedup: float) -> None:
    """Record in a checkout of its own, as a run on such a machine would."""
    shutil.copytree("tests", f"../jobs/{name}/tests")
    verdicts = [
        make_verdict(
            f"tests/{module}.py::{test}",
            name=target,
            seen=make_compilation(calls=1, graphs=1, inputs=("float32[3]",)),
            speed=make_speed(speedup),
            environment=environment,
        )
        for module, tests in TESTS.items()
        for test, target in tests.items()
    ]
    record(Store(Path(f"../jobs/{name}")), verdicts, Wish(commit="0123456789ab"))


def columns(command: Command) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for entry in command("show", "--format=json").data["entries"]:
        found.setdefault(entry["check"].split("::")[1], set()).add(entry["column"])
    return found


def commit(text: str) -> None:
    git(Path(), "add", "--all")
    git(Path(), "commit", "-qm", text)


def minor() -> str:
    import torch  # noqa: PLC0415  # the other tests of the command need none

    return ".".join(torch.__version__.split(".")[:2])


PLAIN = ("-p", "no:cacheprovider", "-p", "no:asyncio", "--compileguard-no-timing")


@pytest.mark.usefixtures("compiler_loaded")
def test_a_fleet_ends_with_the_right_files(
    pytester: pytest.Pytester, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xdist")
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.chdir(pytester.mkdir("repository"))
    write_tests()
    git(Path(), "init", "-q", "-b", "main")
    commit("tests")

    # The CPU job: real runs, two workers; a test that is gone has an entry still.
    this_torch = msgspec.structs.replace(CPU, torch=f"{minor()}.0+cpu")
    gone = make_verdict("tests/test_layers.py::test_gone", environment=this_torch)
    record(Store(Path()), [gone])
    done = pytester.runpytest_subprocess("-n2", "--compileguard-update-baseline", *PLAIN)
    done.stdout.fnmatch_lines(["*: 4 added, 0 changed, 1 removed, 0 kept; 2 files written"])
    # The other jobs start from the same commit; the last one records facts of a newer torch.
    for name, (environment, speedup) in JOBS.items():
        gpu_job(name, environment, speedup)
    gpu_job("cpu-newer", msgspec.structs.replace(NEWER, torch="99.0.1+cpu"), 1.1)

    # One job merges all fragments.
    merged = command("merge", *(f"../jobs/{name}" for name in (*JOBS, "cpu-newer")))
    assert merged.code == 0, merged.out
    commit("record")
    expected = {
        f"cpu torch {minor()}",
        "cpu torch 99.0",
        "cuda torch 2.13",
        "cuda torch 2.14",
        "NVIDIA H200, torch 2.13",
        "NVIDIA H200, torch 2.14",
        "NVIDIA H100, torch 2.13",
        "Some CPU, torch 99.0",
    }
    everything = dict.fromkeys(("test_a", "test_b", "test_c", "test_d"), expected)
    assert columns(command) == everything
    slugs = {path.name for path in Path("tests/__compileguard__/timings").iterdir()}
    assert slugs == {"nvidia-h100.json", "nvidia-h200.json", "cpu-some-cpu-16-cores.json"}

    # Two people branch, and git can't put both together.
    _branch("a", "cuda", breaks={"test_a": 1, "test_b": 1})
    _branch("b", "cuda", breaks={"test_c": 1})
    git(Path(), "merge", "-q", "a")
    git(Path(), "merge", "-q", "b", check=False)
    _leave_conflict(Path("tests/__compileguard__/test_layers.json"))

    # It is reported, by the plugin and by the command, and mended.
    gate = pytester.runpytest_inprocess(*PLAIN)
    assert gate.ret == pytest.ExitCode.USAGE_ERROR
    assert "of an unfinished merge" in f"{gate.stdout}{gate.stderr}"
    assert command("check").code == 2
    mended = command("merge")
    assert mended.code == 0, mended.out
    commit("merge")
    assert columns(command) == everything

    # The gate holds on the CPU again, and another revision can be the judge.
    judge = ("--compileguard-strict", "--compileguard-baseline-ref=HEAD")
    pytester.runpytest_inprocess(*PLAIN, *judge).assert_outcomes(passed=4)
    assert command("diff", "HEAD", ".").code == 0
    worse = command("diff", "a~1", "HEAD", "--regressions", "--format=json")
    assert {d["check"].split("::")[1] for d in worse.data["differences"]} == {
        "test_a",
        "test_b",
        "test_c",
    }


def _branch(name: str, device_type: str, breaks: dict[str, int]) -> None:
    """Change facts of one device type on a branch."""
    git(Path(), "checkout", "-q", "-b", name, "main")
    environment = msgspec.structs.replace(H200, device_type=device_type)
    for test, count in breaks.items():
        seen = make_compilation(calls=1, graphs=1 + count, ops=12, inputs=("float32[3]",))
        verdict = make_verdict(
            f"tests/test_layers.py::{test}",
            name=TESTS["test_layers"][test],
            seen=seen,
            environment=environment,
        )
        record(Store(Path()), [verdict])
    commit(name)
    git(Path(), "checkout", "-q", "main")


def _leave_conflict(path: Path) -> None:
    """Where git could merge the lines, leave both sides as it does where it can't."""
    if b"<<<<<<<" in path.read_bytes():
        return
    git(Path(), "reset", "-q", "--hard", "a")
    sides: Sequence[str] = [git(Path(), "show", f"{rev}:{path.as_posix()}") for rev in ("a", "b")]
    base = git(Path(), "show", f"a~1:{path.as_posix()}")
    text = f"<<<<<<< a\n{sides[0]}||||||| base\n{base}=======\n{sides[1]}>>>>>>> b\n"
    path.write_text(text, encoding="utf-8")
