"""Names outside of a call that one side binds or deletes, and the other does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.compiler import is_compiling

from tests.dynamo import named_settings
from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded", "settings_as_new")

SETTINGS: Any = named_settings
NAMES = ("A",)
MISSING: Any = object()


def leaving(eager: Any, compiled: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Bind a name of a module on each side, delete it (MISSING), or leave it alone (...)."""

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def leaves(value: Any) -> None:
        if value is MISSING:
            delattr(SETTINGS, NAMES[0])
        elif value is not ...:
            setattr(SETTINGS, NAMES[0], value)

    def target(x: torch.Tensor) -> torch.Tensor:
        leaves(compiled if is_compiling() else eager)
        return x * 2

    return target


@pytest.mark.parametrize(
    ("before", "eager", "compiled", "words"),
    (
        (0, ..., 8, "compiled binds it anew (8), eager leaves it as it was (0)"),
        (0, 8, ..., "compiled 0, eager 8"),
        (0, ..., False, "compiled binds it anew (False), eager leaves it as it was (0)"),
        ("a", ..., "b", "compiled binds it anew ('b'), eager leaves it as it was ('a')"),
        (0, ..., [0], "compiled binds it anew, eager leaves it as it was (0)"),
        (0, ..., MISSING, "compiled deletes it, eager leaves it as it was (0)"),
        (0, MISSING, ..., "eager deletes it, compiled leaves it as it was (0)"),
        (0, 8, MISSING, "compiled deletes it, eager binds it anew (8)"),
        (0, MISSING, 8, "eager deletes it, compiled binds it anew (8)"),
        (MISSING, ..., 8, "compiled binds it, eager does not"),
        (MISSING, 8, ..., "eager binds it, compiled does not"),
    ),
)
def test_what_one_side_does_to_a_name(before: Any, eager: Any, compiled: Any, words: str) -> None:
    delattr(SETTINGS, "A")
    if before is not MISSING:
        SETTINGS.A = before
    seen = check(leaving(eager, compiled), (torch.ones(3),), locates=False)
    assert seen.verdict.outcome == "failed"
    told = [line for line in seen.told.splitlines() if "named_settings.A" in line]
    assert [line for line in told if words in line], seen.told
    left = before if eager is ... else eager
    assert vars(SETTINGS).get("A", MISSING) is left


@pytest.mark.parametrize("value", (float("nan"), -0.5, "a b", 10**30, None))
def test_an_equal_value_is_what_was_there(value: Any) -> None:
    SETTINGS.A = value
    again = value if value is None else type(value)(str(value))
    seen = check(leaving(..., again), (torch.ones(3),))
    assert seen.verdict.outcome == "passed", seen.told
    assert SETTINGS.A is value


WEIGHT = torch.ones(3, requires_grad=True)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def leave_a_gradient(side: bool) -> None:  # noqa: FBT001
    WEIGHT.grad = torch.ones(3) if side else None


def leaves_it_compiled(x: torch.Tensor) -> torch.Tensor:
    leave_a_gradient(is_compiling())
    return x * WEIGHT.shape[0]


def leaves_it_eager(x: torch.Tensor) -> torch.Tensor:
    leave_a_gradient(not is_compiling())
    return x * WEIGHT.shape[0]


class Outside(nn.Module):
    """Reaches a function that has no copy."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.name = function.__name__

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.name == "leaves_it_eager":
            return leaves_it_eager(x)
        return leaves_it_compiled(x)


@pytest.mark.parametrize(
    ("function", "words"),
    (
        (leaves_it_compiled, "WEIGHT.grad after the call: compiled binds it, eager does not"),
        (leaves_it_eager, "WEIGHT.grad after the call: eager binds it, compiled does not"),
    ),
)
def test_a_gradient_that_one_side_leaves(function: Any, words: str) -> None:
    told = check(Outside(function), (torch.ones(3),), locates=False).told
    WEIGHT.grad = None
    assert words in told, told
