"""Gradients of another dtype than their tensors, as of bfloat16 weights that train in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.compiler import is_compiling

from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.observation import ParityObservation
from pytest_compileguard.options import Options
from pytest_compileguard.spec import CompileCheck
from tests.dynamo.checked import check
from tests.dynamo.planted import WRONG

pytestmark = [
    pytest.mark.usefixtures("compiler_loaded"),
    pytest.mark.skipif(
        not hasattr(torch.Tensor, "grad_dtype"), reason="this torch has no Tensor.grad_dtype"
    ),
]


@pytest.fixture(params=(None, torch.float32), ids=("any", "float32"))
def allowed(request: pytest.FixtureRequest) -> Any:
    return request.param


def scaled(x: torch.Tensor) -> torch.Tensor:
    """Compiled by itself where Dynamo gives up its caller: it refuses such gradients."""
    return x * (0.25 if is_compiling() and WRONG else 0.5)


def low(allowed: torch.dtype | None, *, grad: bool = True, parameter: bool = True) -> Any:
    """A bfloat16 tensor that may have a float32 gradient, or has one."""
    made: Any = torch.ones(3, dtype=torch.bfloat16)
    made = nn.Parameter(made) if parameter else made.requires_grad_()
    made.grad_dtype = allowed
    if grad:
        made.grad = torch.full((3,), 4.001)
    return made


class Scaling(nn.Module):
    """Reads, or scales, the gradient of its parameter."""

    def __init__(self, weight: Any, *, writes: bool) -> None:
        super().__init__()
        self.weight, self.writes = weight, writes

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> Any:
        if self.writes:
            self.weight.grad.mul_(scaled(x))
            return x + self.weight.grad
        return scaled(x) + self.weight.grad


class Backward(nn.Module):
    """Gets its gradient in the call."""

    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor) -> Any:
        (self.weight * scaled(x)).sum().backward()
        return x + self.weight.grad


def judged(target: Any, *calls: tuple[Any, ...], wrong: bool) -> None:
    seen = check(target, *calls)
    parity = seen.verdict.observation.parity
    assert isinstance(parity, ParityObservation), parity
    assert (parity.calls_compared, bool(parity.mismatches)) == (len(calls), wrong), seen.told


@pytest.mark.parametrize("writes", (False, True))
def test_a_parameter(allowed: Any, writes: bool, wrong: bool) -> None:  # noqa: FBT001  # fixtures
    module = Scaling(low(allowed), writes=writes)
    judged(module, (torch.ones(3),), (torch.ones(3),), wrong=wrong)
    assert module.weight.grad.dtype == torch.float32
    assert module.weight.grad_dtype == allowed
    assert module.weight.grad[0] == torch.tensor(4.001) / (4 if writes else 1)


def test_an_argument(allowed: Any, wrong: bool) -> None:  # noqa: FBT001  # fixtures
    @torch.no_grad()
    def target(t: Any, x: torch.Tensor) -> Any:
        t.grad.mul_(scaled(x))
        return t + t.grad

    t = low(allowed, parameter=False)
    judged(target, (t, torch.ones(3)), (t, torch.ones(3)), wrong=wrong)
    assert (t.grad.dtype, t.grad_dtype) == (torch.float32, allowed)
    assert t.grad[0] == torch.tensor(4.001) / 4


def test_a_gradient_of_two(allowed: Any, wrong: bool) -> None:  # noqa: FBT001  # fixtures
    class Tied(Scaling):
        other: Any

        @torch.no_grad()
        def forward(self, x: torch.Tensor) -> Any:
            self.weight.grad.mul_(scaled(x))
            return x + self.other.grad

    module = Tied(low(allowed), writes=True)
    module.other = low(allowed)
    module.other.grad = module.weight.grad
    judged(module, (torch.ones(3),), wrong=wrong)
    assert module.other.grad is module.weight.grad


@pytest.mark.parametrize("grad", (False, True), ids=("none yet", "one already"))
def test_a_backward_in_the_call(allowed: Any, grad: bool, wrong: bool) -> None:  # noqa: FBT001  # fixtures
    module = Backward(low(allowed, grad=grad))
    alone = Backward(low(allowed, grad=grad))
    judged(module, (torch.ones(3) * 3.001,), (torch.ones(3),), wrong=wrong)
    WRONG.clear()
    for x in (torch.ones(3) * 3.001, torch.ones(3)):
        alone(x)
    assert module.weight.grad.dtype == alone.weight.grad.dtype
    assert torch.equal(module.weight.grad, alone.weight.grad)


def test_what_is_allowed_changes_between_calls() -> None:
    module = Scaling(low(None), writes=True)

    def change(number: int) -> None:
        module.weight.grad = None
        module.weight.grad_dtype = (None, torch.float32, torch.bfloat16)[number % 3]
        dtype = module.weight.grad_dtype or torch.float64
        module.weight.grad = torch.full((3,), 4.0, dtype=dtype)

    seen = check(module, *[(torch.ones(3),)] * 4, before=change)
    assert "parity 4 of 4 calls" in seen.told


class Low(nn.Module):
    """Trains bfloat16 weights by gradients of float32."""

    def __init__(self, allowed: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2).bfloat16()
        for parameter in self.parameters():
            parameter.grad_dtype = allowed
            parameter.grad = torch.zeros(parameter.shape)

    def forward(self, x: torch.Tensor) -> Any:
        return self.linear(scaled(x).bfloat16()).float()


@pytest.mark.parametrize("drops", (False, True))
def test_steps_of_training(allowed: Any, drops: bool, wrong: bool) -> None:  # noqa: FBT001  # fixtures
    torch.manual_seed(0)
    module = Low(allowed)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, foreach=False)
    guard = CompileGuard(
        nodeid="t.py::t", spec=CompileCheck(backend="eager"), options=Options(no_timing=True)
    )
    try:
        loss = nn.functional.mse_loss
        step = guard.training(module, optimizer, loss, set_to_none=drops)
        for _ in range(3):
            step(torch.randn(4, 3), torch.randn(4, 2))
        ((_, observation),) = guard.finish()
    finally:
        guard.close()
    parity = observation.parity
    assert isinstance(parity, ParityObservation), parity
    assert (parity.calls_compared, bool(parity.mismatches)) == (3, wrong), parity
