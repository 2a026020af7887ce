"""Numbers are compared by their bits: some types have no operator for it, and no NaN is itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.dynamo.checked import check

pytestmark = [
    pytest.mark.usefixtures("compiler_loaded"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
]

DTYPES = tuple(
    getattr(torch, name)
    for name in ("complex32", "float4_e2m1fn_x2", "float8_e4m3fn", "int4", "bits8", "uint16")
    if hasattr(torch, name)
)


def leaves_alone(x: torch.Tensor, _beside: object) -> None:
    x.sin()


def returns(x: torch.Tensor, _beside: object) -> torch.Tensor:
    return x.sin()


def passes_on(x: torch.Tensor, beside: torch.Tensor) -> Any:
    return x.sin(), beside


def held(dtype: torch.dtype, byte: int) -> torch.Tensor:
    return torch.full((8,), byte, dtype=torch.uint8).view(dtype)


BESIDE: dict[str, Callable[[], Any]] = {
    "zeros": lambda: torch.zeros(3),
    "NaN": lambda: torch.full((3,), float("nan")),
    "foreign order of bytes": lambda: np.ones(3, ">f4"),
    **{str(dtype): functools.partial(held, dtype, 1) for dtype in DTYPES},
}


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("target", (leaves_alone, returns))
def test_what_a_call_leaves_alone_is_seen_to_be_the_same(
    target: Callable[..., Any], beside: str
) -> None:
    seen = check(target, (torch.ones(3), BESIDE[beside]()))
    assert seen.verdict.outcome == "passed", seen.told
    told = str(seen.verdict.observation.parity)
    assert ("code that does nothing would pass" in told) == (target is leaves_alone)


@pytest.mark.parametrize("dtype", tuple(d for d in DTYPES if str(d) != "torch.int4"), ids=str)
def test_other_bits_are_a_difference(dtype: torch.dtype) -> None:
    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda *args: [held(dtype, 3) if o.dtype == dtype else o for o in graph(*args)]

    sound = check(passes_on, (torch.ones(3), held(dtype, 1)))
    assert sound.verdict.outcome == "passed", sound.told

    def makes(x: torch.Tensor, bits: torch.Tensor) -> Any:
        return x.sin(), bits.view(dtype)

    bits = torch.full((8,), 1, dtype=torch.uint8)
    assert "output[1]" in check(makes, (torch.ones(3), bits), backend=backend, locates=False).told
