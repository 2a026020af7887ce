"""Where functions jump, the type that products are made in decides on which side a value falls.

Under autocast these are 16 bits, and code that rounds other intermediate results is as right. So
values near the jump of ``relu``'s derivative fall on the other side, and gradients with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.dynamo.checked import Checked, check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

CALLS = 12
aten = torch.ops.aten


class RoundsAnyway(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Rounds up or down by chance, the nearer the likelier, where torch rounds to the nearest."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.chance = torch.Generator().manual_seed(0)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        if func is aten._to_copy.default and kwargs.get("dtype") == torch.bfloat16:
            bits = args[0].contiguous().view(torch.int32)
            below = torch.randint(2**16, bits.shape, generator=self.chance, dtype=torch.int32)
            return ((bits + below) & -(2**16)).view(torch.float32).to(torch.bfloat16)
        return func(*args, **kwargs)


def rounding(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """A backend that rounds in the other way, and changes its first result."""

    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            with RoundsAnyway():
                first, *others = graph(*args)
            return [change(first), *others]

        return run

    return backend


def scaled_gradient(first: torch.Tensor) -> torch.Tensor:
    return first * 1.25 - first.detach() * 0.25


def shifted_gradient(first: torch.Tensor) -> torch.Tensor:
    return first + (first - first.detach()).roll(1, 0)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU6())


def pooled() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.MaxPool1d(4), nn.Linear(32, 16), nn.Hardtanh())


def autocast(
    target: Callable[..., Any], *calls: tuple[torch.Tensor, ...], backend: Callable[..., Any]
) -> Checked:
    """Check calls that are made under autocast."""
    return check(
        target,
        *calls,
        around=lambda _call: torch.autocast("cpu", torch.bfloat16),
        backend=backend,
        locates=False,
    )


def products(rows: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The factors of some calls."""
    torch.manual_seed(0)
    return [(torch.randn(rows, 64), torch.randn(64, 64)) for _ in range(CALLS)]


def seen(make: Callable[[], nn.Module], change: Callable[[torch.Tensor], torch.Tensor]) -> Checked:
    torch.manual_seed(0)
    calls = [(torch.randn(32, 64, requires_grad=True),) for _ in range(CALLS)]
    return autocast(make(), *calls, backend=rounding(change))


@pytest.mark.parametrize("make", (perceptron, pooled))
def test_a_value_that_falls_on_the_other_side_is_no_error(make: Callable[[], nn.Module]) -> None:
    assert seen(make, lambda first: first).told == ""


@pytest.mark.parametrize("make", (perceptron, pooled))
@pytest.mark.parametrize("change", (scaled_gradient, shifted_gradient))
def test_a_wrong_gradient_behind_jumps_is_one(
    make: Callable[[], nn.Module], change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    assert f"compiled differs from eager in {CALLS} of {CALLS} calls" in seen(make, change).told


def last_times(factor: float) -> Callable[..., Any]:
    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            *others, last = graph(*args)
            return [*others, last * factor]

        return run

    return backend


def without_products(x: torch.Tensor, weight: torch.Tensor) -> Any:
    return torch.relu(x @ weight), torch.tanh(x * 3)


def wide_products(x: torch.Tensor, weight: torch.Tensor) -> Any:
    narrow = torch.relu(x @ weight)
    with torch.autocast("cpu", enabled=False):
        return narrow, x @ weight


@pytest.mark.parametrize("factor", (1.0, 1.001))
@pytest.mark.parametrize("target", (without_products, wide_products))
def test_what_never_passed_16_bits_is_held_to_its_own_digits(
    target: Callable[..., Any], factor: float
) -> None:
    torch.manual_seed(0)
    call = torch.randn(32, 64), torch.randn(64, 8)
    told = autocast(target, call, backend=last_times(factor)).told
    assert ("output[1]" in told) == (factor != 1), told


def steps(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x @ weight > 0).float()


def test_where_eager_jumped_nowhere_its_error_tells_nothing() -> None:
    assert autocast(steps, *products(8), backend=rounding(lambda first: first)).told == ""


def best(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x @ weight).argmax(-1)


def positive(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x @ weight > 0


def few_best(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.topk(x @ weight, 3, -1).indices


@pytest.mark.parametrize("wrong", (False, True))
@pytest.mark.parametrize("target", (best, positive, few_best))
def test_whole_numbers_that_rounding_decides(target: Callable[..., Any], *, wrong: bool) -> None:
    backend = rounding(lambda first: first.roll(1, 0) if wrong else first)
    told = autocast(target, *products(32), backend=backend).told
    assert (f"compiled differs from eager in {CALLS} of {CALLS} calls" if wrong else "") in told
    assert wrong or told == ""


def selected(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = x @ weight
    return y[y > 0]


def test_where_rounding_decides_how_many_there_are_sides_of_one_length_are_compared() -> None:
    told = autocast(selected, *products(32), backend=rounding(lambda first: first)).told
    assert "the shadow call failed" not in told
    assert "output: shape: compiled [" in told


def on_copies(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
    """A backend that loses what the graph writes to its inputs."""
    return lambda *args: graph(*(arg.clone() for arg in args))


def test_a_lost_step_is_smaller_than_what_products_round_and_found_all_the_same() -> None:
    """Products round to 16 bits, and not the weight that is written to."""

    def step(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x @ weight)
        weight.sub_(1e-4 * (x.t() @ y).float())
        return y

    torch.manual_seed(0)
    call = torch.randn(32, 64), 1 + 0.1 * torch.rand(64, 64)
    told = autocast(step, call, backend=on_copies).told
    assert "call 1, weight after the call: " in told, told


@pytest.mark.parametrize("factor", (1.0, 1.25))
def test_products_within_control_flow(factor: float) -> None:
    """Within a dispatch mode, ``torch.cond`` has no gradients: nothing there rounds as 16 bits."""

    def either(x: torch.Tensor, weight: torch.Tensor) -> Any:
        return torch.cond(
            x.sum() > 0, lambda x, w: torch.relu(x @ w), lambda x, w: x @ w, (x, weight)
        )

    torch.manual_seed(0)
    call = torch.randn(32, 64, requires_grad=True), torch.randn(64, 8, requires_grad=True)
    told = autocast(either, call, backend=last_times(factor)).told
    assert ("compiled differs from eager" in told) == (factor != 1), told
