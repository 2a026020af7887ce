"""A class in place of an instance is refused: ``torch.compile`` would change the class itself."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn

from pytest_compileguard.errors import SpecError
from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.options import Options
from pytest_compileguard.spec import CompileCheck


class Doubles:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def kernel(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def a_guard(*, disable: bool = False) -> CompileGuard:
    options = Options(no_timing=True, disable=disable)
    return CompileGuard(nodeid="t.py::t", spec=CompileCheck(backend="eager"), options=options)


@pytest.mark.parametrize("disable", (False, True))
@pytest.mark.parametrize("kind", (nn.Linear, Doubles, torch.optim.SGD))
def test_class_is_no_target(kind: type, *, disable: bool) -> None:
    before = dict(vars(kind))
    told = rf"t: compileguard\({kind.__name__}\): is a class; guard an instance, as in compileguard"
    with pytest.raises(SpecError, match=rf"{told}\({kind.__name__}\(\.\.\.\)\)$"):
        a_guard(disable=disable)(kind)
    assert dict(vars(kind)) == before
    assert "_call_impl" not in vars(nn.Linear)


def test_class_of_modules_is_no_reference() -> None:
    with pytest.raises(SpecError, match=r"reference=.*Linear.*: is a class; pass an instance"):
        a_guard()(kernel, reference=nn.Linear)


def test_class_that_makes_a_result_is_a_reference() -> None:
    guard = a_guard()
    guard(kernel, reference=torch.Size)
    guard.close()


MODEL = nn.Linear(1, 1)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("parts", "message"),
    (
        ((nn.Linear, OPTIMIZER, nn.MSELoss()), r"model is a class; pass an instance, Linear\("),
        ((MODEL, torch.optim.SGD, nn.MSELoss()), r"optimizer is a class; pass an instance, SGD\("),
        (
            (MODEL, OPTIMIZER, nn.MSELoss),
            r"loss_fn is a class; pass an instance, MSELoss\(\.\.\.\)",
        ),
    ),
)
def test_class_is_no_part_of_training(parts: tuple[Any, Any, Any], message: str) -> None:
    with pytest.raises(SpecError, match=rf"^t\.py::t: compileguard\.training: {message}"):
        a_guard().training(*parts)


@pytest.mark.parametrize(
    ("ways", "message"),
    (
        ({"scaler": torch.amp.GradScaler}, r"scaler is a class; pass an instance, GradScaler\("),
        ({"before_step": Doubles}, r"before_step is a class; pass an instance, Doubles\("),
    ),
)
def test_class_is_no_way_to_train(ways: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        a_guard().training(MODEL, OPTIMIZER, nn.MSELoss(), **ways)


def test_what_calls_a_class_leaves_it_as_it_is() -> None:
    guard = a_guard()
    makes: Any = functools.partial(Doubles)
    guarded = guard(makes)
    guarded()
    guard.finish()
    guard.close()
    assert "torch" not in str(vars(Doubles)["__call__"].__module__)
