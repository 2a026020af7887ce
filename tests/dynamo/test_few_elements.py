"""Leaves of few elements: the loud ones are no yardstick of the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.dynamo.checked import check
from tests.dynamo.test_behind_jumps import changing

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Target = Callable[[torch.Tensor], torch.Tensor]
TARGETS: dict[str, Target] = {
    "a product": lambda x: x * 1.1,
    "a power": lambda x: (x.log() * 1.1).exp(),
    "a root": torch.sqrt,
}
LOUD = {torch.bfloat16: 1e7, torch.float32: 1e12, torch.float64: 1e25}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("dtype", LOUD)
@pytest.mark.parametrize(("small", "loud"), ((1, 7), (2, 6), (5, 3), (7, 1), (20, 4), (30, 10)))
def test_small_ones_are_judged_by_themselves(
    target: Target, dtype: torch.dtype, small: int, loud: int
) -> None:
    sizes = torch.linspace(1.01, 2, small), torch.linspace(1.03, 2, loud) * LOUD[dtype]
    x = torch.cat(sizes).to(dtype)
    if target is not TARGETS["a product"] and dtype == torch.float64:
        x = x.clamp(max=1e15)
    for factor in (0.0, -1.0, 1.5):
        factors = torch.where(torch.arange(small + loud) < small, factor, 1.0)
        wrong = changing(lambda out, factors=factors: (out * factors).to(out.dtype))  # type: ignore[misc]
        told = check(target, (x,), backend=wrong, locates=False).told
        assert "output" in told, factor


def test_so_are_small_gradients() -> None:
    bias = torch.ones(8, requires_grad=True)
    scales = torch.tensor([1.1, 1.2, 1.3, 1.4, 1.5, 3e7, 4.1e7, 5.3e7])
    for factor in (0.0, -1.0, 1.5):
        factors = torch.tensor([factor] * 5 + [1.0] * 3)
        wrong = changing(lambda o, f=factors: o * f - o.detach() * (f - 1))  # type: ignore[misc]
        told = check(lambda b: (b * 1.1).exp() * scales * 1.1, (bias,), backend=wrong).told
        assert "gradient of b" in told, factor


def slope(points: torch.Tensor) -> torch.Tensor:
    """Of a regression line, by column: what cancels in it costs eager four digits."""
    x, y = points[:20], points[20:]
    covariance = (x * y).mean(0) - x.mean(0) * y.mean(0)
    return covariance / ((x * x).mean(0) - x.mean(0) ** 2)


def variance(points: torch.Tensor) -> torch.Tensor:
    return (points * points).mean() - points.mean() ** 2


@pytest.mark.parametrize(("target", "factor"), ((slope, 1.02), (variance, 1.01)))
def test_where_there_are_no_others_eager_was_not_lucky(target: Target, factor: float) -> None:
    for seed in range(8):
        points = torch.randn(40, 2, generator=torch.Generator().manual_seed(seed)) + 30
        wrong = changing(lambda out: out * factor)
        assert "output" in check(target, (points,), backend=wrong, locates=False).told, seed


def others_round(target: Target, dtype: torch.dtype) -> Callable[..., object]:
    """A backend that computes in float64 and rounds once."""

    def backend(_graph: object, _inputs: object) -> Callable[..., object]:
        return lambda *args: [target(args[-1].double()).to(dtype)]

    return backend


SUMS: dict[str, Target] = {
    "differences": lambda x: x.cumsum(0) - x.cumsum(0).flip(0),
    "a variance": lambda x: (x * x).mean(-1) - x.mean(-1) ** 2,
    "products": lambda x: x[:8] @ x[:8].t() - x[8:16] @ x[8:16].t(),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16))
def test_what_cancels_in_some_of_few_elements_is_rounding(name: str, dtype: torch.dtype) -> None:
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(16, 8, generator=generator).add(3).to(dtype)
        seen = check(SUMS[name], (x,), backend=others_round(SUMS[name], dtype), locates=False)
        assert seen.told == "", (seed, seen.told)
