"""Inputs of few digits are exact: a result of more digits is held to its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.dynamo.checked import check
from tests.dynamo.test_behind_jumps import changing, gradient_times

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Target = Callable[..., torch.Tensor]
ROW = torch.tensor([0.7, 1.3, -0.4])
HALF_TYPES = (torch.bfloat16, torch.float16)


def x(dtype: torch.dtype, *, away_from_0: float = 0.0) -> torch.Tensor:
    made = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    return (made + away_from_0).to(dtype)


def off(factor: float) -> Callable[..., Any]:
    return changing(lambda out: out * factor)


WIDENED: dict[str, Target] = {
    "cast": lambda x: x.to(torch.float32),
    "cast and scaled": lambda x: x.float() * 0.3,
    "a sum": lambda x: x.float().sum(0),
    "a mean in another type": lambda x: x.mean(-1, dtype=torch.float32),
    "a product": lambda x: x.float() @ ROW,
    "promoted": lambda x: x * ROW,
    "a softmax": lambda x: torch.softmax(x, -1, dtype=torch.float32),
    "behind a jump": lambda x: torch.relu(x.float()) * 1.1,
    "where": lambda x: torch.where(x > 0.25, x.float(), 0.7),
}


@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("name", WIDENED)
def test_a_small_factor_is_found_in_float32(name: str, dtype: torch.dtype) -> None:
    target = WIDENED[name]
    assert check(target, (x(dtype),), backend="aot_eager", locates=False).told == ""
    for factor in (1.001, 0.999, 1.01):
        seen = check(target, (x(dtype),), backend=off(factor), locates=False)
        assert "output" in seen.told, factor


@pytest.mark.parametrize("dtype", (*HALF_TYPES, torch.float32))
def test_a_small_factor_is_found_in_float64(dtype: torch.dtype) -> None:
    for target in (lambda x: x.double(), lambda x: x.double() * 0.3, lambda x: x * ROW.double()):
        seen = check(target, (x(dtype),), backend=off(1 + 1e-6), locates=False)
        assert "output" in seen.told


@pytest.mark.parametrize("dtype", (torch.int64, torch.int16, torch.bool))
def test_a_small_factor_is_found_in_float64_of_integers(dtype: torch.dtype) -> None:
    numbers = torch.arange(-5, 7).to(dtype)
    for target in (lambda x: x.double() / 3, lambda x: x.to(torch.float64) * 0.7):
        seen = check(target, (numbers,), backend=off(1 + 1e-6), locates=False)
        assert "output" in seen.told


@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_a_small_factor_is_found_in_a_float32_gradient(dtype: torch.dtype) -> None:
    weight = ROW.clone().requires_grad_()
    seen = check(
        lambda x, weight: (x.float() * weight).sum(),
        (x(dtype), weight),
        backend=changing(gradient_times(1.001)),
        locates=False,
    )
    assert "gradient of weight" in seen.told


@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_a_small_factor_is_found_in_a_change(dtype: torch.dtype) -> None:
    def add(total: torch.Tensor, x: torch.Tensor) -> None:
        total += x

    def wrong(_graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        def add_more(total: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
            return [total.add_(x, alpha=1.001)]

        return add_more

    seen = check(add, (torch.ones(4, 3), x(dtype)), backend=wrong, locates=False)
    assert "total" in seen.told


def up(rounded: torch.Tensor) -> torch.Tensor:
    """Give the next greater number, as code may whose intermediate results have other digits."""
    return torch.nextafter(rounded, torch.full_like(rounded, torch.inf))


ROUNDED: dict[str, tuple[Target, Target]] = {
    "a product and a sum": (
        lambda x: (x * 0.7 + 0.1).float(),
        lambda x: x.float() * 0.7 + 0.1,
    ),
    "several products": (
        lambda x: (x / 3 * 0.7 * x).float(),
        lambda x: x.float() / 3 * 0.7 * x,
    ),
    "rounded the other way": (
        lambda x: (x * 0.7 + 0.1).float(),
        lambda x: (up(x * 0.7) + 0.1).float(),
    ),
    "a jump, decided in more digits": (
        lambda x: (x / 3 * 0.7 > 0.29).float(),
        lambda x: (x.float() / 3 * 0.7 > torch.tensor(0.29, dtype=x.dtype)).float(),
    ),
    "a jump, decided by other digits": (
        lambda x: (x * 0.7 + 0.1 > 0.979).float(),
        lambda x: (up(x * 0.7) + 0.1 > 0.979).float(),
    ),
    "a jump behind which lies what has all digits": (
        lambda x: torch.where(x * 0.7 > 0.879, x.float() * 1.1, 0.3),
        lambda x: torch.where(up(x * 0.7) > 0.879, x.float() * 1.1, 0.3),
    ),
}


@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("name", ROUNDED)
def test_what_was_rounded_to_16_bits_on_the_way_may_differ(name: str, dtype: torch.dtype) -> None:
    target, other = ROUNDED[name]
    near = (1.2578125 + torch.finfo(dtype).eps * torch.arange(-2000, 2000)).to(dtype)

    def rounding(_graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda *args: [other(args[-1])]

    assert check(target, (near,), backend=rounding, locates=False).told == ""
    assert not torch.equal(target(near), other(near))
