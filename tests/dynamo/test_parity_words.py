"""What is said of a difference goes by what differs: numbers, their form, or what is there."""

# mypy: disallow-untyped-calls=False, warn-return-any=False

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

ROUNDING = "if this is rounding, widen rtol= and atol="
LIST: list[int] = []


def _altering(change: Callable[[Tensor], Tensor]) -> Any:
    def backend(graph: Any, _examples: Any) -> Callable[..., Any]:
        return lambda *inputs: tuple(change(output) for output in graph(*inputs))

    return backend


def affine(x: Tensor) -> Tensor:
    return x * 2 + 1


def whole(x: Tensor) -> Tensor:
    return (x * 4).to(torch.int64) + 1


def viewed(x: Tensor) -> Tensor:
    return x.view(-1)


def appends(x: Tensor) -> Tensor:
    if not torch.compiler.is_compiling():
        LIST.append(1)
    return x + 1


@pytest.mark.parametrize(
    ("target", "change", "told"),
    (
        (affine, lambda output: output * (1 + 1e-4), True),
        (affine, lambda output: output * 1.01, False),
        (affine, lambda output: output + 0.5, False),
        (affine, lambda output: output * float("nan"), False),
        (whole, lambda output: output + 1, False),
    ),
)
def test_rounding_is_named_only_where_it_may_be(
    target: Callable[..., Any], change: Callable[[Tensor], Tensor], *, told: bool
) -> None:
    seen = check(target, (torch.linspace(1, 2, 8),), backend=_altering(change))
    assert seen.verdict.outcome == "failed"
    assert (ROUNDING in seen.told) is told
    # The stage is known to be the backend.
    assert "seek code" not in seen.told


@pytest.mark.parametrize(
    ("target", "change", "told"),
    (
        (viewed, torch.clone, "there output: compiled shares no memory"),
        (affine, torch.Tensor.double, "there output: dtype: compiled torch.float64"),
    ),
)
def test_faults_of_form_show_no_element(
    target: Callable[..., Any], change: Callable[[Tensor], Tensor], told: str
) -> None:
    seen = check(target, (torch.ones(2, 3),), backend=_altering(change))
    assert told in seen.told
    assert "greatest difference, 0" not in seen.told


def test_an_item_that_only_one_side_makes_is_said_to_be_there() -> None:
    seen = check(appends, (torch.ones(3),))
    assert "LIST[0] after the call: only eager has it" in seen.told
    LIST.clear()
