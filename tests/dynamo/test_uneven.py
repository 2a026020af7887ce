"""What most of a leaf holds excuses nothing among its other elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

KEPT = torch.arange(64)[None] < torch.tensor([[60], [20], [10], [8]])  # the minority
Change = Callable[[torch.Tensor], torch.Tensor]


def outcome(target: Callable[..., Any], x: torch.Tensor, change: Change) -> str:
    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda *args: tuple(change(out) for out in graph(*args))

    return check(target, (x,), backend=backend).verdict.outcome


@pytest.mark.parametrize(
    ("dtype", "fill", "by"),
    (
        (torch.float32, -1e9, 100.0),
        (torch.float32, -1e4, 0.05),
        (torch.bfloat16, -1e4, 100.0),
        (torch.float16, -1e4, 15.0),
    ),
)
def test_a_mask_that_covers_most_hides_nothing_behind_it(
    dtype: torch.dtype, fill: float, by: float
) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 64).to(dtype)

    def masked(x: torch.Tensor) -> torch.Tensor:
        return (x * 3).masked_fill(~KEPT, fill)

    assert outcome(masked, x, lambda out: torch.where(out > -1e3, out + by, out)) == "failed"
    assert outcome(masked, x, lambda out: out) == "passed"


def test_a_column_of_large_numbers_hides_nothing_beside_it() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 5)

    def head(x: torch.Tensor) -> torch.Tensor:
        return torch.cat((x[:, :4] * 1e6, x[:, 4:].sigmoid()), 1)

    def flips(out: torch.Tensor) -> torch.Tensor:
        return torch.cat((out[:, :4], 1 - out[:, 4:]), 1)

    assert outcome(head, x, flips) == "failed"


def test_a_rough_column_hides_nothing_beside_it() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 8)

    def rough(x: torch.Tensor) -> torch.Tensor:
        return torch.cat(((x[:, :4] + 1e5) - 1e5, x[:, 4:].sin()), 1)

    def scales(out: torch.Tensor) -> torch.Tensor:
        return torch.cat((out[:, :4], out[:, 4:] * 1.014), 1)

    assert outcome(rough, x, scales) == "failed"


def test_a_counter_that_is_one_behind_is_wrong() -> None:
    assert outcome(lambda x: x + 1, torch.tensor(150000.0), lambda out: out - 1) == "failed"
