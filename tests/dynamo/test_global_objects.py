"""Objects in globals that are no plain values: they are compared, or left alone without harm."""

from __future__ import annotations

import argparse
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

PLAIN = types.SimpleNamespace(calls=0)
OPTIONS = argparse.Namespace(calls=0)
LARGE = np.zeros(200_000)
META = torch.empty(3, device="meta")


class Lazy:
    """As proxies of an application context do."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("outside of a context")


ODD: dict[str, Any] = {"lazy": Lazy(), "model": mock.MagicMock(spec=torch.nn.Module), "by": 2}


Helper = Callable[[torch.Tensor], torch.Tensor]


class Asking(torch.nn.Module):
    """A target of which the helper is no copy."""

    def __init__(self, helper: Helper) -> None:
        super().__init__()
        self.name = helper.__name__

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.name == "counts":
            return counts(x)
        return miscounts_plainly(x) if self.name == "miscounts_plainly" else miscounts_options(x)


def wrong() -> int:
    return int(torch.compiler.is_compiling())


def counts(x: torch.Tensor) -> torch.Tensor:
    PLAIN.calls += 1
    OPTIONS.calls += 1
    return x + 1


def miscounts_plainly(x: torch.Tensor) -> torch.Tensor:
    PLAIN.calls += 1 + wrong()
    return x + 1


def miscounts_options(x: torch.Tensor) -> torch.Tensor:
    OPTIONS.calls += 1 + wrong()
    return x + 1


def test_a_namespace_is_put_back() -> None:
    PLAIN.calls = OPTIONS.calls = 0
    assert check(Asking(counts), *[(torch.ones(3),)] * 2).verdict.outcome == "passed"
    assert (PLAIN.calls, OPTIONS.calls) == (2, 2)


@pytest.mark.parametrize(
    ("helper", "place"), ((miscounts_plainly, "PLAIN"), (miscounts_options, "OPTIONS"))
)
def test_a_namespace_is_compared(helper: Helper, place: str) -> None:
    seen = check(Asking(helper), (torch.ones(3),))
    assert seen.verdict.outcome == "failed"
    assert place in seen.told


def writes_to_a_large_array(x: torch.Tensor) -> torch.Tensor:
    LARGE[0] += 1
    return x + 1


def test_writing_to_a_large_array_is_seen() -> None:
    seen = check(writes_to_a_large_array, (torch.ones(3),))
    assert seen.verdict.outcome == "failed"
    assert "LARGE" in seen.told


def reads_a_meta_tensor(x: torch.Tensor) -> torch.Tensor:
    return x + META.shape[0]


def asks_a_helper(x: torch.Tensor) -> torch.Tensor:
    return reads_a_meta_tensor(x)


def test_a_tensor_without_values_is_left_alone() -> None:
    seen = check(asks_a_helper, (torch.ones(3),))
    assert seen.verdict.outcome == "passed", seen.told


def reads_beside_odd_objects(x: torch.Tensor) -> torch.Tensor:
    return x + int(ODD["by"])


def asks_another_helper(x: torch.Tensor) -> torch.Tensor:
    return reads_beside_odd_objects(x)


def test_objects_that_raise_when_they_are_looked_at_end_no_test() -> None:
    seen = check(asks_another_helper, (torch.ones(3),))
    assert "the call can't be isolated" in seen.told  # and nothing is raised


SIGNED = torch.zeros(3)
COMPLEX = torch.zeros(3, dtype=torch.complex64)
RETYPED = torch.zeros(3)


def turns_zeros(x: torch.Tensor) -> torch.Tensor:
    COMPLEX.neg_()
    RETYPED.data = RETYPED.data.double()
    return x / SIGNED.neg_() + x / COMPLEX.real


def asks_a_third_helper(x: torch.Tensor) -> torch.Tensor:
    return turns_zeros(x)


def test_zeros_get_their_sign_back_and_tensors_their_type() -> None:
    checked = check(asks_a_third_helper, *[(torch.ones(3),)] * 3)
    assert checked.verdict.outcome == "passed", checked.told
    assert torch.signbit(SIGNED).all()
    assert RETYPED.dtype == torch.float64
