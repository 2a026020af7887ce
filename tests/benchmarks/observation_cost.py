"""What observing costs: cold compile and warm calls of a 24-layer transformer.

Plain ``torch.compile`` and the same under ``dynamo.tracing`` take turns in one process,
each compile with an empty cache. Reported are ratios of medians; absolute times only
describe the machine.

    python tests/benchmarks/observation_cost.py --device cuda --repeats 3 --json out.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._inductor.utils import fresh_cache

from pytest_compileguard import dynamo

LAYERS = 24


def model(device: str) -> torch.nn.Module:
    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).to(device).eval()


def compile_s(target: torch.nn.Module, x: torch.Tensor, backend: str, how: str) -> float:
    """Seconds of one cold compile, ``plain`` or ``observed``."""
    dynamo.forget_compiled_code()
    context: Any = dynamo.tracing(0, set()) if how == "observed" else contextlib.nullcontext()
    compiled = torch.compile(target, backend=backend)
    with fresh_cache(), torch.no_grad():
        start = time.perf_counter()
        with context:
            compiled(x)
            _settle(x)
        return time.perf_counter() - start


def warm_ratio(target: torch.nn.Module, x: torch.Tensor, backend: str, pairs: int = 40) -> float:
    """Warm calls after an observed call, by warm calls before it: median over pairs."""
    compiled = torch.compile(target, backend=backend)
    with torch.no_grad():
        for _ in range(10):
            compiled(x)
        ratios = []
        for _ in range(pairs):
            before = block_s(compiled, x)
            with dynamo.tracing(0, set()):
                compiled(x)
            ratios.append(block_s(compiled, x) / before)
    return statistics.median(ratios)


def block_s(target: Callable[..., object], x: torch.Tensor, calls: int = 5) -> float:
    _settle(x)
    start = time.perf_counter()
    for _ in range(calls):
        target(x)
    _settle(x)
    return time.perf_counter() - start


def _settle(x: torch.Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    target, x = model(options.device), torch.randn(4, 32, 128, device=options.device)
    compile_s(target, x, options.backend, "observed")  # what torch's first use costs
    times: dict[str, list[float]] = {"plain": [], "observed": []}
    for _ in range(options.repeats):
        for how, taken_s in times.items():
            taken_s.append(compile_s(target, x, options.backend, how))
    medians = {how: statistics.median(taken_s) for how, taken_s in times.items()}
    results = {
        "command": " ".join(["python", *sys.argv]),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else platform.machine(),
        "backend": options.backend,
        "layers": LAYERS,
        "cold_compile_s": times,
        "cold_ratio": medians["observed"] / medians["plain"],
        "warm_ratio": warm_ratio(target, x, options.backend),
    }
    text = json.dumps(results, indent=2)
    sys.stdout.write(text + "\n")
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
