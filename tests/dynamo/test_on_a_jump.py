"""What stands on a jump by itself is compared like all else: no rounding put it there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.dynamo.checked import check
from tests.dynamo.test_behind_jumps import changing, gradient_times

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Target = Callable[..., torch.Tensor]
FACTORS = (0.0, -1.0, 0.5, 1.5, 2.0)
ONES = torch.ones(4, 8)
THIRDS = torch.full((4, 8), 1 / 3)
LABELS = torch.tensor([0.0, 1.0, 1.0, 0.0])


def x(*, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    made = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)) + 3
    return made.to(dtype)


def loss(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (x**2 * (mask == 1.0)).sum() / mask.sum()


def contrastive(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.where(labels == 1, x.sum(-1), (1 - x.sum(-1)).clamp(max=-1)).mean()


def attention(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = x + (1.0 - mask) * torch.finfo(x.dtype).min
    return torch.softmax(scores * (mask >= 1), -1) @ x.t()


MASKED: dict[str, tuple[Target, torch.Tensor]] = {
    "equal": (lambda x, mask: torch.where(mask == 1.0, x, 0.0), ONES),
    "not less": (lambda x, mask: x * (mask >= 1), ONES),
    "masked_fill": (lambda x, mask: x.masked_fill(mask != 1, 0.0), ONES),
    "a loss": (loss, ONES),
    "a contrastive loss": (contrastive, LABELS),
    "attention": (attention, ONES),
    "rounded": (lambda x, mask: x * mask * torch.round(mask * 1.5), ONES),
    "a whole part": (lambda x, mask: torch.trunc(mask) * x, ONES),
    "another threshold": (lambda x, mask: x * (mask >= THIRDS.to(x.dtype)), THIRDS),
    "another value": (lambda x, mask: torch.where(mask == THIRDS.to(x.dtype), x, 0.0), THIRDS),
    "the greatest": (lambda x, mask: x * (mask == mask.amax(-1, keepdim=True)), THIRDS),
}


@pytest.mark.parametrize("dtype", (torch.float64, torch.float32, torch.bfloat16, torch.float16))
@pytest.mark.parametrize("name", MASKED)
def test_a_factor_is_found(name: str, dtype: torch.dtype) -> None:
    target, mask = MASKED[name]
    if mask is THIRDS and dtype.itemsize == 2:
        pytest.skip("nothing tells a third from what 16 bits made of another number")
    arguments = x(dtype=dtype), mask.to(dtype)
    for factor in FACTORS:
        wrong = changing(lambda out, factor=factor: out * factor)  # type: ignore[misc]
        told = check(target, arguments, backend=wrong, locates=False).told
        assert "output" in told, (factor, told)


GRADIENTS: dict[str, Target] = {
    "equal": lambda x: torch.where(ONES == 1, x * 2, 0.0),
    "ties": lambda x: (x * 0 + 1).max(-1).values * x.sum(),
    "a threshold": lambda x: torch.relu(x * 0 + THIRDS - 1 / 3) + x,
}


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("factor", FACTORS)
def test_a_factor_in_a_gradient_is_found(name: str, factor: float) -> None:
    argument = x().requires_grad_()
    wrong = changing(gradient_times(factor))
    told = check(GRADIENTS[name], (argument,), backend=wrong, locates=False).told
    assert "gradient of x" in told


SCALARS: dict[str, tuple[Target, torch.Tensor]] = {
    "decides a sign": (lambda x, t: torch.where(t >= 1 / 3, x, -x), torch.tensor(1 / 3)),
    "decides a sum": (lambda x, t: torch.where(t >= 0.1, x.sum(), -x.sum()), torch.tensor(0.1)),
}


@pytest.mark.parametrize("name", SCALARS)
def test_a_single_value_on_a_jump_excuses_nothing(name: str) -> None:
    target, scalar = SCALARS[name]
    for factor in FACTORS:
        wrong = changing(lambda out, factor=factor: out * factor)  # type: ignore[misc]
        assert "output" in check(target, (x(), scalar), backend=wrong, locates=False).told, factor


def instead(target: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """A backend that computes something else."""
    return lambda _graph, _inputs: lambda *args: [target(args[-1])]


COUNTS = torch.arange(96.0).reshape(8, 12)
EIGHTHS = torch.arange(-48, 48) / 8
TENTH, THREE_TENTHS = torch.tensor(0.1).double(), torch.tensor(0.3).double()
ROUNDED: dict[str, tuple[Target, Target, torch.Tensor]] = {
    "a fused multiplication and addition": (
        lambda x: torch.where(x * 0.1 - 0.3 >= 0, x, -x),
        lambda x: torch.where((x.double() * TENTH - THREE_TENTHS).float() >= 0, x, -x),
        COUNTS,
    ),
    "more digits": (
        lambda x: torch.round(x / 0.1),
        lambda x: torch.round(x.double() / TENTH).float(),
        EIGHTHS,
    ),
    "a reciprocal": (
        lambda x: torch.floor(x / 49 * 7),
        lambda x: torch.floor(x * (torch.ones(()) / 49) * 7),
        COUNTS,
    ),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_what_is_computed_of_numbers_of_few_digits_may_be_rounded(name: str) -> None:
    target, other, given = ROUNDED[name]
    seen = check(target, (given,), backend=instead(other), locates=False)
    assert seen.told == ""
    assert not torch.equal(other(given), target(given))
    wrong = instead(lambda x: other(x) * 1.5)
    assert "output" in check(target, (given,), backend=wrong, locates=False).told


EDGES: dict[str, Target] = {
    "no number beyond": lambda x, edge: (x - edge).sqrt() + 2,
    "no number beyond in an angle": lambda x, edge: torch.acos(edge / x) + 2,
    "infinity beyond": lambda x, edge: 1 / (1 + 1 / (x - edge).abs()) + 2,
}


@pytest.mark.parametrize("name", EDGES)
def test_moving_an_input_beyond_what_is_defined_excuses_nothing(name: str) -> None:
    edge = x()

    def one_off(out: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.arange(8) == 1, out * 1.5, out)

    seen = check(EDGES[name], (edge, edge.clone()), backend=changing(one_off), locates=False)
    assert "output" in seen.told
