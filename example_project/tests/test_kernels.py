"""Kernels in Triton, inside compiled code, against plain torch."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from pytest_compileguard import CompileGuard, compile_check

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton kernels need a CUDA device"),
    compile_check(max_graph_breaks=0, max_recompiles=0),
]


@pytest.fixture
def kernels() -> ModuleType:
    """The module of kernels, imported late: it needs Triton."""
    from toyshop import kernels  # noqa: PLC0415

    return kernels


def test_vector_add(compileguard: CompileGuard, kernels: ModuleType) -> None:
    # No multiple of the block, so that the mask matters.
    x, y = torch.randn(2, 100_003, device="cuda")

    out = compileguard(kernels.vector_add)(x, y)

    torch.testing.assert_close(out, x + y)


def test_bias_scale_relu(compileguard: CompileGuard, kernels: ModuleType) -> None:
    x = torch.randn(257, 100, device="cuda")
    bias, scale = torch.randn(2, 100, device="cuda")

    out = compileguard(kernels.bias_scale_relu)(x, bias, scale)

    torch.testing.assert_close(out, torch.relu((x + bias) * scale))
