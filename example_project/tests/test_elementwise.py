"""The simplest use: one function, one marker, a promise of speed."""

from __future__ import annotations

import pytest
import torch

from pytest_compileguard import CompileGuard, compile_check
from toyshop.elementwise import transform

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@compile_check(max_graph_breaks=0, max_recompiles=0, min_speedup=1.2)
def test_transform_is_one_graph_and_faster(compileguard: CompileGuard, device: str) -> None:
    # Large enough that memory traffic decides, and not the cost of a call.
    size = 8192 if device == "cuda" else 2048
    x = torch.randn(size, size, device=device)
    shift, scale = torch.randn(2, size, device=device)

    out = compileguard(transform)(x, shift, scale)

    assert out.shape == x.shape
    assert out.min() >= 0


@pytest.mark.parametrize("mode", MODES)
@compile_check(max_graph_breaks=0, max_recompiles=0)
def test_transform_in_every_mode(compileguard: CompileGuard, device: str, mode: str) -> None:
    guarded = compileguard(transform, mode=mode)
    shift, scale = torch.randn(2, 64, device=device)

    for _ in range(3):
        guarded(torch.randn(32, 64, device=device), shift, scale)
