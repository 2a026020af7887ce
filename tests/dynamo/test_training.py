"""Steps of training: both sides agree, each planted fault is named, the test keeps its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pytest_compileguard.errors import SpecError
from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.observation import (
    NotObserved,
    ParityObservation,
)
from pytest_compileguard.options import Options
from pytest_compileguard.report.summary import summary_lines
from pytest_compileguard.spec import CompileCheck
from pytest_compileguard.verdict import judge
from tests.conftest import RunSuite
from tests.dynamo.checked import Checked

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Model = Callable[..., Any]


class Net(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.one = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(dropout)
        self.two = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.norm(self.one(x)).relu()
        return self.two(self.dropout(hidden))  # type: ignore[no-any-return]


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(11)
    return [
        (torch.randn(5, 6, generator=generator), torch.randn(5, 2, generator=generator))
        for _ in range(count)
    ]


def train(
    model: Any,
    optimizer: torch.optim.Optimizer,
    *,
    steps: int = 3,
    loss_fn: Model = nn.functional.mse_loss,
    after: Callable[[], object] = lambda: None,
    locates: bool = True,
    **arguments: Any,
) -> Checked:
    """Make guarded steps as a test does."""
    options = Options(no_timing=True, no_locate=not locates)
    guard = CompileGuard(nodeid="t.py::t", spec=CompileCheck(), options=options)
    try:
        step = guard.training(model, optimizer, loss_fn, **arguments)
        for inputs, targets in batches(steps):
            step(inputs, targets)
            after()
        ((made, observation),) = guard.finish()
    finally:
        guard.close()
    return Checked(judge(made.plan, observation, None, NotObserved(reason="none here")))


def mismatched(checked: Checked) -> set[str]:
    seen = checked.verdict.observation.parity
    assert isinstance(seen, ParityObservation), seen
    return {mismatch.path for mismatch in seen.mismatches}


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, foreach=True),
    "SGD with momentum": lambda parameters: torch.optim.SGD(
        parameters, lr=1e-2, momentum=0.9, weight_decay=1e-3
    ),
}


@pytest.mark.parametrize(
    ("name", "set_to_none", "compile_optimizer"),
    (("AdamW", True, True), ("SGD with momentum", True, False), ("SGD with momentum", False, True)),
)
def test_training_agrees_and_ends_as_eager_training_does(
    name: str, *, set_to_none: bool, compile_optimizer: bool
) -> None:
    torch.manual_seed(5)
    model = Net(dropout=0.3)
    plain = copy.deepcopy(model)
    optimizer, plain_optimizer = (OPTIMIZERS[name](m.parameters()) for m in (model, plain))
    torch.manual_seed(6)
    checked = train(
        model,
        optimizer,
        backend="aot_eager",
        set_to_none=set_to_none,
        compile_optimizer=compile_optimizer,
    )
    drawn = torch.rand(1)
    assert checked.verdict.outcome == "passed", checked.told

    torch.manual_seed(6)
    for inputs, targets in batches(3):
        plain_optimizer.zero_grad(set_to_none=set_to_none)
        nn.functional.mse_loss(plain(inputs), targets).backward()  # type: ignore[no-untyped-call]
        plain_optimizer.step()
    assert torch.equal(drawn, torch.rand(1))
    assert all(map(torch.equal, model.state_dict().values(), plain.state_dict().values()))
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    grads = [(a.grad, b.grad) for a, b in pairs]
    assert all(torch.equal(a, b) for a, b in grads if a is not None and b is not None)
    assert not any(a is None or b is None for a, b in grads)
    ours, theirs = optimizer.state_dict()["state"], plain_optimizer.state_dict()["state"]
    for number, state in theirs.items():
        assert all(torch.equal(ours[number][key], value) for key, value in state.items())


def test_what_is_compared() -> None:
    model = Net()
    checked = train(model, torch.optim.AdamW(model.parameters()), steps=1, backend="eager")
    seen = checked.verdict.observation.parity
    assert isinstance(seen, ParityObservation)
    # One loss, 6 parameters with their gradients, 3 buffers, and the batch at least.
    assert seen.leaves_compared >= 1 + 2 * 6 + 3 + 2
    assert seen.gradients_compared == 6
    (said,) = (f.message for f in checked.verdict.findings if f.metric == "parity")
    assert said == "1 of 1 call"
    lines = [line.text for line in summary_lines([checked.verdict], width=80, verbosity=0)]
    assert not any("no gradients" in line for line in lines)


def test_models_that_the_test_compiles() -> None:
    for make in ("wrapped", "in place"):
        model: Any = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if make == "wrapped":
            model = torch.compile(model, backend="aot_eager")
        else:
            model.compile(backend="aot_eager")
        checked = train(model, optimizer)
        assert checked.verdict.outcome == "passed", checked.told
        assert checked.facts.graphs == 1


def test_facts_are_those_of_the_whole_step() -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    forward = train(model, optimizer, backend="aot_eager").facts
    both = train(model, optimizer, backend="aot_eager", compile_optimizer=True).facts
    assert (forward.calls, both.calls) == (3, 6)
    assert both.graphs > forward.graphs == 1
    assert all(site.allowed for site in both.break_sites)


def test_learning_rate_that_changes_recompiles_the_optimizer() -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    checked = train(
        model,
        optimizer,
        after=scheduler.step,
        backend="aot_eager",
        compile_optimizer=True,
        max_recompiles=0,
    )
    assert checked.verdict.outcome == "failed"
    assert "lr" in checked.told
    assert not mismatched(checked)
    assert optimizer.param_groups[0]["lr"] == 0.1 / 8


def test_scheduler_does_not_make_the_shadow_step_the_real_optimizer() -> None:
    model, plain = Net(), Net()
    plain.load_state_dict(model.state_dict())
    other = torch.optim.SGD(plain.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(other, 1)
    guard = CompileGuard(
        nodeid="t.py::t", spec=CompileCheck(backend="eager"), options=Options(no_timing=True)
    )
    (inputs, targets), *_ = batches(1)

    def whole(x: torch.Tensor) -> torch.Tensor:
        other.zero_grad()
        loss = nn.functional.mse_loss(plain(x), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        other.step()
        return loss.detach()

    guard(whole)(inputs)
    guard.close()
    nn.functional.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert all(map(torch.equal, model.state_dict().values(), plain.state_dict().values()))


class Sevenfold(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        del ctx
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        del ctx
        return gradients[0] * 7


sevenfold: Callable[[Any], Any] = Sevenfold.apply


def wrong_gradient(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    del inputs
    return lambda *args: [sevenfold(o) if o.requires_grad else o for o in graph(*args)]


def without(*names: str, left_out: list[str] | None = None) -> Callable[..., Any]:
    """A backend that leaves out what writes in place under certain names."""
    found = [] if left_out is None else left_out

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        del inputs
        for node in list(graph.graph.nodes):
            if any(name in str(node.target) for name in names):
                found.append(str(node.target))
                node.replace_all_uses_with(node.args[0])
                graph.graph.erase_node(node)
        graph.recompile()
        return graph.forward

    return backend


def test_wrong_gradient_is_named() -> None:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    checked = train(model, optimizer, backend=wrong_gradient, steps=1)
    assert "model.two.weight.grad" in mismatched(checked)
    assert "model.two.weight" not in mismatched(checked)
    seen = checked.verdict.observation.parity
    assert isinstance(seen, ParityObservation)
    assert seen.departure is not None
    assert seen.departure.stage == "wrong_gradient"
    assert seen.departure.extreme is not None
    assert seen.departure.extreme.reference is not None


def test_stale_buffer_is_named() -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checked = train(model, optimizer, backend=without("add_"), steps=1)
    assert "model.norm.num_batches_tracked" in mismatched(checked)


@pytest.mark.parametrize(
    ("wrong", "leaf"),
    ((("lerp",), "exp_avg"), (("addcmul", "copy_"), "exp_avg_sq"), (("addcdiv",), "model.")),
)
def test_wrong_state_of_the_optimizer_is_named(wrong: tuple[str, ...], leaf: str) -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    left_out: list[str] = []
    backend = without(*wrong, left_out=left_out)
    checked = train(model, optimizer, backend=backend, compile_optimizer=True, steps=1)
    if not left_out:
        pytest.skip("the steps of this torch have no such operation")
    assert any(leaf in path for path in mismatched(checked)), mismatched(checked)


def test_optimizer_that_steps_the_wrong_way_is_not_acquitted() -> None:
    """A step is small against a parameter, so that it is a matter of the float64 reference."""

    def backwards(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        del inputs
        for node in graph.graph.nodes:
            if "alpha" in node.kwargs:
                planted.append(node)
                node.kwargs = node.kwargs | {"alpha": -node.kwargs["alpha"]}
        graph.recompile()
        return graph.forward

    planted: list[torch.fx.Node] = []
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    checked = train(model, optimizer, backend=backwards, compile_optimizer=True, steps=1)
    if not planted:
        pytest.skip("the steps of this torch have no such operation")
    assert "model.weight" in mismatched(checked), checked.told


def test_gradient_that_is_only_rounding_makes_no_false_red() -> None:
    torch.manual_seed(2)
    model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    guard = CompileGuard(
        nodeid="t.py::t", spec=CompileCheck(backend="aot_eager"), options=Options(no_timing=True)
    )
    step = guard.training(model, optimizer, lambda out: out.square().mean(), compile_optimizer=True)
    for _ in range(2):
        step(torch.randn(4, 7, 16))
    ((made, observation),) = guard.finish()
    guard.close()
    told = Checked(judge(made.plan, observation, None, NotObserved(reason="none here"))).told
    assert told == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        ((3, "optimizer", nn.functional.mse_loss), "model must be a module or a function, not int"),
        ((nn.Linear(1, 1), 3, nn.functional.mse_loss), "optimizer must be one of torch, not int"),
        ((nn.Linear(1, 1), torch.optim.SGD([torch.ones(1)], lr=1), 3), "loss_fn must be a"),
        (
            (nn.Linear(1, 1), torch.optim.SGD([torch.ones(1)], lr=1), nn.functional.mse_loss),
            "the optimizer has no parameter of the model",
        ),
    ),
)
def test_parts_that_are_none_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    guard = CompileGuard(nodeid="t.py::t", spec=CompileCheck(), options=Options())
    with pytest.raises(SpecError, match=message):
        guard.training(*arguments)


def test_optimizer_is_not_compiled_twice() -> None:
    model: Any = torch.compile(nn.Linear(1, 1), backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = CompileGuard(nodeid="t.py::t", spec=CompileCheck(), options=Options())
    with pytest.raises(SpecError, match="the test compiles the model or the optimizer itself"):
        guard.training(model, optimizer, nn.functional.mse_loss, compile_optimizer=True)


SUITE = """
import torch
from torch import nn
from library import Net

def test_it(compileguard):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compileguard.training(
        model, optimizer, nn.functional.mse_loss, backend="aot_eager", {arguments}
    )
    before = model.linear.weight.detach().clone()
    losses = [step(torch.ones(3, 4), torch.arange(12.0).view(3, 4)) for _ in range(2)]
    assert losses[1] < losses[0]
    assert not losses[0].requires_grad
    assert not torch.equal(before, model.linear.weight)
"""


def test_a_step_is_timed_as_a_whole(run_suite: RunSuite) -> None:
    run = run_suite(SUITE.format(arguments="min_speedup=1e-6, max_time_s=0.1"), timing=True)
    run.result.assert_outcomes(passed=1)
    assert run.check["name"] == "training(Net)"
    assert run.check["samples"]["eager_s"]


def test_disabled_checks_train_eagerly(run_suite: RunSuite) -> None:
    run = run_suite(SUITE.format(arguments="max_graph_breaks=0"), "--compileguard-disable")
    run.result.assert_outcomes(passed=1)
