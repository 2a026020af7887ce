"""Real call sequences, whose true values were measured without this plugin, give those values.

The files under ``tests/cases`` state them (``TRUTH``), as read from ``TORCH_LOGS`` output, a
counting backend, and eager, compiled and float64 runs, each in a process of its own.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import RunSuite
from tests.dynamo.torch_versions import BEFORE_2_11

CASES = sorted((Path(__file__).parents[1] / "cases").glob("*.py"))

# Where the planted errors sit, in the words of the report.
WRONG_LEAF = {
    "pa_05_planted_scale": "output['var']",
    "pa_06_planted_gradient_only": "gradient of w",
}

SUITE = """
import contextlib
import importlib.util
import torch

spec = importlib.util.spec_from_file_location("case", {path!r})
case = importlib.util.module_from_spec(spec)
spec.loader.exec_module(case)


def test_case(compileguard):
    target, calls = case.make()
    backend = case.TRUTH["backend"]
    guarded = compileguard(target, backend={backend})
    before = getattr(case, "before", lambda i, target: None)
    context = getattr(case, "ctx", lambda i: contextlib.nullcontext())
    for i, args in enumerate(calls):
        before(i, target)
        with context(i):
            guarded(*args)
"""


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_of(run_suite: RunSuite, path: Path, backend: str) -> dict[str, Any]:
    """Run one case under guard; its entry in the JSON report."""
    return run_suite(SUITE.format(path=str(path), backend=backend)).check


def backend_for(truth: dict[str, Any]) -> str:
    """Facts don't depend on the backend; inductor, slow, only where its numbers matter."""
    own = callable(truth["backend"]) or "parity_values" in truth
    return 'case.TRUTH["backend"]' if own else '"aot_eager"'


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_true_values(path: Path, run_suite: RunSuite) -> None:
    truth = load(path).TRUTH
    check = check_of(run_suite, path, backend_for(truth))
    seen = check["observed"]
    refused = truth["recompiles"] - truth.get("recompiles_completed", truth["recompiles"])

    assert seen["graph_breaks"] == truth["graph_breaks"]
    assert seen["break_events"] == truth["break_events"]
    assert seen["recompiles"] == truth["recompiles"] - refused
    assert seen["graphs"] == truth["compiled_graphs"]
    assert bool(seen["fallbacks"]) == truth["falls_back_to_eager"]
    assert seen["parity"] == {"pass": "passed", "fail": "failed"}[truth["parity"]]
    assert not check["unreliable"]
    if line := truth.get("graph_break_line"):
        site = check["graph_breaks"][0]
        assert site["line"] == line
        assert truth["graph_break_hint"] in site["source"]
        if not BEFORE_2_11:  # which words other reasons
            assert site["reason"] == truth["graph_break_reason"]
        assert site["id"].startswith("GB")
    if hint := truth.get("recompile_hint"):
        assert any(hint in recompile["guard"] for recompile in check["recompiles"])
    if place := WRONG_LEAF.get(path.stem):
        assert {mismatch["path"] for mismatch in check["mismatches"]} == {place}
