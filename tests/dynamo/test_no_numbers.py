"""A result whose numbers are all NaN agrees with any other such one, which is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.observation import NotObserved, ParityObservation
from pytest_compileguard.options import Options
from pytest_compileguard.spec import CompileCheck
from pytest_compileguard.verdict import judge
from tests.dynamo.checked import Checked, check

NAN = float("nan")
TOLD = "all numbers are NaN on both sides, so none tells whether they agree"


def unchecked(seen: Checked) -> tuple[str, ...]:
    assert seen.verdict.outcome == "passed", seen.told
    parity = seen.verdict.observation.parity
    assert isinstance(parity, ParityObservation)
    return parity.unchecked


@pytest.mark.parametrize(
    "make",
    (
        lambda x: x * NAN,
        lambda x: (x * NAN).sum(),
        lambda x: (x * NAN).half(),
        lambda x: (x * NAN).to(torch.float8_e5m2),
        lambda x: torch.complex(x * NAN, x),
        lambda x: (x * NAN).to_sparse(),
        lambda x: np.full(3, NAN) * x.detach().numpy(),
    ),
)
def test_result_of_nothing_but_nan_is_said(make: Callable[[torch.Tensor], Any]) -> None:
    assert f"output: {TOLD}" in unchecked(check(make, (torch.ones(3),)))


def test_leaves_of_nothing_but_nan_are_named() -> None:
    seen = check(lambda x: {"loss": (x * NAN).sum(), "kept": x * 2}, (torch.ones(3),))
    assert unchecked(seen) == (f"output['loss']: {TOLD}",)
    seen = check(lambda x: (x * 2, NAN), (torch.ones(3),))
    assert unchecked(seen) == (f"output[1]: {TOLD}",)
    seen = check(lambda x: [x * NAN] * 5, (torch.ones(3),))
    assert unchecked(seen) == (f"output[0], output[1], output[2] and 2 more: {TOLD}",)


@pytest.mark.parametrize(
    "make",
    (
        lambda x: torch.cat([x * NAN, x]),
        lambda x: x * float("inf"),
        lambda x: (x * 2, "nan", None, 3),
        lambda x: (x > 0, x.long(), x),
    ),
)
def test_any_other_number_is_compared(make: Callable[[torch.Tensor], Any]) -> None:
    assert unchecked(check(make, (torch.ones(3),))) == ()


def test_side_that_has_numbers_differs_as_before() -> None:
    def wrong(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        del graph, inputs
        return lambda *args: [args[0] * 2]

    seen = check(lambda x: x * NAN, (torch.ones(3),), backend=wrong)
    assert seen.verdict.outcome == "failed"
    assert TOLD not in seen.told


def test_gradient_of_nothing_but_nan_is_said() -> None:
    seen = check(lambda x, y: (x * 0).sqrt().sin() + y, (leaf(3), leaf(3)))
    assert unchecked(seen) == (f"gradient of x: {TOLD}",)


def leaf(count: int) -> torch.Tensor:
    return torch.ones(count, requires_grad=True)


def test_loss_of_training_that_is_nan_is_said() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = CompileGuard(
        nodeid="t.py::t", spec=CompileCheck(backend="eager"), options=Options(no_timing=True)
    )
    step = guard.training(model, optimizer, lambda out: out.sum() * NAN)
    step(torch.ones(3, 2))
    ((made, observation),) = guard.finish()
    guard.close()
    seen = Checked(judge(made.plan, observation, None, NotObserved(reason="none here")))
    told = " ".join(unchecked(seen))
    assert f"output: {TOLD}" in told
