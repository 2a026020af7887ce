"""A fault planted at each stage of the compiler is named by that stage, graph and element."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._inductor.decomposition import decompositions

from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.observation import Departure, NotObserved, ParityObservation
from pytest_compileguard.options import Options
from pytest_compileguard.spec import CompileCheck
from pytest_compileguard.verdict import judge
from tests.conftest import RunSuite
from tests.dynamo.checked import Checked, check

pytestmark = pytest.mark.usefixtures("compiler_loaded")


def departure_of(checked: Checked) -> Departure:
    seen = checked.verdict.observation.parity
    assert isinstance(seen, ParityObservation)
    assert seen.departure is not None
    return seen.departure


def outcomes(departure: Departure) -> dict[str, str]:
    return {trial.name: trial.outcome for trial in departure.trials}


def honest(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def two_faced(x: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_compiling():
        return x.sin() * 3
    return x.sin() * 2


def pieces(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    print(end="")  # noqa: T201  # a graph break
    z = y.cos()
    print(end="")  # noqa: T201  # a graph break
    return z * 2


def outputs(change: Callable[[Any], Any], *, where: str = "") -> Callable[..., Any]:
    """A backend that changes what a graph gives, if an operator of that name is in it."""

    def wrong(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        del inputs
        hit = any(where in str(node.target) for node in graph.graph.nodes)
        return (lambda *args: [change(out) for out in graph(*args)]) if hit else graph.forward

    return wrong


@pytest.fixture
def undeclared_alias() -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """An operator that returns its input and does not say so: writes to it get lost."""
    with contextlib.ExitStack() as stack:
        make: Any = torch.library.Library
        library = make("compileguard_planted", "FRAGMENT")
        stack.callback(library._destroy)
        library.define("same(Tensor x) -> Tensor")
        library.impl("same", lambda x: x, "CPU")
        library.impl("same", torch.empty_like, "Meta")

        def target(x: torch.Tensor) -> torch.Tensor:
            torch.ops.compileguard_planted.same(x).add_(1)
            return x * 2

        yield target


def test_dynamo() -> None:
    checked = check(two_faced, (torch.ones(3),), backend="aot_eager_decomp_partition")
    found = departure_of(checked)
    assert (found.stage, found.path) == ("eager", "output")
    assert outcomes(found) == {"aot_eager_decomp_partition": "departs", "eager": "departs"}
    assert found.graph is not None
    assert (found.graph.function, found.graphs) == ("two_faced", 1)
    assert "call 1 departs first at stage eager (Dynamo" in checked.told


def test_aot_autograd(undeclared_alias: Callable[[torch.Tensor], torch.Tensor]) -> None:
    found = departure_of(check(undeclared_alias, (torch.ones(3),), backend="aot_eager"))
    assert found.stage == "aot_eager"
    assert outcomes(found) == {"aot_eager": "departs", "eager": "agrees"}


def test_decompositions(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {torch.ops.aten.hardsigmoid.default: lambda x: (x / 6 + 0.75).clamp(0, 1)}
    for operator, decomposition in wrong.items():
        monkeypatch.setitem(decompositions, operator, decomposition)
    target, backend = torch.nn.Hardsigmoid(), "aot_eager_decomp_partition"
    with torch.no_grad():
        found = departure_of(check(target, (torch.zeros(3),), backend=backend))
    assert found.stage == backend
    assert outcomes(found) == {backend: "departs", "eager": "agrees", "aot_eager": "agrees"}


def test_inductor() -> None:
    def wrong_pass(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is torch.ops.aten.sin.default:
                node.target = torch.ops.aten.cos.default

    with torch._inductor.config.patch(post_grad_custom_post_pass=wrong_pass):
        checked = check(honest, (torch.zeros(3),), backend="inductor")
    found = departure_of(checked)
    assert found.stage == "inductor"
    assert outcomes(found) == {
        "inductor": "departs",
        "eager": "agrees",
        "aot_eager": "agrees",
        "aot_eager_decomp_partition": "agrees",
        "pattern_matcher=False": "departs",
        "max_fusion_size=1": "departs",
    }


def test_own_backend_and_its_graph() -> None:
    wrong = outputs(lambda out: out * 1.5, where="cos")
    checked = check(pieces, (torch.zeros(2, 3),), backend=wrong)
    found = departure_of(checked)
    assert found.stage is not None
    assert found.stage.endswith("wrong")
    assert (found.graph_number, found.graphs) == (2, 3)
    assert found.graph is not None
    assert found.graph.function == "pieces"
    assert "no. 2 of 3 graphs, from" in checked.told


def test_graph_of_a_gradient() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            del ctx
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            del ctx
            return gradients[0] * 2

    wrong = outputs(Doubled.apply, where="sin")
    found = departure_of(check(pieces, (torch.ones(3, requires_grad=True),), backend=wrong))
    assert (found.path, found.graph_number) == ("gradient of x", 1)


def test_greatest_difference_with_all_three_values() -> None:
    wrong = outputs(lambda out: out + torch.tensor([0.0, 3.0, 1.0]))
    checked = check(honest, (torch.tensor([0.5, 1.0, 1.5]),), backend=wrong)
    extreme = departure_of(checked).extreme
    assert extreme is not None
    assert extreme.index == (1,)
    assert (extreme.compiled[:7], extreme.eager[:7]) == ("4.68294", "1.68294")
    assert extreme.reference is not None
    assert extreme.reference.startswith("1.682941969")
    assert "compiled 4.68294" in checked.told
    assert "float64 1.682941969" in checked.told


def test_only_for_any_size() -> None:
    def wrong(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        sized = any(isinstance(value, torch.SymInt) for value in inputs)
        return (lambda *args: [out * 2 for out in graph(*args)]) if sized else graph.forward

    checked = check(honest, (torch.ones(3),), (torch.ones(4),), (torch.ones(5),), backend=wrong)
    found = departure_of(checked)
    assert found.call == 1
    assert found.only_dynamic
    assert "only with dynamic=True" in checked.told


def test_fault_that_does_not_come_back_is_not_located() -> None:
    compiles: list[int] = []

    def wrong_once(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        del inputs
        compiles.append(1)
        first = len(compiles) == 1
        return (lambda *args: [out * 2 for out in graph(*args)]) if first else graph.forward

    checked = check(honest, (torch.ones(3),), backend=wrong_once)
    assert departure_of(checked).stage is None
    assert "stage of call 1 not found: run again by itself, the call agrees" in checked.told


def test_reruns_of_a_failing_call_are_not_counted() -> None:
    wrong = outputs(lambda out: out * 1.5, where="cos")
    facts = check(pieces, (torch.ones(3),), (torch.ones(4),), backend=wrong).facts
    right = check(pieces, (torch.ones(3),), (torch.ones(4),), backend="eager").facts
    assert (facts.graphs, facts.break_events) == (right.graphs, right.break_events)
    assert len(facts.recompiles) == len(right.recompiles) == 3
    assert not facts.unreliable


def test_nothing_runs_again_where_both_sides_agree() -> None:
    compiles: list[int] = []

    def counted(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        del inputs
        compiles.append(1)
        return graph.forward

    assert check(honest, (torch.ones(3),), backend=counted).verdict.outcome == "passed"
    assert len(compiles) == 1


def test_call_starts_from_the_parameters_that_it_had() -> None:
    model = torch.nn.Linear(3, 3)
    found = model.weight.detach().clone()

    def change(call: int) -> None:
        if call:
            with torch.no_grad():
                model.weight.zero_()
                model.bias.fill_(7)

    wrong = outputs(lambda out: out * 2)
    inputs = (torch.ones(1, 3),)
    checked = check(model, inputs, inputs, before=change, backend=wrong)
    extreme = departure_of(checked).extreme
    assert extreme is not None
    assert not torch.equal(model.weight, found)
    assert extreme.eager != "7"


def test_locating_can_be_left_out(run_suite: RunSuite) -> None:
    suite = """
        import torch

        def wrong(graph, inputs):
            return lambda *args: [out * 2 for out in graph(*args)]

        def test_it(compileguard):
            compileguard(lambda x: x.sin(), backend=wrong)(torch.ones(3))
    """
    run = run_suite(suite, "--compileguard-no-locate")
    run.result.assert_outcomes(failed=1)
    assert run.check["departure"] is None
    assert "stage" not in run.text


MODULE = """
import pytest
import torch
from torch import nn

