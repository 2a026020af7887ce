"""A target is held against another implementation of the same call."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pytest_compileguard.errors import SpecError
from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.observation import ParityObservation
from pytest_compileguard.options import Options
from pytest_compileguard.spec import CompileCheck
from tests.conftest import RunSuite
from tests.dynamo.checked import Checked, check

pytestmark = pytest.mark.usefixtures("compiler_loaded")


def parity_of(checked: Checked) -> ParityObservation:
    seen = checked.verdict.observation.parity
    assert isinstance(seen, ParityObservation)
    return seen


class Custom(torch.autograd.Function):
    """A kernel with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return gradients[0] * (s * (1 + x * (1 - s))) * ctx.factor, None


def kernel(x: torch.Tensor) -> torch.Tensor:
    return Custom.apply(x, 1.0)  # type: ignore[no-any-return,no-untyped-call]


def kernel_with_wrong_gradient(x: torch.Tensor) -> torch.Tensor:
    return Custom.apply(x, 1.01)  # type: ignore[no-any-return,no-untyped-call]


def rough(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.silu(x) + 1e-3


INPUTS = (torch.linspace(-2, 2, 9, requires_grad=True),)


def test_other_implementation_that_agrees() -> None:
    checked = check(kernel, INPUTS, INPUTS, reference=nn.functional.silu)
    assert checked.verdict.outcome == "passed", checked.told
    # Of the target itself: output, argument, gradient; and the same against the reference.
    assert parity_of(checked).gradients_compared == 4


def test_wrong_gradient_of_the_target_itself() -> None:
    checked = check(kernel_with_wrong_gradient, INPUTS, reference=nn.functional.silu)
    (mismatch,) = parity_of(checked).mismatches
    assert (mismatch.path, mismatch.against) == ("gradient of x", "reference")
    assert "compiled differs from the reference in 1 of 1 call; eager agrees" in checked.told
    assert re.search(r"gradient of x against the reference: .* reference -?\d", checked.told)
    assert parity_of(checked).departure is None
    assert mismatch.eager_agrees is False
    told = checked.told
    assert "the fault lies in the target's own code, not in the compiler" in told
    assert "mend the target" in told
    assert "asks whether it is compiled" not in told


def test_tolerance_is_that_of_the_check() -> None:
    reference = nn.functional.silu
    assert check(rough, INPUTS, reference=reference).verdict.outcome == "failed"
    assert check(rough, INPUTS, reference=reference, rtol=0, atol=2e-3).verdict.outcome == "passed"


def test_compiled_is_held_against_eager_all_the_same() -> None:
    def wrong(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        del inputs
        return lambda *args: [out * 2 for out in graph(*args)]

    def silu(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(x)

    checked = check(silu, INPUTS, reference=nn.functional.silu, backend=wrong)
    assert {m.against for m in parity_of(checked).mismatches} == {"eager", "reference"}
    assert "compiled differs from eager in 1 of 1 call, and the reference in 1 of" in checked.told
    departure = parity_of(checked).departure
    assert departure is not None
    assert departure.stage == "test_compiled_is_held_against_eager_all_the_same.<locals>.wrong"
    assert all(m.eager_agrees for m in parity_of(checked).mismatches if m.against == "reference")
    assert "own code" not in checked.told


def test_fault_of_the_compiler_is_located_though_an_earlier_call_has_one_of_the_target() -> None:
    def wrong_where_large(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        del inputs
        return lambda *args: [
            out * 2 if isinstance(out, torch.Tensor) and out.numel() > 9 else out
            for out in graph(*args)
        ]

    def target(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + (x.numel() < 9)

    calls = (torch.ones(3),), (torch.ones(12),)
    checked = check(target, *calls, reference=torch.sin, backend=wrong_where_large)
    departure = parity_of(checked).departure
    assert departure is not None
    assert departure.call == 1
    assert departure.stage is not None
    assert "the fault lies in the target's own code" in checked.told
    assert [
        (m.call, m.against, m.eager_agrees) for m in parity_of(checked).mismatches if m.call == 0
    ] == [(0, "reference", False)]


def test_two_differences_that_add_up_are_nobodys_fault() -> None:
    """Compiled is just within the tolerance of eager, and eager of the reference."""

    def off(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        del inputs
        return lambda *args: [out + 8e-3 for out in graph(*args)]

    def reference(x: torch.Tensor) -> torch.Tensor:
        return x.sin() - 8e-3

    checked = check(torch.sin, (torch.ones(3),), reference=reference, backend=off, atol=1e-2)
    (mismatch,) = parity_of(checked).mismatches
    assert mismatch.eager_agrees is True
    assert "in output eager agrees with both compiled and the reference" in checked.told


class Scaled(nn.Module):
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(3.0))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.weight


class ScaledWrongly(Scaled):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight.detach() + 0 * self.weight.sum()


def test_modules_are_compared_by_the_names_of_their_parameters() -> None:
    target, reference = Scaled(), Scaled()
    assert check(target, (torch.ones(2, 3),), reference=reference).verdict.outcome == "passed"
    assert (float(target.calls), float(reference.calls)) == (1, 0)
    told = check(ScaledWrongly(), (torch.ones(2, 3),), reference=reference).told
    assert "gradient of weight against the reference" in told


def into(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x.sin())


def into_wrongly(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x.cos())


def test_what_is_written_to_arguments_is_compared() -> None:
    arguments = (torch.ones(3), torch.zeros(3))
    assert check(into, arguments, reference=into).verdict.outcome == "passed"
    checked = check(into_wrongly, arguments, reference=into)
    assert "out after the call against the reference" in checked.told


def test_other_memory_is_no_difference() -> None:
    def strided(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).t().contiguous().t()

    inputs = (torch.ones(2, 3),)
    assert check(strided, inputs, reference=lambda x: x * 2).verdict.outcome == "passed"


def test_reference_that_raises() -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        raise ValueError(x.shape)

    checked = check(kernel, INPUTS, reference=refuses)
    told = checked.told
    assert "the reference raised in 1 of 1 call; eager agrees with compiled" in told
    assert re.search(
        r"the call against the reference: the reference raises ValueError "
        r"\(at \S*test_reference.py:\d+ in refuses\): torch.Size\(\[9\]\)\n",
        told,
    )
    assert "mend the reference, which is called with the same arguments as the target" in told
    assert "own code" not in told
    assert "mend the target" not in told


def takes_two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def test_reference_that_takes_other_arguments() -> None:
    told = check(kernel, INPUTS, reference=takes_two).told
    assert re.search(
        r"the reference raises TypeError \(defined at \S*test_reference.py:\d+\): "
        r"takes_two\(\) missing 1 required positional argument: 'y'",
        told,
    )
    assert "mend the reference" in told


def test_reference_that_raises_beside_a_fault_of_the_target() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        if x.numel() > 3:
            raise NotImplementedError
        return x.cos()

    told = check(torch.sin, (torch.ones(3),), (torch.ones(4),), reference=reference).told
    assert "differs from the reference in 1 of 2 calls; the reference raised in 1 of 2" in told
    assert "the reference raises NotImplementedError (at " in told
    assert "the fault lies in the target's own code" in told
    assert "mend the target" in told
    assert "mend the reference" in told


def test_reference_that_raises_where_the_target_does_so_is_no_fault_of_its_own() -> None:
    def target(x: torch.Tensor) -> torch.Tensor:
        raise ValueError(x.shape)

    def reference(x: torch.Tensor) -> torch.Tensor:
        raise TypeError(x.shape)

    guard = CompileGuard(
        nodeid="t.py::t", spec=CompileCheck(backend="eager"), options=Options(no_timing=True)
    )
    guarded = guard(target, reference=reference)
    with pytest.raises(ValueError, match=r"torch\.Size"):
        guarded(torch.ones(2, 3))
    ((made, observation),) = guard.finish()
    guard.close()
    seen = observation.parity
    assert isinstance(seen, ParityObservation), made
    assert not any(m.reference_raises for m in seen.mismatches)


def test_reference_that_cannot_be_differentiated_is_named() -> None:
    class NoBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            del ctx
            return nn.functional.silu(x)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            raise NotImplementedError

    checked = check(kernel, INPUTS, reference=NoBackward.apply)
    assert parity_of(checked).unchecked == (
        "gradients: the reference can't be differentiated (NotImplementedError)",
    )


def test_random_numbers_and_results_of_the_test_stay_its_own() -> None:
    torch.manual_seed(1)
    guard = CompileGuard(
        nodeid="t.py::t", spec=CompileCheck(backend="eager"), options=Options(no_timing=True)
    )
    found = guard(lambda x: x * 2, reference=lambda x: torch.rand(9)[0] * 0 + x * 2)(torch.ones(2))
    drawn = torch.rand(1)
    guard.close()
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(1))
    assert torch.equal(found, torch.full((2,), 2.0))


@pytest.mark.parametrize("reference", (3, "silu"))
def test_what_is_no_implementation_is_refused(reference: Any) -> None:
    guard = CompileGuard(nodeid="t.py::t", spec=CompileCheck(), options=Options())
    with pytest.raises(SpecError, match="must be a function, a module"):
        guard(kernel, reference=reference)


TIMED = """
import torch
from library import double_relu

def slow(x):
    for _ in range(200):
        x = x + 0
    return double_relu(x)

def test_it(compileguard):
    guarded = compileguard(
        double_relu, reference=slow, backend="aot_eager", min_speedup=2, max_time_s=0.1
    )
    guarded(torch.ones(8))
"""


def test_speedup_is_over_the_reference(run_suite: RunSuite) -> None:
    run = run_suite(TIMED, timing=True)
    run.result.assert_outcomes(passed=1)
    assert run.check["samples"]["notes"][0] == "eager is the reference slow"
