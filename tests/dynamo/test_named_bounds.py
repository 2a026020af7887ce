"""What stands on a bound that code names by a number of many digits is compared like all else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.dynamo.checked import check
from tests.dynamo.test_behind_jumps import changing, gradient_times

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Target = Callable[..., torch.Tensor]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def on_bounds(dtype: torch.dtype) -> torch.Tensor:
    """Numbers that were clamped before, as data often is."""
    x = torch.randn(8, 12, generator=torch.Generator().manual_seed(0))
    return (x * 9).to(dtype).clamp(-0.3, 0.3).requires_grad_()


BOUNDED: dict[str, Target] = {
    "clamp": lambda x: x.clamp(max=0.3) * 2,
    "clamp of both": lambda x: torch.clamp(x, -0.3, 0.3),
    "clamp_": lambda x: x.clone().clamp_(-0.3, 0.3),
    "hardtanh": lambda x: nn.functional.hardtanh(x, -0.3, 0.3),
    "a module": nn.Hardtanh(-0.3, 0.3),
    "threshold": lambda x: nn.functional.threshold(x, 0.3, 0.1) + x,
    "where": lambda x: torch.where(x >= 0.3, x * 3, x),
    "less": lambda x: x * (x <= 0.3),
    "equal": lambda x: x * torch.where(x == 0.3, 2.0, 1.0),
    "masked_fill": lambda x: x.masked_fill(x >= 0.3, 0.7),
    "a filled one": lambda x: torch.where(x < torch.full_like(x, 0.3), x, x * 2),
    "a tensor of a number": lambda x: torch.where(x < torch.tensor(0.3, dtype=x.dtype), x, x * 2),
    "assigned": lambda x: x * ((x * 0).masked_fill(x >= 0, 0.3) <= 0.3),
    "behind a view": lambda x: x.t()[1:].clamp(max=0.3),
    "behind a cast": lambda x: (
        x.float().to(torch.float32).clamp(max=0.3) if x.dtype == torch.float32 else x.clamp(max=0.3)
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BOUNDED)
def test_a_factor_is_found(name: str, dtype: torch.dtype) -> None:
    target = BOUNDED[name]
    x = on_bounds(dtype)
    assert check(target, (x,), backend="aot_eager", locates=False).told == ""
    for factor in (0.5, 2.0, -1.0):
        wrong: Any = changing(gradient_times(factor))
        told = check(target, (x,), backend=wrong, locates=False).told
        assert "gradient of" in told, factor


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_a_small_factor_behind_a_named_bound_is_found_in_float32(dtype: torch.dtype) -> None:
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[0] = 0.3
    for target in (
        lambda x: torch.where(x > 0.3, x.float(), 0.7),
        lambda x: x.float() * (x <= 0.3),
        lambda x: x.clamp(max=0.3).float(),
    ):
        wrong = changing(lambda out: out * 1.001)
        assert "output" in check(target, (x,), backend=wrong, locates=False).told
