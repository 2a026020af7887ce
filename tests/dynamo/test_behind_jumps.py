"""What jumps excuse, they excuse of rounding alone: a fault behind many jumps is found."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.dynamo.checked import Checked, check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

MASK = (torch.rand(8, 16, generator=torch.Generator().manual_seed(0)) > 0.3).float()


def changing(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda *args: [change(out) for out in graph(*args)]

    return backend


def gradient_times(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda out: out * factor - out.detach() * (factor - 1)


def narrow(_call: int) -> contextlib.AbstractContextManager[object]:
    return torch.autocast("cpu", torch.bfloat16)


def as_it_is(_call: int) -> contextlib.AbstractContextManager[object]:
    return contextlib.nullcontext()


def seen(
    target: Callable[..., Any],
    *arguments: torch.Tensor,
    change: Callable[[torch.Tensor], torch.Tensor],
    around: Callable[[int], contextlib.AbstractContextManager[object]] = narrow,
) -> Checked:
    backend = changing(change)
    return check(target, arguments, around=around, backend=backend, locates=False)


def through(depth: int) -> Callable[[torch.Tensor], torch.Tensor]:
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(1)) / 5.6

    def target(x: torch.Tensor) -> torch.Tensor:
        for _ in range(depth):
            x = torch.relu(x @ weight)
        return x

    return target


@pytest.mark.parametrize("depth", (2, 4, 8))
@pytest.mark.parametrize("factor", (0.0, 1.3, -1.0))
def test_a_factor_in_a_gradient_behind_many_jumps(depth: int, factor: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(32, 64, requires_grad=True)
    assert "gradient of x" in seen(through(depth), x, change=gradient_times(factor)).told


@pytest.mark.parametrize("depth", (2, 4, 8))
def test_a_factor_in_an_output_behind_many_jumps(depth: int) -> None:
    torch.manual_seed(0)
    assert "output" in seen(through(depth), torch.randn(32, 64), change=lambda y: y * 1.05).told


def equal_one(x: torch.Tensor) -> torch.Tensor:
    return x == 1


def whole(x: torch.Tensor) -> torch.Tensor:
    return x.long()


def padded(x: torch.Tensor) -> torch.Tensor:
    return (1 - x).bool()


@pytest.mark.parametrize("around", (as_it_is, narrow))
@pytest.mark.parametrize(
    ("target", "change"),
    ((equal_one, torch.zeros_like), (whole, lambda out: out - 1), (padded, torch.ones_like)),
)
def test_whole_numbers_of_values_that_lie_on_a_jump(
    target: Callable[..., Any],
    change: Callable[[torch.Tensor], torch.Tensor],
    around: Callable[[int], contextlib.AbstractContextManager[object]],
) -> None:
    assert "output" in seen(target, MASK, change=change, around=around).told


def test_whole_numbers_beside_products_that_jump() -> None:
    """A mask is exact, however narrow the products beside it are."""

    def target(x: torch.Tensor) -> Any:
        return torch.relu(x @ x.t()), x == 1

    def lose(out: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(out) if out.dtype == torch.bool else out

    assert "output[1]" in seen(target, MASK, change=lose).told


def test_more_others_than_rounding_makes() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(64, 64), torch.randn(64, 64)

    def target(x: torch.Tensor) -> torch.Tensor:
        return x @ weight > 0

    assert "output" in seen(target, x, change=torch.logical_not).told


@pytest.mark.parametrize("change", (torch.neg, torch.zeros_like))
def test_products_that_write_to_an_argument(
    change: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    def target(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(16, 8, dtype=x.dtype)
        torch.mm(x, weight, out=out)
        return out

    torch.manual_seed(0)
    pair = torch.randn(16, 64).bfloat16(), torch.randn(64, 8).bfloat16()
    assert "output" in seen(target, *pair, change=change, around=as_it_is).told


def test_all_gradients_lost_that_are_too_small_for_the_tolerance() -> None:
    torch.manual_seed(0)
    layers = [m for _ in range(10) for m in (nn.Linear(64, 64, bias=False), nn.ReLU())]
    net = nn.Sequential(*layers, nn.Linear(64, 8, bias=False))

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.net(x)
            return (out.float().square() * 1e-5).mean()

    told = seen(Loss(), torch.randn(32, 64), change=gradient_times(0)).told
    assert "wrong by float64, and too small for the tolerance" in told


def test_a_tensor_without_data_beside_what_is_disputed() -> None:
    torch.manual_seed(0)
    told = seen(
        lambda x, y: (through(2)(x), y + 1),
        torch.randn(8, 64),
        torch.empty(3, device="meta"),
        change=lambda out: out * 1.3,
    ).told
    assert "output[0]" in told
    assert "the shadow call failed" not in told
