"""How much memory a comparison needs besides the results, and a guarded call besides its target.

Run as ``python tests/benchmarks/parity_memory.py [--device cuda] [--out FILE]``. Each case runs
in a process of its own. On the CPU the peak of resident memory is read, on a GPU that of torch's
allocator. Written down in ``results/``.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from pytest_compileguard.isolation.ambient import random_state
from pytest_compileguard.options import Options
from pytest_compileguard.parity.gradients import Cotangents
from pytest_compileguard.parity.judging import LeafJudge
from pytest_compileguard.parity.leaves import Leaf
from pytest_compileguard.parity.side import Side
from pytest_compileguard.parity.sides import SideComparison
from pytest_compileguard.parity.tolerance import Tolerance
from pytest_compileguard.plan import make_plan
from pytest_compileguard.runner import Check
from pytest_compileguard.spec import CompileCheck

_LEAVES = 4
_LEAF_ELEMENTS = 2**25
_WIDTH = 8192
_LAYERS = 3


def peak_bytes(device: str) -> int:
    if device == "cuda":
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def extra_bytes(device: str, run: Callable[[], object]) -> int:
    """Peak while something runs, beyond what was the peak, or was held, before."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    before = peak_bytes(device)
    run()
    return peak_bytes(device) - before


def compare_leaves(device: str, change: float) -> dict[str, float]:
    """Compare two results of many large leaves."""
    torch.manual_seed(0)
    eager = [torch.rand(_LEAF_ELEMENTS // 64, 64, device=device) + 10 for _ in range(_LEAVES)]
    compiled = [leaf * (1 + change) for leaf in eager]
    judge = LeafJudge(
        call=0,
        tolerance=Tolerance(None, None),
        reference=lambda _: "none here",
        before=lambda _: {},
        tf32=False,
    )
    comparison = SideComparison(judge)
    # What is loaded at the first use is no cost of a leaf.
    torch.testing.assert_close(torch.ones(2), torch.ones(2) + 1e-9)
    used = extra_bytes(device, lambda: comparison.compare(_side(eager), _side(compiled)))
    assert comparison.result.leaves >= _LEAVES
    assert not comparison.result.mismatches
    leaf_bytes = eager[0].nbytes
    return {"extra_bytes": used, "leaf_bytes": leaf_bytes, "leaves": used / leaf_bytes}


def _side(tensors: list[torch.Tensor]) -> Side:
    return Side(
        outputs=[Leaf(f"output[{index}]", tensor) for index, tensor in enumerate(tensors)],
        arguments=[],
        state={},
        gradients=[],
        cotangents=Cotangents({}),
        error=None,
        gradient_error=None,
        accumulated=[],
        touched=frozenset(),
        outside=[],
        kept=[],
        objects=[],
        kept_objects=[],
    )


def guard_module(device: str, _change: float) -> dict[str, float]:
    """Guard a module that is almost all parameters, without gradients."""
    layers = [nn.Linear(_WIDTH, _WIDTH, bias=False, device=device) for _ in range(_LAYERS)]
    module = nn.Sequential(*layers).eval()
    x = torch.randn(4, _WIDTH, device=device)
    random_state()
    spec = CompileCheck(backend="aot_eager")
    small = Check(
        make_plan(spec, Options(no_timing=True), nodeid="", name="small"), nn.Linear(2, 2)
    )
    plan = make_plan(spec, Options(no_timing=True), nodeid="", name="module")
    check = Check(plan, module)
    with torch.no_grad():
        # Loads the compiler, so that its own memory is not counted.
        small.start(cold=True)
        small.call((torch.ones(2, 2),), {})
        module(x)
        check.start(cold=True)
        used = extra_bytes(device, lambda: check.call((x,), {}))
    parity = check.calls[0].parity
    assert parity is not None, check.calls[0]
    assert not parity.mismatches
    held = sum(parameter.nbytes for parameter in module.parameters())
    return {"extra_bytes": used, "parameter_bytes": held, "parameters": used / held}


CASES: dict[str, Callable[[str, float], dict[str, float]]] = {
    "equal leaves": compare_leaves,
    "leaves within the tolerance": compare_leaves,
    "leaves that rounding explains": compare_leaves,
    "module": guard_module,
}
CHANGES = {"leaves within the tolerance": 1e-7, "leaves that rounding explains": 3e-6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--case", choices=tuple(CASES))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.case:
        found = CASES[asked.case](asked.device, CHANGES.get(asked.case, 0.0))
        sys.stdout.write(json.dumps(found))
        return
    gpu = asked.device == "cuda"
    results = {
        "device": torch.cuda.get_device_name() if gpu else platform.machine(),
        "torch": torch.__version__,
        "cases": {name: _in_a_process(name, asked.device) for name in CASES},
    }
    text = json.dumps(results, indent=2) + "\n"
    sys.stdout.write(text)
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")


def _in_a_process(name: str, device: str) -> object:
    command = [sys.executable, __file__, "--case", name, "--device", device]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
