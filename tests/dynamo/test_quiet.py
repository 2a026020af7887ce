"""What is smaller than the absolute tolerance is compared all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import graph_break

from pytest_compileguard.parity.quiet import rounding_was_tried
from tests.dynamo.checked import check
from tests.dynamo.test_training import train

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Change = Callable[[torch.Tensor], torch.Tensor]


class Altered(torch.autograd.Function):
    """Gives its input, and alters the gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, change: Change) -> torch.Tensor:
        ctx.change = change
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.change(gradients[0]), None


def outcome(target: Callable[..., Any], x: torch.Tensor, change: Change) -> str:
    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda *args: tuple(change(out) for out in graph(*args))

    torch.manual_seed(0)
    return check(target, (x,), backend=backend).verdict.outcome


def negated(x: torch.Tensor) -> torch.Tensor:
    return -x


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.complex64))
@pytest.mark.parametrize("change", (negated, torch.zeros_like, lambda x: x * 1.5))
def test_small_outputs_are_wrong_by_much_of_their_size(dtype: torch.dtype, change: Change) -> None:
    x = torch.randn(64).to(dtype)
    tiny = 1e-10 if dtype == torch.float64 else 1e-7

    assert outcome(lambda x: x.sin() * tiny, x, change) == "failed"
    assert outcome(lambda x: x.sin() * tiny, x, torch.clone) == "passed"


def test_a_run_that_is_no_wider_tells_nothing_of_narrower_numbers() -> None:
    x = torch.ones(3)
    assert rounding_was_tried(x, x.double(), ())
    assert rounding_was_tried(x.double(), x.double(), (x.double() * 2,))
    assert not rounding_was_tried(x.double(), x.double(), (x.double(),))
    assert not rounding_was_tried(x, x, (x * 2,))


def as_array(x: torch.Tensor) -> Any:
    return x.numpy()


def as_number(x: torch.Tensor) -> Any:
    return x.tolist()[0]


def as_coo(x: torch.Tensor) -> torch.Tensor:
    graph_break()  # what is altered is what a graph gives: indices are to be no part of it
    places = torch.arange(x.shape[0]).unsqueeze(0)
    return torch.sparse_coo_tensor(places, x, (100,), check_invariants=True)


def as_csr(x: torch.Tensor) -> torch.Tensor:
    graph_break()
    rows, columns = torch.tensor([0, x.shape[0]]), torch.arange(x.shape[0])
    return torch.sparse_csr_tensor(rows, columns, x, (1, 100), check_invariants=True)


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
@pytest.mark.parametrize("dtype", (torch.float32, torch.complex64))
@pytest.mark.parametrize("form", (as_array, as_number, as_coo, as_csr))
def test_small_outputs_of_other_forms_are_wrong(
    form: Callable[[torch.Tensor], Any], dtype: torch.dtype
) -> None:
    def target(x: torch.Tensor) -> Any:
        return form(x.sin() * 1e-8)

    def wrong(out: torch.Tensor) -> torch.Tensor:
        return -out if out.is_floating_point() or out.is_complex() else out

    x = torch.randn(64).to(dtype)
    assert outcome(target, x, wrong) == "failed"
    assert outcome(target, x, torch.clone) == "passed"


@pytest.mark.parametrize("form", (as_array, as_number))
def test_rounding_of_other_forms_is_no_fault(form: Callable[[torch.Tensor], Any]) -> None:
    """Nor is it where arrays that are passed in leave no way to tell it."""

    def cancels(x: Any) -> Any:
        out = (x + 3.7) - x - 3.7
        return form(out) if isinstance(out, torch.Tensor) else out

    x = torch.randn(64, dtype=torch.float64)
    assert outcome(cancels, x, negated) == "passed"
    assert outcome(cancels, x.float(), negated) == "passed"
    array: Any = x.numpy()
    assert outcome(cancels, array, negated) == "passed"


