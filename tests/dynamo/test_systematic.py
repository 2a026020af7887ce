"""An error of all elements alike is no rounding, also where each of them alone could be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_compileguard.observation import ParityObservation
from pytest_compileguard.options import Options
from pytest_compileguard.parity.reference import acquits
from pytest_compileguard.plan import make_plan
from pytest_compileguard.runner import Check
from pytest_compileguard.spec import CompileCheck

pytestmark = pytest.mark.usefixtures("compiler_loaded")


def times(factor: float) -> Callable[..., Any]:
    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda *args: tuple(out * factor for out in graph(*args))

    return backend


def drawn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def tripled(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def rectified(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ x.t())


def parity_of(
    target: Callable[..., Any], x: torch.Tensor, backend: Callable[..., Any]
) -> ParityObservation:
    options = Options(no_timing=True, no_locate=True)
    made = Check(
        make_plan(CompileCheck(backend=backend), options, nodeid="t.py::t", name="target"), target
    )
    made.start(cold=True)
    made.call((x,), {})
    seen = made.finish().parity
    assert isinstance(seen, ParityObservation)
    return seen


@pytest.mark.parametrize("target", (tripled, rectified))
@pytest.mark.parametrize("shape", ((50, 1), (4, 2), (70, 40)))
@pytest.mark.parametrize(("dtype", "factor"), ((torch.bfloat16, 1.02), (torch.float16, 1.002)))
def test_a_factor_near_one_is_no_rounding(
    target: Callable[..., Any], shape: tuple[int, ...], dtype: torch.dtype, factor: float
) -> None:
    x = drawn(*shape, dtype=dtype)
    seen = parity_of(target, x, times(factor))
    assert [m.path for m in seen.mismatches] == ["output"]
    assert not parity_of(target, x, times(1.0)).mismatches


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
@pytest.mark.parametrize("count", (1, 2, 4, 8, 16, 50, 300, 5000))
def test_rounding_twice_is_acquitted_however_few_elements_there_are(
    dtype: torch.dtype, count: int
) -> None:
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        exact = torch.randn(count, generator=generator, dtype=torch.float64)
        exact = exact.to(dtype).double() * 3
        eager = exact.to(dtype)
        compiled = ((exact / 0.7).to(dtype).double() * 0.7).to(dtype)
        assert acquits(compiled, eager, exact), seed
