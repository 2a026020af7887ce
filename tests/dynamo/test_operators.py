"""Operators that capture functions, such as ``torch.cond``, work in guarded calls as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._higher_order_ops import map as map_over

from pytest_compileguard import dynamo
from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.observation import NotObserved
from pytest_compileguard.options import Options
from pytest_compileguard.report.failure import failure_text
from pytest_compileguard.spec import CompileCheck
from pytest_compileguard.verdict import judge
from tests.dynamo.checked import check

pytestmark = [
    pytest.mark.usefixtures("compiler_loaded"),
    # Plain eager warns of it too, for an operand that is no leaf.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]


def sevenfold(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        return [g * 7 if isinstance(g, torch.Tensor) else g for g in graph(*args)]

    return run


wrong_gradients = aot_autograd(fw_compiler=lambda graph, _: graph, bw_compiler=sevenfold)


def alters(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
    return lambda *args: tuple(2 * out for out in graph(*args))


def gate(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))  # type: ignore[no-any-return]


def rows(x: torch.Tensor) -> torch.Tensor:
    return map_over(lambda row, *_: row.sin(), x)  # type: ignore[no-any-return]


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, self.a, self.b, (x,))  # type: ignore[no-any-return]


TARGETS: dict[str, Callable[[], Any]] = {
    "cond": lambda: gate,
    "map": lambda: rows,
    "modules": Gate,
}


def inputs(*, grad: bool = True) -> torch.Tensor:
    return torch.ones(2, 4).requires_grad_(grad)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("grad", (True, False))
def test_sound_code_passes_and_only_compiled_graphs_count(name: str, grad: bool) -> None:  # noqa: FBT001
    calls = [(inputs(grad=grad),), (-inputs(grad=grad),)]
    seen = check(TARGETS[name](), *calls, backend="aot_eager", max_recompiles=0)
    assert seen.verdict.outcome == "passed", seen.told
    assert seen.facts.graphs == 1
    assert not seen.facts.break_sites


@pytest.mark.parametrize("name", ("cond", "map"))
def test_a_wrong_gradient_fails(name: str) -> None:
    seen = check(TARGETS[name](), (inputs(),), backend=wrong_gradients)
    assert "gradient of" in seen.told
    assert "there gradient of" in seen.told, "it is made again, and located"


@pytest.mark.parametrize("target", (gate, rows))
def test_the_test_gets_what_eager_gives(target: Callable[..., Any]) -> None:
    got: list[Any] = []

    def keeps(x: torch.Tensor) -> Any:
        y = target(x)
        if not torch.compiler.is_compiling():
            got.append(y)
        return y

    plain, guarded = inputs(), inputs()
    target(plain).sum().backward()
    check(keeps, (guarded,), backend="aot_eager")
    got[0].sum().backward()
    assert torch.equal(guarded.grad, plain.grad)  # type: ignore[arg-type]
    target(inputs()).sum().backward()  # and operators go on working


def test_a_step_of_training_works() -> None:
    model, spec = Gate(), CompileCheck(backend="aot_eager")
    guard = CompileGuard(nodeid="t.py::t", spec=spec, options=Options(no_timing=True))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step = guard.training(model, optimizer, nn.functional.mse_loss)
    try:
        step(inputs(grad=False), torch.zeros(2, 4))
        ((made, seen),) = guard.finish()
    finally:
        guard.close()
    verdict = judge(made.plan, seen, None, NotObserved(reason="no baseline here"))
    assert verdict.outcome == "passed", failure_text([verdict], rootpath=None)


@pytest.mark.parametrize("inside", (True, False))
def test_what_compiles_itself_stays_eager_beside_an_operator(inside: bool) -> None:  # noqa: FBT001
    """Else compiled code would be compared with compiled code."""
    part = torch.compile(torch.nn.functional.silu, backend=alters)

    def branch(x: torch.Tensor) -> torch.Tensor:
        return part(x)

    def target(x: torch.Tensor) -> torch.Tensor:
        if inside:
            return torch.cond(x.sum() > 0, branch, lambda x: x.cos(), (x,))  # type: ignore[no-any-return]
        return gate(part(x))

    with dynamo.eager_stance():
        seen = target(inputs())
    silu = torch.nn.functional.silu(inputs())
    assert torch.equal(seen, silu if inside else gate(silu))


def test_numbers_drawn_beside_an_operator_are_those_of_eager() -> None:
    def target(x: torch.Tensor) -> torch.Tensor:
        return gate(torch.nn.functional.dropout(x.double(), 0.5).float())

    seen = check(target, (inputs(grad=False),), backend="aot_eager")
    assert seen.verdict.outcome == "passed", seen.told
    target(inputs()).sum().backward()  # type: ignore[no-untyped-call]
