"""All elements may share the error of one number: how far it leads is known from moving sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.dynamo.checked import check
from tests.dynamo.test_behind_jumps import changing, gradient_times

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Target = Callable[..., torch.Tensor]
SEEDS = range(6)


def slope(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of a regression line, by column."""
    covariance = (x * y).mean(0) - x.mean(0) * y.mean(0)
    return covariance / ((x * x).mean(0) - x.mean(0) ** 2)


def near_30(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) + 30


CANCELLING: dict[str, Target] = {
    "scaled by a one-pass variance": lambda x: x * ((x * x).mean() - x.mean() ** 2),
    "a one-pass norm": lambda x: (x - x.mean()) * torch.rsqrt((x * x).mean() - x.mean() ** 2),
    "divided by a difference of sums": lambda x: x / (x.sum() - 29.9 * x.numel()),
    "a difference of norms": lambda x: x * (x.norm() - 29.9 * x.numel() ** 0.5),
    "a difference of products": lambda x: x * (x @ x - 899.0 * x.numel()),
    "a difference of logarithms": lambda x: x * (torch.logsumexp(x, 0) - x.max() - 2.3),
}


def other_order(target: Target) -> Callable[..., Any]:
    return lambda _graph, _inputs: lambda *args: [target(*(arg.flip(0) for arg in args)).flip(0)]


@pytest.mark.parametrize("count", (8, 40, 400))
@pytest.mark.parametrize("name", CANCELLING)
def test_sums_in_another_order_are_right(name: str, count: int) -> None:
    target = CANCELLING[name]
    for seed in SEEDS:
        seen = check(target, (near_30(seed, count),), backend=other_order(target), locates=False)
        assert seen.told == "", seed


@pytest.mark.parametrize("factor", (0.0, -1.0, 0.5, 1.1))
@pytest.mark.parametrize("name", CANCELLING)
def test_a_factor_is_found_all_the_same(name: str, factor: float) -> None:
    wrong = changing(lambda out: out * factor)
    told = check(CANCELLING[name], (near_30(0, 40),), backend=wrong, locates=False).told
    assert "output" in told


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_by_other_sums_are_right(seed: int) -> None:
    lines = near_30(seed, 20, 3).requires_grad_(), near_30(seed + 50, 20, 3).requires_grad_()

    def backend(_graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda *args: [slope(*(arg.flip(0) for arg in args))]

    assert check(slope, lines, backend=backend, locates=False).told == ""
    seen = check(slope, lines, backend=changing(gradient_times(1.1)), locates=False)
    assert "gradient of x" in seen.told


@pytest.mark.parametrize("count", (20, 500))
def test_the_sums_of_inductor_are_right(count: int) -> None:
    for seed in range(4):
        columns = near_30(seed, count, 3), near_30(seed + 50, count, 3)
        lines = [column.requires_grad_() for column in columns]
        assert check(slope, tuple(lines), backend="inductor", locates=False).told == "", seed


def test_long_sums_that_are_added_up_one_by_one_are_right() -> None:
    def one_by_one(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for number in x:
            total = total + number
        return x / (total - 29.9 * x.numel())

    target, backend = CANCELLING["divided by a difference of sums"], other_order(one_by_one)
    for seed in SEEDS:
        assert check(target, (near_30(seed, 2000),), backend=backend, locates=False).told == "", (
            seed
        )


ON_A_JUMP: dict[str, Target] = {
    "a sum": lambda x, row: x * (x.sum(-1, keepdim=True) >= row.sum(-1, keepdim=True)),
    "a mean": lambda x, row: torch.where(x.mean() > row.mean(), -x, x),
    "a norm": lambda x, row: torch.where(x.norm() == row.norm(), x, 0.0),
}


@pytest.mark.parametrize("factor", (0.0, -1.0, 0.5, 1.1))
@pytest.mark.parametrize("name", ON_A_JUMP)
def test_a_sum_that_stands_on_a_jump_excuses_nothing(name: str, factor: float) -> None:
    row = near_30(0, 4, 5)
    wrong = changing(lambda out: out * factor)
    told = check(ON_A_JUMP[name], (row, row.clone()), backend=wrong, locates=False).told
    assert "output" in told


def test_a_number_of_16_bits_in_which_digits_cancel_may_be_rounded() -> None:
    def target(x: torch.Tensor) -> torch.Tensor:
        return x.sum() - 182 / 256

    x = torch.tensor([77, 146], dtype=torch.bfloat16) / 256  # eager's sum of these is exact
    unit = torch.finfo(torch.bfloat16).eps / 2  # of that sum
    for other in (0.0, unit, -unit):
        backend = changing(lambda out, other=other: out + other)  # type: ignore[misc]
        assert check(target, (x,), backend=backend, locates=False).told == ""
    for factor in (0.0, -1.0, 0.5, 1.5):
        backend = changing(lambda out, factor=factor: out * factor)  # type: ignore[misc]
        assert "output" in check(target, (x,), backend=backend, locates=False).told
