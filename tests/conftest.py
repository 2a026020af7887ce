"""What all tests share."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["pytester"]

# Workers share the processors. With one thread each, none waits for a processor that another one
# keeps busy, which would make timings count for nothing. torch reads it when it is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none, and say so."""
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    import torch  # noqa: PLC0415  # torch-free tests stay fast

    if not torch.cuda.is_available():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def _not_on_github(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no suite under test write into the summary of the job that runs these tests."""
    for variable in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(variable, raising=False)


@dataclass(frozen=True)
class Run:
    """A finished run of a small suite."""

    result: pytest.RunResult
    document: dict[str, Any]

    @property
    def checks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.document.get("checks", [])
        return found

    @property
    def check(self) -> dict[str, Any]:
        assert len(self.checks) == 1, self.checks
        return self.checks[0]

    @property
    def text(self) -> str:
        return f"{self.result.stdout}\n{self.result.stderr}"

    def findings(self, metric: str) -> list[dict[str, Any]]:
        return [f for check in self.checks for f in check["findings"] if f["metric"] == metric]

    def status(self, metric: str) -> str:
        statuses = [finding["status"] for finding in self.findings(metric)]
        assert len(statuses) == 1, statuses
        return str(statuses[0])


RunSuite = Callable[..., Run]

LIBRARY = """
import torch

def double_relu(x):
    return torch.relu(x * 2 + 1)

def printing(x):
    y = x.sin()
    print("half way", x.shape)
    return y.cos()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.linear(x)).relu()
"""


@pytest.fixture(scope="session", autouse=True)
def outside_ci() -> Iterator[None]:
    """Recording is refused in CI, where these tests run too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CI", raising=False)
        yield


@pytest.fixture(scope="session")
def compiler_loaded() -> None:
    """Import torch and its compiler for good: pytester unloads what a run imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch  # noqa: PLC0415
        import torch._inductor.compile_fx  # noqa: PLC0415

        import pytest_compileguard.runner  # noqa: F401, PLC0415

        compiled = torch.compile(_tiny, backend="aot_eager")
        for size in (2, 3):
            compiled(torch.ones(size, requires_grad=True)).sum().backward()
        torch.compiler.reset()
        if torch.cuda.is_available():
            # What generates kernels is told apart by its classes: loaded twice, they would differ.
            import torch._inductor.codegen.cuda_combined_scheduling  # noqa: PLC0415


def _tiny(x: Any) -> Any:
    y = x.sin()
    print(end="")  # noqa: T201  # a graph break, so that resuming is loaded as well
    return y.cos()


@pytest.fixture
def run_suite(pytester: pytest.Pytester, compiler_loaded: None) -> RunSuite:
    """Run a suite under guard in this process; the code under test stands in ``library.py``."""
    del compiler_loaded

    def run(tests: str, *arguments: str, library: str = LIBRARY, timing: bool = False) -> Run:
        pytester.makepyfile(library=library, test_suite=tests)
        pytester.syspathinsert()
        Path("out.json").unlink(missing_ok=True)
        options = ["--compileguard-json=out.json", "-p", "no:cacheprovider", "-p", "no:randomly"]
        options += ["-p", "no:hypothesispytest"]  # a second a run: it is imported each time anew
        options += [] if timing else ["--compileguard-no-timing"]
        with warnings.catch_warnings():
            # The suite under test has filters of its own, not those of these tests.
            warnings.simplefilter("default")
            result = pytester.runpytest_inprocess(*options, *arguments)
        found = Path("out.json")
        return Run(result, json.loads(found.read_bytes()) if found.exists() else {})

    return run
