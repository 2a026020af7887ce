"""Updates that are small beside the values they are applied to are compared all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pytest_compileguard.observation import ParityObservation
from tests.dynamo.checked import check
from tests.dynamo.test_training import mismatched, train

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Factor = Callable[[], float]


def right() -> float:
    return 1.0


def negated() -> float:
    return -1.0 if torch.compiler.is_compiling() else 1.0


def dropped() -> float:
    return 0.0 if torch.compiler.is_compiling() else 1.0


def doubled() -> float:
    return 2.0 if torch.compiler.is_compiling() else 1.0


FAULTS = (negated, dropped, doubled)


def outcome(target: Callable[..., Any], *args: Any) -> str:
    return check(target, args, backend="aot_eager").verdict.outcome


@pytest.mark.parametrize("factor", (*FAULTS, right))
@pytest.mark.parametrize(
    ("dtype", "size"),
    ((torch.float32, 3e-6), (torch.float64, 1e-9), (torch.complex64, 3e-6)),
)
def test_an_argument_is_changed_by_little(factor: Factor, dtype: torch.dtype, size: float) -> None:
    def step(p: torch.Tensor, g: torch.Tensor) -> None:
        p.add_(g, alpha=size * factor())

    expected = "passed" if factor is right else "failed"
    assert outcome(step, torch.ones(64, dtype=dtype), torch.ones(64).to(dtype)) == expected


def test_the_least_change_that_is_told_from_rounding() -> None:
    def step(p: torch.Tensor, size: torch.Tensor) -> None:
        p.add_(size * negated())

    for size, expected in ((1e-6, "failed"), (2e-7, "passed")):
        assert outcome(step, torch.ones(64), torch.full((64,), size)) == expected


class Counting(nn.Module):
    average: torch.Tensor

    def __init__(self, factor: Factor, *, anew: bool) -> None:
        super().__init__()
        self.register_buffer("average", torch.linspace(1, 2, 32))
        self.factor, self.anew = factor, anew

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        change = 5e-7 * self.factor() * (x - self.average)
        if self.anew:
            self.average = self.average + change
        else:
            self.average += change
        return x * 2


@pytest.mark.parametrize("anew", (False, True))
def test_a_buffer_is_changed_by_little(*, anew: bool) -> None:
    x = torch.linspace(6, 9, 32)
    assert outcome(Counting(negated, anew=anew), x) == "failed"
    assert outcome(Counting(right, anew=anew), x) == "passed"


class Descent(torch.optim.Optimizer):
    """Plain descent whose compiled form may do something else."""

    def __init__(self, parameters: Any, factor: Factor) -> None:
        super().__init__(parameters, {"lr": 4e-6})
        self.factor = factor

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] * self.factor())


@pytest.mark.parametrize("factor", (*FAULTS, right))
def test_a_tiny_learning_rate_hides_no_wrong_update(factor: Factor) -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 2)
    checked = train(
        model,
        Descent(model.parameters(), factor),
        steps=1,
        backend="aot_eager",
        compile_optimizer=True,
        locates=False,
    )
    expected = set() if factor is right else {"model.weight", "model.bias"}
    assert mismatched(checked) == expected


def test_a_wrong_update_is_told_by_the_change() -> None:
    def step(p: torch.Tensor) -> None:
        p.add_(3e-6 * negated())

    checked = check(step, (torch.ones(8),), backend="aot_eager")
    seen, told = checked.verdict.observation.parity, checked.told
    assert isinstance(seen, ParityObservation)
    assert [(m.part, m.by_float64) for m in seen.mismatches] == [("other", True)]
    assert "change that the call makes is wrong by float64" in told
    assert "compiled -2.98" in told
    assert "eager 2.98" in told


WAYS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "foreach": lambda p: torch.optim.AdamW(p, lr=1e-6, foreach=True, weight_decay=0.1),
    "fused": lambda p: torch.optim.AdamW(p, lr=1e-6, fused=True),
    "one by one": lambda p: torch.optim.Adam(p, lr=3e-7, foreach=False, amsgrad=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-6, momentum=0.9, nesterov=True),
    "factors": lambda p: torch.optim.NAdam(p, lr=1e-6),
}


CASES = (*((way, "aot_eager") for way in WAYS), ("momentum", "inductor"))


class Cast(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.dtype)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize(("way", "backend"), CASES)
def test_right_updates_are_no_fault(way: str, backend: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 16, dtype=dtype), nn.Tanh(), nn.Linear(16, 2, dtype=dtype))
    checked = train(
        nn.Sequential(Cast(dtype), model),
        WAYS[way](model.parameters()),
        steps=2,
        loss_fn=lambda out, target: nn.functional.mse_loss(out.float(), target),
        backend=backend,
        compile_optimizer=way != "fused",
        locates=False,
    )
    assert checked.verdict.outcome == "passed", checked.told


def test_what_rounding_decides_is_no_fault() -> None:
    """A whole step in one call: a gradient that ought to be 0 makes a full step of Adam."""

    def whole(w: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> None:
        with torch.enable_grad():
            w, b = w.detach().requires_grad_(), b.detach().requires_grad_()
            hidden = x @ w + b
            hidden = (hidden - hidden.mean(0)) / hidden.std(0)
            by = torch.autograd.grad(hidden.square().sum() + hidden.sum(), (w, b))
        for p, g in zip((w, b), by, strict=True):
            p.detach().sub_(1e-6 * g / (g.abs() + 1e-12))

    torch.manual_seed(2)
    args = torch.randn(8, 16), torch.randn(16), torch.randn(32, 8)
    checked = check(whole, args, backend="inductor")
    assert checked.verdict.outcome == "passed", checked.told
