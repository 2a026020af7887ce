"""The example project, run as its author would: what passes, and what each regression is told."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.golden_text import masked

ROOT = Path(__file__).parents[2]
HEADING = re.compile(r"^_+ (test_\w+(?:\[.*\])?) _+$", re.MULTILINE)
SPEED_TEST = "test_transform_is_one_graph_and_faster"


class Run(NamedTuple):
    """One finished run of pytest."""

    code: int
    output: str
    report: dict[str, Any]

    def told_of(self, test: str) -> str:
        """Give the failure section of one test."""
        parts = HEADING.split(self.output)
        sections = dict(zip(parts[1::2], parts[2::2], strict=True))
        return sections[test]

    def observed(self, test: str) -> dict[str, Any]:
        """Give what the JSON report holds of the one check of a test."""
        (check,) = [c for c in self.report["checks"] if c["nodeid"].endswith(f"::{test}")]
        observed: dict[str, Any] = check["observed"]
        return observed


def run(target: str, folder: Path) -> Run:
    report = folder / "report.json"
    options = ("-p", "no:cacheprovider", "-rs", f"--compileguard-json={report}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", target, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    return Run(done.returncode, done.stdout, json.loads(report.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run("example_project", tmp_path_factory.mktemp("example"))


@pytest.fixture(scope="module")
def regressions(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run("example_project/regressions", tmp_path_factory.mktemp("regressions"))


def test_example_passes_and_leaves_the_regressions_alone(example: Run) -> None:
    assert example.code == 0, example.output
    assert "regress" not in example.output
    # On a busy machine the one promise of speed may be undecided; a broken one fails the run.
    undecided = {c["nodeid"] for c in example.report["checks"] if c["outcome"] != "passed"}
    assert undecided <= {f"tests/test_elementwise.py::{SPEED_TEST}"}


def test_example_says_why_it_skips(example: Run) -> None:
    if example.report["environment"]["device_type"] == "cuda":
        pytest.skip("nothing is skipped on a GPU")
    assert "Triton kernels need a CUDA device" in example.output


def test_example_measures_the_promised_speed(example: Run) -> None:
    observed = example.observed(SPEED_TEST)
    assert observed["speedup_low"] < observed["speedup"] < observed["speedup_high"]
    assert observed["speedup_high"] >= 1.2
    assert observed["pairs"] > 0


@pytest.mark.parametrize(
    ("test", "recompiles"),
    (
        ("test_automatic_sizes_recompile_once", 1),
        ("test_dynamic_sizes_never_recompile", 0),
        ("test_static_sizes_compile_once_each", 2),
        ("test_inference_takes_any_batch", 1),
        ("test_training_stays_compiled", 0),
    ),
)
def test_example_recompiles_as_often_as_it_says(example: Run, test: str, recompiles: int) -> None:
    observed = example.observed(test)
    assert observed["recompiles"] == recompiles
    assert observed["graphs"] == recompiles + 1
    assert observed["parity"] == "passed"


def test_every_regression_fails(regressions: Run) -> None:
    assert regressions.code == 1, regressions.output
    assert "6 failed" in regressions.output
    assert "passed in" not in regressions.output
    assert "Traceback" not in regressions.output


def test_the_readme_shows_what_is_printed(regressions: Run) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("```text\n")[2].partition("```")[0]
    printed = masked(regressions.output)
    assert len(HEADING.findall(shown)) >= 2  # else nothing would be held against anything
    for heading in HEADING.findall(shown):
        assert masked(regressions.told_of(heading)).strip() in printed
    for line in masked(shown).splitlines():
        assert line in printed.splitlines(), line


def line_of(text: str) -> str:
    """Give file and line of the broken toys in which ``text`` stands."""
    file = ROOT / "example_project" / "regressions" / "broken_toys.py"
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if text in line:
            return f"{file.name}:{number}"
    raise LookupError(text)


def test_print_is_told_with_its_line(regressions: Run) -> None:
    told = regressions.told_of("test_print_in_forward")
    assert re.search(r"graph breaks +observed 1 +limit 0", told)
    assert line_of('print("hidden:"') in told
    assert "in forward" in told


def test_break_in_a_callee_is_one_break_at_its_line(regressions: Run) -> None:
    told = regressions.told_of("test_item_in_a_function_that_is_called")
    assert re.search(r"graph breaks +observed 1 +limit 0", told)
    assert line_of(".item()") in told
    assert "in peak" in told


def test_recompiles_are_told_with_the_sizes(regressions: Run) -> None:
    told = regressions.told_of("test_three_sizes_where_each_is_compiled")
    assert re.search(r"recompiles +observed 2 +limit 0", told)
    assert "16 -> 32" in told
    assert "32 -> 64" in told


def test_wrong_gradient_is_told_with_its_leaf_and_difference(regressions: Run) -> None:
    told = regressions.told_of("test_wrong_gradient")
    assert "parity" in told
    assert re.search(r"gradient of weight: greatest difference 0\.\d+ at index", told)
    assert "gradient of x" not in told


def test_slow_side_is_told_with_its_interval(regressions: Run) -> None:
    told = regressions.told_of("test_slower_than_promised")
    assert re.search(r"speedup +observed \d+\.\d+x +limit 50\.00x", told)
    assert re.search(r"\[\d+\.\d+, \d+\.\d+\]", told)


def test_fallback_is_told_with_the_line_that_caused_it(regressions: Run) -> None:
    told = regressions.told_of("test_falls_back_to_eager")
    assert "eager" in told
    assert line_of("log.warning") in told
    assert regressions.observed("test_falls_back_to_eager")["graphs"] == 0
