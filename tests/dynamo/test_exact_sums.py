"""Sums that are exact in any order stand for themselves, also where they stand on a jump."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.dynamo.checked import check
from tests.dynamo.test_behind_jumps import changing

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Target = Callable[..., torch.Tensor]


def rows() -> torch.Tensor:
    """Three of ten numbers are positive in each row but the first, which is loud."""
    x = torch.rand(20, 10, generator=torch.Generator().manual_seed(0)) + 0.1
    x[1:, 3:] *= -1
    x[0] *= 1000
    return x


def onehot(x: torch.Tensor) -> torch.Tensor:
    return (x == x.amax(-1, keepdim=True)).float()


def weighted(x: torch.Tensor) -> torch.Tensor:
    """A loss whose classes are weighted by how frequent they are."""
    labels = torch.arange(len(x)) % 10
    weight = torch.where(nn.functional.one_hot(labels, 10).float().mean(0) <= 0.1, 1.05, 1.0)
    return nn.functional.cross_entropy(x, labels, weight=weight, reduction="sum")


GATED: dict[str, Target] = {
    "a share": lambda x: x * ((x > 0).float().mean(-1, keepdim=True) >= 0.3),
    "a count": lambda x: x * ((x > 0).float().sum(-1, keepdim=True) * 0.1 >= 0.3),
    "what was chosen": lambda x: (
        x * ((x * onehot(x)).sum(-1, keepdim=True) >= x.amax(-1, keepdim=True))
    ),
    "a reward": lambda x: (
        (x[1:] ** 2).mean() + 0.01 * ((x * onehot(x)).sum(-1) >= x.amax(-1)).float().mean()
    ),
    "a penalty": lambda x: (
        (x[1:] ** 2).mean() + 0.32 * ((x[1:] > 0).float().mean(-1) < 0.3).float().mean()
    ),
    "weights": weighted,
    "a loud column": lambda x: torch.cat(
        (x[1:] * ((x[1:] > 0).float().mean(-1, keepdim=True) >= 0.3), x[1:, :1] * 0 + 5000), -1
    ),
}


@pytest.mark.parametrize("name", GATED)
def test_a_factor_of_quiet_rows_is_found(name: str) -> None:
    target = GATED[name]
    assert check(target, (rows(),), backend="aot_eager", locates=False).told == ""
    for factor in (0.0, -1.0, 0.5, 1.01, 1.05, 2.0):

        def spoilt(out: torch.Tensor, factor: float = factor) -> torch.Tensor:
            if out.ndim == 0:
                return out * factor
            return torch.cat((out[:1], torch.cat((out[1:, :-1] * factor, out[1:, -1:]), -1)))

        told = check(target, (rows(),), backend=changing(spoilt), locates=False).told
        assert "output" in told, factor


def attention(x: torch.Tensor, mask: torch.Tensor, fill: float) -> torch.Tensor:
    scores = (x @ x.transpose(-1, -2) * 0.25).masked_fill(~mask, fill)
    return torch.softmax(scores, -1) @ x


@pytest.mark.parametrize("fill", (torch.finfo(torch.float32).min, -1e9, -1e4))
def test_a_row_that_is_masked_altogether_hides_nothing(fill: float) -> None:
    x = torch.randn(4, 8, 16, generator=torch.Generator().manual_seed(0))
    mask = torch.tril(torch.ones(8, 8)).bool().repeat(4, 1, 1)
    mask[0, :, 0] = False

    def loss(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (attention(x, mask, fill) ** 2).mean()

    for target in (loss, lambda x, mask: attention(x, mask, fill)):
        assert check(target, (x, mask), backend="aot_eager", locates=False).told == ""
        wrong: Any = changing(lambda out: out * 1.001)
        assert "output" in check(target, (x, mask), backend=wrong, locates=False).told


class LossInFloat32(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(nn.functional.gelu(self.layer(x)).float(), y)


def test_a_loss_whose_errors_cancel_by_luck_may_be_rounded_otherwise() -> None:
    def exact(model: LossInFloat32, x: torch.Tensor, y: torch.Tensor) -> float:
        layer = model.layer.weight.double(), model.layer.bias.double()
        return float(
            ((nn.functional.gelu(nn.functional.linear(x.double(), *layer)) - y) ** 2).mean()
        )

    lucky = []
    for seed in range(1000):
        torch.manual_seed(seed)
        model = LossInFloat32().bfloat16()
        x, y = torch.randn(4, 16).bfloat16(), torch.randn(4, 3)
        with torch.no_grad():
            known = exact(model, x, y)
            if abs(float(model(x, y)) - known) < 2**-18 * known:
                lucky.append((model, x, y))
    assert len(lucky) > 3
    for model, x, y in lucky:
        more: Any = changing(lambda out: out * (1 + 2**-11))
        assert check(model, (x, y), backend=more, locates=False).told == ""
        wrong: Any = changing(lambda out: out * 1.1)
        assert "output" in check(model, (x, y), backend=wrong, locates=False).told
