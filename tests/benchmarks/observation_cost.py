"""What observing costs: cold compile and warm calls of a 24-layer transformer.

Plain ``torch.compile`` and the same under ``dynamo.tracing`` take turns in one process,
the first of each pair alternating, each compile with an empty cache. Reported is the median
of the paired ratios; absolute times only describe the machine. Warm calls are timed before
and after an observed call, and, as the control, before and after one that is not.

    python tests/benchmarks/observation_cost.py --device cuda --repeats 8 --json out.json
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

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
    gc.collect()
    compiled = torch.compile(target, backend=backend)
    with fresh_cache(), torch.no_grad():
        start = time.perf_counter()
        with listening(how):
            compiled(x)
            _settle(x)
        return time.perf_counter() - start


def warm_ratios(
    target: torch.nn.Module, x: torch.Tensor, backend: str, pairs: int = 60
) -> dict[str, float]:
    """Warm calls after one more call, by warm calls before it: median over pairs."""
    compiled = torch.compile(target, backend=backend)
    ratios: dict[str, list[float]] = {"observed": [], "plain": []}
    with torch.no_grad():
        for _ in range(20):
            compiled(x)
        for _ in range(pairs):
            for how, found in ratios.items():
                before = block_s(compiled, x)
                with listening(how):
                    compiled(x)
                found.append(block_s(compiled, x) / before)
    return {how: statistics.median(found) for how, found in ratios.items()}


def listening(how: str) -> contextlib.AbstractContextManager[object]:
    return dynamo.tracing(0, set()) if how == "observed" else contextlib.nullcontext()


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
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    target, x = model(options.device), torch.randn(4, 32, 128, device=options.device)
    compile_s(target, x, options.backend, "observed")  # what torch's first use costs
    times: dict[str, list[float]] = {"plain": [], "observed": []}
    for repeat in range(options.repeats):
        for how in sorted(times, reverse=bool(repeat % 2)):
            times[how].append(compile_s(target, x, options.backend, how))
    pairs = zip(times["observed"], times["plain"], strict=True)
    warm = warm_ratios(target, x, options.backend)
    results = {
        "command": " ".join(["python", *sys.argv]),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else platform.machine(),
        "backend": options.backend,
        "layers": LAYERS,
        "cold_compile_s": times,
        "cold_ratio": statistics.median(observed / plain for observed, plain in pairs),
        "warm_ratio": warm["observed"],
        "warm_ratio_of_the_control": warm["plain"],
    }
    text = json.dumps(results, indent=2)
    sys.stdout.write(text + "\n")
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
