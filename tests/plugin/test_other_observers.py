"""What else watches torch in the same process keeps working, and changes none of our facts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

LIBRARY = """
import torch


def breaks(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


def plain(x):
    y = x * 2
    return y + 1
"""

SUITE = """
import torch
from library import breaks, plain


def test_guarded(compileguard):
    guarded = compileguard(breaks, backend="aot_eager")
    for size in (3, 4):
        guarded(torch.ones(size))


def test_set_logs_between_the_calls(compileguard):
    guarded = compileguard(breaks, backend="aot_eager")
    guarded(torch.ones(3))
    torch._logging.set_logs(graph_breaks=True, recompiles=True)
    guarded(torch.ones(4))
    torch._logging.set_logs()


def test_unguarded():
    compiled = torch.compile(plain, backend="aot_eager", dynamic=False)
    compiled(torch.ones(3))
    compiled(torch.ones(4))
"""

ORDINARY = [(4, 1, 2)] * 2
"""Graphs, breaks and recompiles of the two checks."""


def suite(
    folder: Path, *python: str, arguments: tuple[str, ...] = (), **variables: str
) -> tuple[list[tuple[int, int, int]], str]:
    """Run it in a process of its own, as a user does; what the checks saw, and all output."""
    (folder / "library.py").write_text(LIBRARY, encoding="utf-8")
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    options = ["-p", "no:cacheprovider", "--compileguard-no-timing", "--compileguard-json=out.json"]
    run = subprocess.run(
        [sys.executable, *(python or ("-m",)), "pytest", *options, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ".", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    document: dict[str, Any] = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert not any(check["unreliable"] for check in document["checks"])
    seen = [check["observed"] for check in document["checks"]]
    return [
        (o["graphs"], o["graph_breaks"], o["recompiles"]) for o in seen
    ], run.stdout + run.stderr


def test_torch_logs_and_torch_trace(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    facts, text = suite(
        tmp_path,
        arguments=("-s",),
        TORCH_LOGS="graph_breaks,recompiles",
        TORCH_TRACE=str(traces),
    )

    assert facts == ORDINARY
    assert "Recompiling function plain" in text  # of the unguarded test, as without the plugin
    (trace,) = traces.iterdir()
    written = trace.read_text(encoding="utf-8")
    assert "recompile_reasons" in written
    assert "dynamo_graph_break_reason" in written  # also what the guarded calls compiled


def test_coverage_measures_the_code_under_test(tmp_path: Path) -> None:
    facts, _ = suite(tmp_path, "-m", "coverage", "run", "--include=library.py", "-m")
    shown = subprocess.run(
        [sys.executable, "-m", "coverage", "report", "--show-missing"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert facts == ORDINARY
    row = next(line for line in shown.stdout.splitlines() if line.startswith("library.py"))
    assert row.split()[4:] in ([], ["12-13"]), shown.stdout  # the unguarded `plain` runs compiled
