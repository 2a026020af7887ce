"""Compiled code that raises as it runs, where eager does not, is told as that."""
# mypy: disallow-untyped-calls=False

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func, nop
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd

from pytest_compileguard.spec import CompileCheck
from tests.dynamo.checked import check
from tests.dynamo.torch_versions import TORCH

pytestmark = pytest.mark.usefixtures("compiler_loaded")


@pytest.fixture
def picky() -> Iterator[None]:
    """An operator whose fake kernel takes tensors that its real one refuses."""
    library = torch.library.Library("picky", "FRAGMENT")
    library.define("copy(Tensor x) -> Tensor")

    def copy(x: Tensor) -> Tensor:
        if not x.is_contiguous():
            raise RuntimeError("only contiguous tensors")
        return x.clone()

    library.impl("copy", copy, "CPU")
    torch.library.register_fake("picky::copy", torch.empty_like, lib=library)
    yield
    library._destroy()


def laid_out_otherwise(x: Tensor) -> Any:
    joined = torch.cat([torch.tensor([]), x.relu().transpose(1, 2)], dim=-2)
    return torch.ops.picky.copy(joined)


@pytest.mark.usefixtures("picky")
def test_code_that_raises_as_it_runs_is_told_with_its_operator() -> None:
    spec = CompileCheck(
        backend="aot_eager_decomp_partition", max_graph_breaks=0, max_compile_time_s=99
    )
    seen = check(laid_out_otherwise, (torch.ones(2, 8, 4, 8),), spec=spec)

    assert seen.facts.graphs == 1
    assert "compiled code raised RuntimeError, eager did not: only contiguous tensors" in seen.told
    named = "in the operator torch.ops.picky.copy.default" in seen.told
    assert named == (TORCH >= (2, 10))  # before, backends interpret graphs
    assert f"at {__file__}:" in seen.told
    assert "parity (compiled code raised)" in seen.told
    assert "nothing was compiled" not in seen.told


def without_backward(*, compiles: bool) -> CompileCheck:
    """Ask for a backend whose backward pass raises: as it runs, or as it is compiled."""

    def backward(graph: Any, inputs: Any) -> Any:
        del graph, inputs
        if not compiles:
            raise RuntimeError("no backward")

        def run(*_args: Any) -> Any:
            raise RuntimeError("no backward")

        return make_boxed_func(run)

    return CompileCheck(backend=aot_autograd(fw_compiler=nop, bw_compiler=backward))


@pytest.mark.parametrize("compiles", (True, False))
def test_backward_that_raises_is_told_by_whether_it_ran(*, compiles: bool) -> None:
    x = torch.ones(3, requires_grad=True)
    spec = without_backward(compiles=compiles)
    seen = check(lambda x: x.sin(), (x,), spec=spec, locates=False)

    assert "no backward" in seen.told
    assert ("compiled code raised RuntimeError, eager did not" in seen.told) == compiles
    told = "the backward pass could not be compiled: RuntimeError: no backward" in seen.told
    assert told is not compiles
    assert "nothing was compiled" not in seen.told


@pytest.mark.parametrize("compiles", (True, False))
def test_a_backend_whose_backward_raises_computes_nothing_wrong(*, compiles: bool) -> None:
    x = torch.ones(3, requires_grad=True)
    spec = without_backward(compiles=compiles)
    told = check(lambda x: x.sin(), (x,), spec=spec).told

    assert "mend the backend, which raises where the backward pass is compiled, or runs" in told
    assert "computes something else" not in told
    assert "torch._check" not in told


def reshapes_while_traced(x: Tensor) -> Tensor:
    return (x * 2).unsqueeze(0) if torch.compiler.is_compiling() else x * 2


@pytest.mark.parametrize("locates", (True, False))
def test_an_output_of_another_shape_is_no_error_of_compiled_code(*, locates: bool) -> None:
    x = torch.ones(3, requires_grad=True)
    spec = CompileCheck(backend="aot_eager")
    seen = check(reshapes_while_traced, (x,), spec=spec, locates=locates)

    assert seen.told.startswith("test: compiled differs from eager (1 of ")
    assert "output: shape: compiled [1, 3], eager [3]" in seen.told
    assert "Mismatch in shape" not in seen.told
    assert "compiled code raised" not in seen.told
    assert ("departs first at stage eager" in seen.told) is locates
    assert "could not run" not in seen.told
