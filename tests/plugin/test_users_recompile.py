"""A recompile of code of others names the line of the user's code that leads to it."""

from __future__ import annotations

import pytest

from tests.conftest import RunSuite

LIBRARY = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="aot_eager")

    def forward(self, x):
        return self.body(x).sum()
"""
OF_A_BLOCK = """
import torch
import library

def test_it(compileguard):
    net = library.Net()
    with compileguard.watch(max_recompiles=0):
        net(torch.ones(2, 4))
        net(torch.ones(3, 4))
"""
OF_A_CALL = """
import torch

def test_it(compileguard):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4))
    guarded = compileguard(net, backend="aot_eager", max_recompiles=0)
    guarded(torch.ones(2, 4))
    guarded(torch.ones(3, 4))
"""


@pytest.mark.parametrize(
    ("suite", "place"),
    ((OF_A_BLOCK, "library.py:10 in forward"), (OF_A_CALL, "test_suite.py:7 in test_it")),
)
def test_module_of_a_class_of_torch(run_suite: RunSuite, suite: str, place: str) -> None:
    run = run_suite(suite, library=LIBRARY)
    run.result.assert_outcomes(failed=1)
    assert f"(automatic dynamic)    called from {place}" in run.text
    assert "external_utils.py" not in run.text
    (recompile,) = run.check["recompiles"]
    caller = recompile["called_from"]
    assert f"{caller['file']}:{caller['line']} in {caller['function']}" == place
    (finding,) = run.findings("recompiles")
    assert (finding["file"], finding["line"]) == (caller["file"], caller["line"])


def test_own_code_needs_no_line_that_leads_to_it(run_suite: RunSuite) -> None:
    suite = OF_A_CALL.replace("net = torch.nn.Sequential(torch.nn.Linear(4, 4))", "net = sine")
    run = run_suite(suite + "\ndef sine(x):\n    return x.sin()\n")
    (recompile,) = run.check["recompiles"]
    assert (recompile["file"], recompile["line"]) == ("test_suite.py", 9)
    assert recompile["called_from"] is None
