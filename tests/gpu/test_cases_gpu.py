"""The measured call sequences on a GPU: what a device may not change, it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import RunSuite
from tests.dynamo.test_cases import CASES, SUITE, WRONG_LEAF, backend_for, load

pytestmark = pytest.mark.gpu

# It turns its arguments into numpy arrays, which only tensors on the CPU can be.
CPU_ONLY = {"gb_09_folklore_numpy_generator"}

ON_GPU = SUITE.replace(
    "    target, calls = case.make()\n",
    "    target, calls = on_gpu(*case.make())\n",
).replace(
    "def test_case(",
    """
def on_gpu(target, calls):
    def move(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        there = torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype, device="cuda")
        return there.copy_(leaf.detach()).requires_grad_(leaf.requires_grad)

    if isinstance(target, torch.nn.Module):
        target = target.cuda()
    return target, torch.utils._pytree.tree_map(move, calls)


def test_case(""",
)


@pytest.mark.parametrize(
    "path", [path for path in CASES if path.stem not in CPU_ONLY], ids=lambda path: path.stem
)
def test_true_values_hold_on_a_gpu(path: Path, run_suite: RunSuite) -> None:
    truth = load(path).TRUTH
    check = run_suite(ON_GPU.format(path=str(path), backend=backend_for(truth))).check
    seen = check["observed"]

    assert seen["graph_breaks"] == truth["graph_breaks"]
    assert seen["break_events"] == truth["break_events"]
    completed = truth.get("recompiles_completed", truth["recompiles"])
    assert seen["recompiles"] == completed
    assert seen["graphs"] == truth["compiled_graphs"]
    assert bool(seen["fallbacks"]) == truth["falls_back_to_eager"]
    assert seen["parity"] == {"pass": "passed", "fail": "failed"}[truth["parity"]]
    assert not check["unreliable"]
    if place := WRONG_LEAF.get(path.stem):
        assert {mismatch["path"] for mismatch in check["mismatches"]} == {place}
