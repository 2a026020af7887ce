"""Gradients that are, or share memory with, something else that a call has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.compiler import is_compiling

from tests.dynamo.checked import check
from tests.dynamo.planted import WRONG
from tests.dynamo.test_gradients_met import trained

pytestmark = pytest.mark.usefixtures("compiler_loaded")


@torch.no_grad()
def halved(t: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    gradient.mul_(0.25 if is_compiling() and WRONG else 0.5)
    assert t.grad is not None
    return t - t.grad


def judged(target: Callable[..., Any], *calls: tuple[Any, ...], wrong: bool) -> None:
    seen = check(target, *calls, backend="aot_eager")
    assert "can't be isolated" not in seen.told
    assert seen.verdict.outcome == ("failed" if wrong else "passed"), seen.told


def itself(t: torch.Tensor) -> Any:
    return t.grad


def a_view(t: torch.Tensor) -> Any:
    return itself(t)[:2]


def detached(t: torch.Tensor) -> Any:
    return itself(t).detach()


@pytest.mark.parametrize("taken", (itself, a_view, detached))
def test_an_argument_that_is_the_gradient_of_another(taken: Any, wrong: bool) -> None:  # noqa: FBT001  # a fixture
    calls = [(t := trained(), taken(t)) for _ in range(2)]
    judged(halved, *calls, wrong=wrong)
    for t, gradient in calls:
        assert itself(t).untyped_storage().data_ptr() == gradient.untyped_storage().data_ptr()
        assert itself(t)[0] == 2


def test_the_gradient_comes_first(wrong: bool) -> None:  # noqa: FBT001  # a fixture
    t = trained()
    judged(lambda gradient, t: halved(t, gradient), (t.grad, t), wrong=wrong)


class Flat(nn.Module):
    """Keeps all gradients in one buffer, as sharded training does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.flat = torch.zeros(8)
        self.linear.weight.grad = self.flat[:6].view(2, 3)
        self.linear.bias.grad = self.flat[6:]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.flat.zero_()
        self.linear(x).sum().backward()
        self.flat.mul_(0.25 if is_compiling() and WRONG else 0.5)
        assert self.linear.bias.grad is not None
        return self.linear.bias.grad + self.flat[6:]


def test_gradients_in_one_buffer(wrong: bool) -> None:  # noqa: FBT001  # a fixture
    module = Flat()
    judged(module, (torch.ones(4, 3),), (torch.ones(4, 3) * 2,), wrong=wrong)
    assert module.flat.tolist() == [4.0] * 6 + [2.0] * 2
    assert module.linear.bias.grad is not None
    assert module.linear.bias.grad.untyped_storage().data_ptr() == module.flat.data_ptr()


class Holding(nn.Module):
    """Keeps the gradient of its parameter under a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.kept = self.weight.grad = torch.full((3,), 4.0)

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.mul_(0.25 if is_compiling() and WRONG else 0.5)
        assert self.weight.grad is not None
        return x + self.weight.grad


def test_a_gradient_that_is_kept(wrong: bool) -> None:  # noqa: FBT001  # a fixture
    module = Holding()
    judged(module, (torch.ones(3),), (torch.ones(3),), wrong=wrong)
    assert module.weight.grad is module.kept
    assert module.kept.tolist() == [1.0] * 3


class Scaling(nn.Module):
    """Is given the gradient of its own parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.weight.grad = torch.full((3,), 4.0)

    @torch.no_grad()
    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        gradient.mul_(0.25 if is_compiling() and WRONG else 0.5)
        assert self.weight.grad is not None
        return self.weight - self.weight.grad


def test_an_argument_that_is_the_gradient_of_a_parameter(wrong: bool) -> None:  # noqa: FBT001  # a fixture
    module = Scaling()
    judged(module, (module.weight.grad,), (module.weight.grad,), wrong=wrong)
    assert module.weight.grad is not None
    assert module.weight.grad.tolist() == [1.0] * 3


def one_tensor() -> tuple[torch.Tensor, torch.Tensor]:
    gradient = torch.full((3,), 4.0)
    return gradient, gradient


