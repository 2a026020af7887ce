"""Objects in globals that are no plain values: they are compared, or left alone without harm."""

from __future__ import annotations

import argparse
import types
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


def wrong() -> int:
    return int(torch.compiler.is_compiling())


def sound() -> int:
    return 0


@pytest.mark.parametrize("space", (PLAIN, OPTIONS))
def test_a_namespace_is_put_back_and_compared(space: Any) -> None:
    space.calls = 0

    def counts(x: torch.Tensor) -> torch.Tensor:
        helper(x)
        return x + 1

    def helper(_: torch.Tensor) -> None:
        space.calls += 1 + how()

    how = sound
    assert check(counts, *[(torch.ones(3),)] * 2).verdict.outcome == "passed"
    assert space.calls == 2
    how = wrong
    assert check(counts, (torch.ones(3),)).verdict.outcome == "failed"


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
