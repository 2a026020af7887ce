"""Ways to train: scalers, clipping, accumulation, schedulers, groups, forms of the optimizer."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pytest_compileguard.errors import SpecError
from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.options import Options
from pytest_compileguard.spec import CompileCheck
from pytest_compileguard.training_step import WAYS
from tests.conftest import RunSuite
from tests.dynamo.checked import Checked
from tests.dynamo.test_training import (
    batches,
    mismatched,
    sevenfold,
    train,
    without,
    wrong_gradient,
)

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Optimizer = torch.optim.Optimizer


def scaler(init_scale: float = 2.0**16, *, grows: bool = True) -> torch.amp.GradScaler:
    interval = 2 if grows else 2000
    return torch.amp.GradScaler("cpu", init_scale=init_scale, growth_interval=interval)


def clip(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


class Pair(nn.Module):
    """Small, since optimizers are compiled for it."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(6, 4)
        self.two = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.one(x).relu())  # type: ignore[no-any-return]


def large_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return 8 * nn.functional.mse_loss(output, target)


def two() -> tuple[Pair, Pair]:
    """A model and its like."""
    torch.manual_seed(5)
    model = Pair()
    return model, copy.deepcopy(model)


def scaled_weight(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """A backend that scales the gradient of one parameter."""
    del inputs

    def run(*args: Any) -> Any:
        weights = [n for n, arg in enumerate(args) if isinstance(arg, nn.Parameter)]
        if not (weights and torch.is_grad_enabled()):
            return graph(*args)
        return graph(*(sevenfold(a) if n == weights[0] else a for n, a in enumerate(args)))

    return run


def plain_steps(  # noqa: PLR0913  # each is one way to train
    model: nn.Module,
    optimizer: Optimizer,
    scaling: torch.amp.GradScaler | None,
    *,
    steps: int = 3,
    clips: bool = True,
    accumulate: int = 1,
    loss_fn: Callable[..., torch.Tensor] = nn.functional.mse_loss,
) -> None:
    """Train as a user does without the plugin."""
    scaling = scaling or torch.amp.GradScaler("cpu", enabled=False)
    for number, (inputs, targets) in enumerate(batches(steps)):
        if number % accumulate == 0:
            optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        scaling.scale(loss if accumulate == 1 else loss / accumulate).backward()  # type: ignore[no-untyped-call]
        if number % accumulate == accumulate - 1:
            scaling.unscale_(optimizer)
            if clips:
                clip(model)
            scaling.step(optimizer)
            scaling.update()


def assert_alike(model: nn.Module, plain: nn.Module) -> None:
    assert all(map(torch.equal, model.state_dict().values(), plain.state_dict().values()))
    grads = [(a.grad, b.grad) for a, b in zip(model.parameters(), plain.parameters(), strict=True)]
    assert all(a is not None and b is not None for a, b in grads)
    assert all(torch.equal(a, b) for a, b in grads if a is not None and b is not None)


@pytest.mark.parametrize("compile_optimizer", (False, True))
def test_scaled_and_clipped_training_ends_as_eager_does(*, compile_optimizer: bool) -> None:
    model, plain = two()
    ours, theirs = scaler(), scaler()
    checked = train(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-2),
        scaler=ours,
        # What the hook closes over is that of each side, too.
        before_step=(lambda _: clip(model)) if compile_optimizer else clip,
        compile_optimizer=compile_optimizer,
        backend="aot_eager",
    )
    assert checked.verdict.outcome == "passed", checked.told
    plain_steps(plain, torch.optim.AdamW(plain.parameters(), lr=1e-2), theirs)
    assert_alike(model, plain)
    assert ours.state_dict() == theirs.state_dict()
    assert ours.get_scale() > 2.0**16  # it grew on the way


def test_fault_that_clipping_undoes_is_caught() -> None:
    model, _ = two()
    checked = train(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        scaler=scaler(),
        before_step=clip,
        backend=wrong_gradient,
        steps=1,
        locates=False,
    )
    assert "model.one.weight.grad" in mismatched(checked)