def one_memory() -> tuple[torch.Tensor, torch.Tensor]:
    gradient = torch.full((3,), 4.0)
    return gradient, gradient.detach()


def views() -> tuple[torch.Tensor, torch.Tensor]:
    flat = torch.full((6,), 4.0)
    return flat[:3], flat[:3]


def overlapping() -> tuple[torch.Tensor, torch.Tensor]:
    flat = torch.full((5,), 4.0)
    return flat[:3], flat[2:]


def a_repeated_number() -> tuple[torch.Tensor, torch.Tensor]:
    number = torch.full((1,), 4.0)
    return number, number.expand(3)


SHARING = (one_tensor, one_memory, views, overlapping, a_repeated_number)


class Tied(nn.Module):
    """Has two parameters whose gradients nothing else holds."""

    def __init__(self, made: tuple[torch.Tensor, torch.Tensor]) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.ones(made[0].shape))
        self.other = nn.Parameter(torch.ones(3))
        self.one.grad, self.other.grad = made

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return tied(self.one, self.other) + x


@torch.no_grad()
def tied(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    assert one.grad is not None
    assert other.grad is not None
    one.grad.mul_(0.25 if is_compiling() and WRONG else 0.5)
    return other.detach() + other.grad


def left(one: torch.Tensor, other: torch.Tensor, apart: tuple[torch.Tensor, torch.Tensor]) -> None:
    """The test is left with what the calls alone make of the gradients."""
    assert one.grad is not None
    assert other.grad is not None
    assert (one.grad.tolist(), other.grad.tolist()) == (apart[0].tolist(), apart[1].tolist())
    assert (one.grad is other.grad) == (apart[0] is apart[1])
    one.grad.zero_()
    apart[0].zero_()
    assert other.grad.tolist() == apart[1].tolist()


@pytest.mark.parametrize("make", SHARING)
def test_parameters_that_share_a_gradient(make: Any, wrong: bool) -> None:  # noqa: FBT001  # a fixture
    module = Tied(make())
    judged(module, (torch.ones(3),), (torch.ones(3),), wrong=wrong)
    left(module.one, module.other, halved_alone(make(), times=2))


@pytest.mark.parametrize("make", SHARING)
@pytest.mark.parametrize("kind", (torch.Tensor.clone, nn.Parameter))
def test_arguments_that_share_a_gradient(make: Any, kind: Any, wrong: bool) -> None:  # noqa: FBT001  # a fixture
    gradients = make()
    one, other = (kind(torch.ones(g.shape)).requires_grad_() for g in gradients)
    one.grad, other.grad = gradients
    judged(tied, (one, other), (one, other), wrong=wrong)
    left(one, other, halved_alone(make(), times=2))


def test_an_argument_and_a_parameter_that_share_a_gradient(wrong: bool) -> None:  # noqa: FBT001  # a fixture
    module, t = Scaling(), torch.ones(3, requires_grad=True)
    t.grad = module.weight.grad

    class Given(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, t: torch.Tensor) -> torch.Tensor:
            return tied(t, self.inner.weight)

    judged(Given(), (t,), (t,), wrong=wrong)
    assert t.grad is module.weight.grad
    assert itself(t).tolist() == [1.0] * 3


def test_a_sparse_gradient_of_two() -> None:
    module = Tied(one_tensor())
    module.one.grad = module.other.grad = torch.full((3,), 4.0).to_sparse()

    @torch.no_grad()
    def target(x: torch.Tensor) -> Any:
        itself(module.one).mul_(0.5)
        return x + itself(module.other).to_dense()

    seen = check(target, (torch.ones(3),))  # which nothing compiles
    assert "passed: parity 1 of 1 call\n" in seen.told
    assert module.one.grad is module.other.grad
    assert itself(module.one).to_dense().tolist() == [2.0] * 3


def halved_alone(
    made: tuple[torch.Tensor, torch.Tensor], times: int
) -> tuple[torch.Tensor, torch.Tensor]:
    for _ in range(times):
        made[0].mul_(0.5)
    return made