class Net(nn.Sequential):
    def forward(self, x):
        return super().forward(x)

def scaled(graph, inputs):
    return lambda *args: [out * 1.5 for out in graph(*args)]

STATE = []

@pytest.mark.xfail(strict=True)
def test_fails(compileguard):
    torch.manual_seed(0)
    model = Net(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    guarded = {target}
    inputs = torch.arange(12.0).view(4, 3).sin()
    for _ in range(2):
        guarded(inputs)
    STATE.append((torch.get_rng_state(), model, inputs, *model.state_dict().values()))

def test_next():
    torch.manual_seed(0)
    model = Net(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    for _ in range(2):
        model(torch.arange(12.0).view(4, 3).sin())
    rng, found, inputs, *state = STATE[0]
    assert torch.equal(torch.get_rng_state(), rng)
    assert torch.equal(inputs, torch.arange(12.0).view(4, 3).sin())
    assert all(map(torch.equal, found.state_dict().values(), model.state_dict().values()))

def test_another(compileguard):
    compileguard(lambda x: x.sin(), backend="aot_eager", max_recompiles=0)(torch.ones(3))
"""


@pytest.mark.parametrize(
    "target",
    (
        "compileguard(model, backend=scaled)",
        "compileguard(torch.compile(model, backend=scaled))",
        "compileguard(torch.compile(model.forward, backend=scaled))",
        "(model.compile(backend=scaled), compileguard(model))[1]",
    ),
)
def test_test_and_the_next_one_see_nothing_of_it(target: str, run_suite: RunSuite) -> None:
    run = run_suite(MODULE.format(target=target))
    run.result.assert_outcomes(xfailed=1, passed=2)
    departure = run.checks[1]["departure"] or run.checks[0]["departure"]
    assert departure["stage"] in ("scaled", "of the target"), run.text
    assert departure["call"] == 0


SCALE = [2.0]


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE[0]


STATE: dict[str, torch.Tensor] = {}


class ByGlobal(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        STATE["k"] = x + (1 if torch.compiler.is_compiling() else 0)
        return x * 2


class ByClass(torch.nn.Module):
    total = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ByClass.total += 2 if torch.compiler.is_compiling() else 1
        return x * 2


@pytest.mark.parametrize(
    ("model", "path"),
    ((ByGlobal, "tests.dynamo.test_locating.STATE['k']"), (ByClass, "ByClass.total")),
)
def test_difference_in_globals_and_classes(model: type[torch.nn.Module], path: str) -> None:
    checked = check(model(), (torch.ones(3),), backend="aot_eager")
    assert (departure_of(checked).stage, departure_of(checked).path) == ("eager", path)


def test_rerun_meets_the_globals_that_the_call_met() -> None:
    guard = CompileGuard(
        nodeid="t.py::t",
        spec=CompileCheck(backend=outputs(lambda out: out + 1)),
        options=Options(no_timing=True),
    )
    try:
        guard(scaled)(torch.ones(3))
        SCALE[0] = 7.0
        ((made, observation),) = guard.finish()
    finally:
        guard.close()
        left, SCALE[0] = SCALE[0], 2.0
    found = departure_of(
        Checked(judge(made.plan, observation, None, NotObserved(reason="no baseline here")))
    )
    assert found.extreme is not None
    assert (found.extreme.compiled, found.extreme.eager) == ("3", "2")
    assert left == 7.0  # as the test left it
