"""What a GPU rounds otherwise than eager: sums in which digits cancel, and what must not pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.dynamo.checked import check
from tests.dynamo.test_behind_jumps import changing, gradient_times
from tests.dynamo.test_coarse_inputs import WIDENED
from tests.dynamo.test_one_scalar import CANCELLING, slope

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("compiler_loaded")]

SEEDS = range(8)


def near_30(seed: int, *shape: int) -> torch.Tensor:
    chances = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(*shape, generator=chances, device="cuda") + 30


def lines(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    return near_30(seed, 500, 3).requires_grad_(), near_30(seed + 50, 500, 3).requires_grad_()


@pytest.mark.parametrize("name", CANCELLING)
def test_one_sum_in_which_digits_cancel_is_right(name: str) -> None:
    target = CANCELLING[name]
    for seed in SEEDS:
        seen = check(target, (near_30(seed, 4000),), backend="inductor", locates=False)
        assert seen.told == "", seed
    wrong = changing(lambda out: out * 1.1)
    assert "output" in check(target, (near_30(0, 4000),), backend=wrong, locates=False).told


def test_gradients_of_sums_in_which_digits_cancel_are_right() -> None:
    for seed in SEEDS:
        assert check(slope, lines(seed), backend="inductor", locates=False).told == "", seed
    seen = check(slope, lines(0), backend=changing(gradient_times(1.1)), locates=False)
    assert "gradient of x" in seen.told


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
@pytest.mark.parametrize("name", sorted(WIDENED.keys() - {"a product", "promoted"}))
def test_float32_results_of_16_bit_inputs_have_their_own_digits(
    name: str, dtype: torch.dtype
) -> None:
    target: Callable[..., torch.Tensor] = WIDENED[name]
    x = torch.randn(64, 32, device="cuda").to(dtype)
    assert check(target, (x,), backend="inductor", locates=False).told == ""
    wrong = changing(lambda out: out * 1.001)
    assert "output" in check(target, (x,), backend=wrong, locates=False).told