def test_gradients_are_compared_as_they_are_unscaled() -> None:
    """An absolute tolerance of the user's is about gradients, not about scaled ones."""

    def off(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        del inputs
        return lambda *args: [out * (1 + 1e-5) for out in graph(*args)]

    model, _ = two()
    checked = train(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        scaler=scaler(),
        backend=off,
        steps=1,
        rtol=0,
        atol=1e-3,
    )
    assert checked.verdict.outcome == "passed", checked.told


@pytest.mark.parametrize("compile_optimizer", (False, True))
def test_step_that_the_scaler_skips_is_skipped_on_both_sides(*, compile_optimizer: bool) -> None:
    model, plain = two()
    # The first scales are too large for float32, and are halved until they fit.
    ours, theirs = scaler(2.0**127, grows=False), scaler(2.0**127, grows=False)
    checked = train(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        scaler=ours,
        compile_optimizer=compile_optimizer,
        backend="aot_eager",
        steps=5,
        loss_fn=large_loss,
    )
    assert checked.verdict.outcome == "passed", checked.told
    assert not checked.verdict.observation.parity.unchecked  # type: ignore[union-attr]
    theirs_optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    plain_steps(plain, theirs_optimizer, theirs, steps=5, clips=False, loss_fn=large_loss)
    assert ours.get_scale() < 2.0**127
    assert_alike(model, plain)
    assert ours.state_dict() == theirs.state_dict()


@pytest.mark.parametrize("compile_optimizer", (False, True))
def test_scaler_that_is_off_changes_nothing(*, compile_optimizer: bool) -> None:
    """Code often makes one in any case, with ``enabled=use_amp``."""
    made = []
    for off in (torch.amp.GradScaler("cpu", enabled=False), None):
        model, plain = two()
        checked = train(
            model,
            torch.optim.AdamW(model.parameters(), lr=1e-2),
            before_step=clip,
            compile_optimizer=compile_optimizer,
            backend="aot_eager",
            scaler=off,
        )
        assert checked.verdict.outcome == "passed", checked.told
        plain_steps(plain, torch.optim.AdamW(plain.parameters(), lr=1e-2), None)
        assert_alike(model, plain)
        made.append(checked.verdict.observation.parity)
    assert made[0] == made[1]


def test_wrong_gradient_is_caught_beside_a_scaler_that_is_off() -> None:
    model, _ = two()
    checked = train(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        scaler=torch.amp.GradScaler("cpu", enabled=False),
        backend=wrong_gradient,
        steps=1,
        locates=False,
    )
    assert "model.one.weight.grad" in mismatched(checked)


def test_compiled_optimizer_that_never_ran_is_told() -> None:
    model, _ = two()
    checked = train(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        scaler=scaler(float("inf")),
        compile_optimizer=True,
        backend="eager",
    )
    findings = [f.message for f in checked.verdict.findings if f.status == "not_checked"]
    assert any("the scaler skipped each update" in message for message in findings)


def test_accumulation_that_was_never_filled_is_told() -> None:
    model, _ = two()
    checked = train(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        accumulate=100,
        compile_optimizer=True,
        backend="eager",
    )
    findings = [f.message for f in checked.verdict.findings if f.status == "not_checked"]
    assert any("the optimizer had no step to make" in message for message in findings)


def test_gradient_that_is_infinite_on_one_side_only_is_caught() -> None:
    def overflowing(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        del inputs
        return lambda *args: [sevenfold(out) * 1e38 / 1e38 for out in graph(*args)]

    model, _ = two()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checked = train(model, optimizer, scaler=scaler(), backend=overflowing, steps=1, locates=False)
    assert "model.one.weight.grad" in mismatched(checked)


def test_wrong_update_is_caught_behind_a_scaler() -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    checked = train(
        model,
        optimizer,
        scaler=scaler(),
        compile_optimizer=True,
        backend=without("add_"),
        steps=1,
        locates=False,
    )
    assert "model.weight" in mismatched(checked), checked.told
    assert "no float64 reference" not in checked.told


@pytest.mark.parametrize("scales", (False, True))
def test_gradients_of_several_batches_accumulate(*, scales: bool) -> None:
    model, plain = two()
    ours, theirs = (scaler(), scaler()) if scales else (None, None)
    checked = train(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-2),
        scaler=ours,
        before_step=clip,
        accumulate=2,
        compile_optimizer=scales,
        backend="aot_eager",
        steps=4,
    )
    assert checked.verdict.outcome == "passed", checked.told
    assert checked.facts.calls == (4 + 2 if scales else 4)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    plain_steps(plain, optimizer, theirs, steps=4, accumulate=2)
    assert_alike(model, plain)


def test_wrong_gradient_of_a_later_batch_is_caught() -> None:
    made: list[int] = []

    def later(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        del inputs

        def run(*args: Any) -> Any:
            made.append(1)
            return [sevenfold(out) for out in graph(*args)] if len(made) > 1 else graph(*args)

        return run

    model, _ = two()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checked = train(model, optimizer, accumulate=2, backend=later, steps=2, locates=False)
    assert "model.one.weight.grad" in mismatched(checked)


def groups(model: Pair) -> list[dict[str, Any]]:
    return [{"params": model.one.parameters(), "lr": 1e-2}, {"params": model.two.parameters()}]


FORMS: dict[str, Callable[[Pair], Optimizer]] = {
    "scheduler": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "groups": lambda model: torch.optim.AdamW(groups(model), lr=1e-3, weight_decay=0.1),
    "foreach": lambda model: torch.optim.Adam(model.parameters(), foreach=True),
    "for each on its own": lambda model: torch.optim.Adam(model.parameters(), foreach=False),
    "fused": lambda model: torch.optim.Adam(model.parameters(), fused=True),
}


def trained(name: str, **arguments: Any) -> Checked:
    model, _ = two()
    optimizer = FORMS[name](model)
    after: Callable[[], object] = lambda: None  # noqa: E731
    if name == "scheduler":
        after = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5).step
    return train(model, optimizer, after=after, steps=2, locates=False, **arguments)


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_optimizers_agree(name: str) -> None:
    # Dynamo leaves a fused one as it is, which is a fallback where it is to be compiled.
    compiles = name != "fused"
    checked = trained(name, backend="aot_eager", compile_optimizer=compiles)
    assert checked.verdict.outcome == "passed", checked.told


def test_fused_optimizer_that_is_to_be_compiled_but_runs_eager_is_told() -> None:
    checked = trained("fused", backend="eager", compile_optimizer=True)
    assert "2 of 4 calls ran no compiled code: 2, 4" in checked.told
    assert not mismatched(checked)


@pytest.mark.parametrize("name", FORMS)
def test_one_scaled_gradient_is_caught(name: str) -> None:
    checked = trained(name, backend=scaled_weight, compile_optimizer=name == "groups")
    assert "model.one.weight.grad" in mismatched(checked), checked.told
    assert "model.two.weight.grad" not in mismatched(checked)


@pytest.mark.parametrize(
    ("ways", "message"),
    (
        ({"scaler": 2.0}, "scaler must be a torch.amp.GradScaler, not float"),
        ({"before_step": 1.0}, "before_step must be a function that takes the model, not float"),
        ({"accumulate": 0}, "accumulate must be a number of calls, 1 or more: 0"),
        ({"accumulate": True}, "accumulate must be a number of calls, 1 or more: True"),
        ({"accumulat": 2}, "unknown limit 'accumulat'; did you mean accumulate[?] Known: compile_"),
        ({"max_recompile": 0}, "unknown limit 'max_recompile'; did you mean max_recompiles[?]"),
    ),
)
def test_ways_that_are_none_are_refused(ways: dict[str, Any], message: str) -> None:
    model = nn.Linear(1, 1)
    guard = CompileGuard(nodeid="t.py::t", spec=CompileCheck(), options=Options())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(SpecError, match=message):
        guard.training(model, optimizer, nn.functional.mse_loss, **ways)


SUITE = """
import torch
from torch import nn
from library import Net

def test_it(compileguard):
    torch.manual_seed(1)
    model = Net()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    step = compileguard.training(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        nn.functional.mse_loss,
        scaler=scaler,
        before_step=lambda model: nn.utils.clip_grad_value_(model.parameters(), 0.5),
        accumulate=2,
        backend="aot_eager",
        min_speedup=1e-6,
        max_time_s=0.1,
    )
    kept = []
    for _ in range(4):
        step(torch.ones(3, 4), torch.arange(12.0).view(3, 4))
        kept.append(model.linear.weight.detach().clone())
    assert torch.equal(kept[1], kept[2])
    assert not torch.equal(kept[0], kept[1])
    assert not torch.equal(kept[2], kept[3])
    assert model.linear.weight.grad.abs().max() <= 0.5
"""


@pytest.mark.parametrize("options", ((), ("--compileguard-disable",)))
def test_a_test_sees_plain_training(run_suite: RunSuite, options: tuple[str, ...]) -> None:
    run = run_suite(SUITE, *options, timing=not options)
    run.result.assert_outcomes(passed=1)
    if not options:
        assert run.check["samples"]["eager_s"]


def test_every_way_to_train_is_among_those_that_are_known() -> None:
    named = inspect.signature(CompileGuard.training).parameters.values()
    assert tuple(way.name for way in named if way.kind is way.KEYWORD_ONLY) == WAYS