def test_small_gradients_are_wrong_by_much_of_their_size() -> None:
    x = torch.randn(64, requires_grad=True)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 1e-7).sum()

    def wrong(out: torch.Tensor) -> torch.Tensor:
        return Altered.apply(out, lambda g: g * 0)  # type: ignore[no-any-return, no-untyped-call]

    assert outcome(loss, x, wrong) == "failed"
    assert outcome(loss, x, torch.clone) == "passed"


def test_small_gradients_of_a_training_step_are_wrong_by_much_of_their_size() -> None:
    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda *args: tuple(
            Altered.apply(out, lambda g: -g)  # type: ignore[no-untyped-call]
            for out in graph(*args)
        )

    def loss_fn(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (out - target).square().mean() * 1e-6

    outcomes = []
    for chosen in (backend, "aot_eager"):
        torch.manual_seed(0)
        model = nn.Linear(6, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        seen = train(model, optimizer, loss_fn=loss_fn, backend=chosen, locates=False)
        outcomes.append(seen.verdict.outcome)
    assert outcomes == ["failed", "passed"]


def test_a_small_part_of_a_leaf_is_wrong_by_much_of_its_size() -> None:
    def head(x: torch.Tensor) -> torch.Tensor:
        return torch.cat((x[:, :4].sin(), x[:, 4:].sin() * 1e-7), 1)

    def wrong(out: torch.Tensor) -> torch.Tensor:
        return torch.cat((out[:, :4], -out[:, 4:]), 1)

    assert outcome(head, torch.randn(64, 5), wrong) == "failed"


def test_what_rounding_alone_made_is_no_fault() -> None:
    """Gradients that ought to be zero, and differences in which all digits cancel."""
    x = torch.randn(256)
    other = torch.randn(256)

    def cancels(x: torch.Tensor) -> torch.Tensor:
        return (x + other) - x - other

    assert outcome(cancels, x, lambda out: -out) == "passed"

    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    checked = check(model, (torch.randn(32, 8),), backend="inductor")
    assert checked.verdict.outcome == "passed", checked.told


def test_without_a_reference_noise_is_no_fault() -> None:
    class Only32(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.dtype == torch.float64:
                raise TypeError("float32 only")
            return (x + 3.7) - x - 3.7

    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda *args: tuple(-out for out in graph(*args))

    checked = check(Only32(), (torch.randn(64),), backend=backend)

    assert checked.verdict.outcome == "passed", checked.told
    assert not [f for f in checked.verdict.findings if f.metric == "isolation"]


def test_numbers_that_are_0_hide_no_small_ones_beside_them() -> None:
    """The gradient of an embedding is 0 in all rows but a few."""

    def padded(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x.sin() * 1e-8, (0, 4000))

    assert outcome(padded, torch.randn(64), negated) == "failed"
    assert outcome(padded, torch.randn(64), torch.clone) == "passed"


def test_functions_that_inductor_computes_in_its_own_way_are_no_fault() -> None:
    def smooth(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        small = x * 1e-6
        elu = torch.nn.functional.elu(small)
        return torch.expm1(small), torch.erf(small), elu, torch.atanh(small)

    torch.manual_seed(0)
    checked = check(smooth, (torch.randn(64, 64),), backend="inductor")
    assert checked.verdict.outcome == "passed", checked.told


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", (torch.float8_e4m3fn, torch.complex32))
def test_numbers_without_arithmetic_are_compared_or_named(dtype: torch.dtype) -> None:
    def narrow(x: torch.Tensor) -> torch.Tensor:
        return (x * 3).to(dtype)

    x = torch.linspace(1, 2, 8)
    assert outcome(narrow, x, torch.clone) == "passed"
    told = check(narrow, (x,), backend=doubling).told
    assert "the shadow call failed" not in told


def doubling(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
    return lambda *args: tuple(
        (out.to(torch.complex64) * 2).to(out.dtype)
        if out.is_complex()
        else (out.float() * 2).to(out.dtype)
        for out in graph(*args)
    )
