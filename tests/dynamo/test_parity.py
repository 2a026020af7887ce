"""Disputes about numbers: rounding is acquitted, errors are not, however few they are."""

from __future__ import annotations

import pytest
import torch

from pytest_compileguard.parity.comparison import compare
from pytest_compileguard.parity.precision import within_precision
from pytest_compileguard.parity.reference import acquits
from pytest_compileguard.parity.tolerance import Tolerance
from tests.conftest import RunSuite

JUMP = """
import torch

def target(a, b):
    return torch.relu(a - b)

def rounded(gm, inputs):
    # Another rounding of the difference, which relu sees on its other side.
    return lambda a, b: (torch.relu(a - b - {shift}),)

def test_it(compileguard):
    one = torch.ones(64, requires_grad=True)
    nearly = torch.full((64,), 0.5)
    nearly[5] = 1 - 2**-24
    compileguard(target, backend=rounded)(one, nearly)
"""


def test_a_jump_that_rounding_decides_is_no_error(run_suite: RunSuite) -> None:
    run = run_suite(JUMP.format(shift=1e-7))
    assert run.check["observed"]["parity"] == "passed", run.text


def test_a_jump_that_rounding_cannot_explain_is_one(run_suite: RunSuite) -> None:
    run = run_suite(JUMP.format(shift=1e-3))
    assert run.check["observed"]["parity"] == "failed"


def noisy(exact: torch.Tensor, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """What a careless sum in ``dtype`` makes of a result: off by about a unit at random."""
    generator = torch.Generator().manual_seed(seed)
    units = torch.randn(exact.shape, generator=generator, dtype=torch.float64)
    return (exact * (1 + 0.5 * torch.finfo(dtype).eps * units)).to(dtype)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16))
def test_rounding_is_acquitted_and_one_wrong_element_is_not(dtype: torch.dtype) -> None:
    exact = torch.randn(10_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    eager, compiled = noisy(exact, dtype, 1), noisy(exact, dtype, 2)
    assert acquits(compiled, eager, exact)
    wrong = compiled.clone()
    wrong[17] += 1
    assert not acquits(wrong, eager, exact)
    assert not within_precision(wrong, eager)


@pytest.mark.parametrize("value", (float("nan"), float("inf")))
def test_one_value_that_is_not_finite_is_never_acquitted(value: float) -> None:
    exact = torch.randn(100, dtype=torch.float64)
    eager = exact.float()
    wrong = eager.clone()
    wrong[3] = value
    assert not acquits(wrong, eager, exact)
    assert not within_precision(wrong, eager)


def test_a_reference_that_went_another_way_acquits_nothing() -> None:
    eager = torch.ones(100)
    assert not acquits(eager * 1.5, eager, torch.full((100,), 2.0, dtype=torch.float64))


@pytest.mark.parametrize(("times", "acquitted"), ((1.001, True), (1.2, False)))
def test_where_eager_is_no_yardstick_only_what_is_far_nearer_is_acquitted(
    times: float,
    acquitted: bool,  # noqa: FBT001
) -> None:
    exact = torch.randn(1000, dtype=torch.float64)
    assert acquits((exact * times).float(), (exact * 1.3).float(), exact) == acquitted


def test_a_result_nearer_to_the_truth_than_eager_is_acquitted() -> None:
    exact = torch.randn(1000, dtype=torch.float64)
    assert acquits(exact.float(), (exact * 1.001).float(), exact)


def test_without_a_reference_the_leaf_as_a_whole_sets_the_scale() -> None:
    # The bias of an attention layer: a third of its gradient is 0 but for rounding.
    eager = torch.cat([torch.randn(100) * 5, torch.full((50,), 1e-7)])
    compiled = eager + 1e-5
    assert within_precision(compiled, eager)
    assert not within_precision(eager + 1e-3, eager)


def test_without_a_reference_a_mask_sets_no_scale() -> None:
    eager = torch.cat([torch.randn(60), torch.full((40,), -1e9)])
    assert not within_precision(torch.where(eager > -1e8, 2 * eager, eager), eager)


def test_a_right_result_is_acquitted_where_eager_overflowed() -> None:
    exact = torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64)
    eager = torch.tensor([0.5, float("nan"), float("inf")], dtype=torch.float16)
    assert acquits(exact.half(), eager, exact)
    assert not acquits(exact.half() * 1.1, eager, exact)
    assert not acquits(exact.half(), eager, exact.where(exact != 3, float("inf")))


def test_a_right_result_is_acquitted_where_eager_went_another_way() -> None:
    exact = torch.tensor([1.0, 0.0], dtype=torch.float64)
    eager = torch.tensor([0.5, 0.5], dtype=torch.bfloat16)
    assert acquits(exact.bfloat16(), eager, exact)
    assert not acquits(torch.tensor([0.0, 1.0], dtype=torch.bfloat16), eager, exact)


def test_a_large_leaf_is_compared_to_its_last_element() -> None:
    eager = torch.ones(3, 700_001)
    compiled = eager.clone()
    compiled[2, 700_000] = 3
    found = compare(compiled, eager, Tolerance(None, None))
    assert found is not None
    assert "greatest difference 2 at index [2, 700000]: compiled 3, eager 1; 1 of" in found.message
    assert not within_precision(compiled, eager)
    assert compare(eager * (1 + 2**-22), eager, Tolerance(None, None)) is None
