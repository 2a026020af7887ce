"""CUDA graphs on a GPU: whether they were recorded, recorded again, or skipped, and why."""

from __future__ import annotations

import pytest

from tests.conftest import RunSuite

pytestmark = pytest.mark.gpu

LIBRARY = """
import torch

def gram(x):
    return torch.relu(x @ x.t() + 1).sum(0)

def changes_its_input(x):
    x.add_(1)
    return x * 2

class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(64, 64)

    def forward(self, x):
        return torch.relu(self.one(x))
"""

SUITE = """
import torch
from library import *

def test_sizes(compileguard):
    guarded = compileguard(gram, mode="reduce-overhead", dynamic=True{limits})
    with torch.no_grad():
        for size in {sizes}:
            guarded(torch.randn(size, 64, device="cuda"))
"""

MUTATES = """
import torch
from library import *

def test_mutates(compileguard):
    guarded = compileguard(changes_its_input, mode="reduce-overhead"{limits})
    for _ in range(3):
        guarded(torch.randn(64, 64, device="cuda"))
"""

TRAINS = """
import torch
from library import *

def test_trains(compileguard):
    model = Mlp().cuda()
    guarded = compileguard(model, mode="reduce-overhead", max_cudagraph_skips=0)
    for _ in range(4):
        guarded(torch.randn(64, 64, device="cuda")).sum().backward()
        model.zero_grad(set_to_none=True)
"""


@pytest.mark.parametrize(
    ("sizes", "recorded", "again"),
    (
        ((32, 32, 32, 32), 1, 0),
        ((32, 32, 48, 48, 64, 64, 32, 48), 3, 2),
    ),
)
def test_recordings_are_counted(
    run_suite: RunSuite, sizes: tuple[int, ...], recorded: int, again: int
) -> None:
    run = run_suite(SUITE.format(sizes=sizes, limits=", max_cudagraph_skips=0"), library=LIBRARY)
    seen = run.check["inductor"]
    assert (seen["cudagraph_recordings"], seen["cudagraph_rerecordings"]) == (recorded, again)
    assert run.status("cudagraph_skips") == "passed"


def test_one_call_records_nothing_and_says_so(run_suite: RunSuite) -> None:
    run = run_suite(SUITE.format(sizes=(32,), limits=""), library=LIBRARY)
    assert run.status("cudagraph_skips") == "not_checked"
    assert run.check["inductor"]["cudagraph_recordings"] == 0


def test_a_skip_is_told_by_default_and_fails_a_limit(run_suite: RunSuite) -> None:
    for limits, status in (("", "inconclusive"), (", max_cudagraph_skips=0", "failed")):
        run = run_suite(MUTATES.format(limits=limits), library=LIBRARY)
        (finding,) = run.findings("cudagraph_skips")
        assert finding["status"] == status
        assert "mutated inputs" in " ".join(finding["evidence"])


def test_forward_and_backward_are_recorded(run_suite: RunSuite) -> None:
    run = run_suite(TRAINS, library=LIBRARY)
    run.result.assert_outcomes(passed=1)
    seen = run.check["inductor"]
    assert (seen["cudagraph_recordings"], seen["cudagraph_rerecordings"]) == (2, 0)


def test_a_watched_block_is_of_the_device_that_it_compiles_for(run_suite: RunSuite) -> None:
    suite = """
        import torch
        from library import double_relu

        def test_block(compileguard):
            with compileguard.watch(max_graph_breaks=0):
                torch.compile(double_relu)(torch.ones(4, device="cuda"))
    """
    run = run_suite(suite)
    run.result.assert_outcomes(passed=1)
    assert "none for cuda" in str(run.findings("baseline"))
