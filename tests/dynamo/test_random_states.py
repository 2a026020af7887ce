"""Where random generators stand after a call is compared: of torch, of Python and of numpy."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def draw_of_numpy() -> object:
    """Dynamo would draw it from torch's generator."""
    return np.random.rand(1)  # noqa: NPY002  # the global one


DRAWS: dict[str, Callable[[], object]] = {
    "random state": lambda: torch.rand(1),
    "random state of Python": random.random,
    "random state of numpy": draw_of_numpy,
}


def drawing(draw: Callable[[], object], *, planted: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    def target(x: torch.Tensor) -> torch.Tensor:
        draw()
        if planted and torch.compiler.is_compiling():
            draw()
        return x * 1

    return target


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_of_compiled_code_alone_is_told(name: str) -> None:
    seen = check(drawing(DRAWS[name], planted=True), (torch.ones(3),))
    assert seen.verdict.outcome == "failed", seen.verdict
    assert f"call 1, {name} after the call: compiled draws other random numbers" in seen.told


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_draws_on_both_sides_pass(name: str) -> None:
    seen = check(drawing(DRAWS[name], planted=False), *[(torch.ones(3),)] * 2)
    assert seen.verdict.outcome == "passed", seen.told
