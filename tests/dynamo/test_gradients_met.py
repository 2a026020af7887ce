"""Gradients that tensors have before a call: read, clipped and dropped, by whatever name."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.compiler import is_compiling
from torch.nn import utils

from pytest_compileguard.observation import ParityObservation
from tests.dynamo import gradient_helpers
from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Change = Callable[[torch.Tensor], object]
Make = Callable[[], torch.Tensor]
Hold = Callable[[torch.Tensor], Any]


def trained() -> torch.Tensor:
    tensor = torch.arange(1.0, 4.0).requires_grad_()
    tensor.grad = torch.full((3,), 4.0)
    return tensor


def set_by_string(t: torch.Tensor) -> None:
    setattr(t, "grad", None)  # noqa: B010  # under test


def deleted(t: torch.Tensor) -> None:
    del t.grad


CHANGES: tuple[Change, ...] = (
    gradient_helpers.drop,
    set_by_string,
    deleted,
    lambda t: gradient_helpers.drop(t),  # noqa: PLW0108  # through a module
    lambda t: utils.clip_grad_norm_([t], 1.0),
    lambda t: utils.clip_grad_value_([t], 0.5),
)
READS: tuple[Change, ...] = (
    gradient_helpers.doubled,
    lambda t: gradient_helpers.doubled(t),  # noqa: PLW0108  # through a module
    operator.attrgetter("grad"),
    lambda t: getattr(t, "grad") + 1,  # noqa: B009  # under test
)


def retained() -> torch.Tensor:
    """One that is no leaf, and keeps its gradient."""
    tensor = trained() * 2
    tensor.retain_grad()
    tensor.square().sum().backward()  # type: ignore[no-untyped-call]
    return tensor


def viewed() -> torch.Tensor:
    tensor = torch.ones(6)[1:4].requires_grad_()
    tensor.grad = torch.full((3,), 4.0)
    return tensor


MAKERS = (trained, retained, viewed)
HOLDERS: tuple[Hold, ...] = (
    lambda t: t,
    lambda t: [t],
    lambda t: {"a": {"b": t}},
)


def only(held: Any) -> torch.Tensor:
    while not isinstance(held, torch.Tensor):
        held = next(iter(held.values() if isinstance(held, dict) else held))
    return held


def changing(change: Change, *, departs: bool) -> Callable[..., Any]:
    @torch.compiler.disable  # type: ignore[untyped-decorator]  # Dynamo refuses some of them
    def changes(t: torch.Tensor, compiling: bool) -> None:  # noqa: FBT001
        if not compiling:
            change(t)

    def target(held: Any, x: torch.Tensor) -> torch.Tensor:
        changes(only(held), departs and is_compiling())
        return x * 2

    return target


def compares(change: Change, make: Make, hold: Hold) -> None:
    expected, tensor = make(), make()
    change(expected)

    seen = check(changing(change, departs=False), (hold(tensor), torch.ones(3)))

    assert seen.verdict.outcome == "passed", seen.told
    left = tensor.grad, expected.grad
    assert left == (None, None) or torch.equal(*left)  # type: ignore[arg-type]
    told = check(changing(change, departs=True), (hold(make()), torch.ones(3)), locates=False).told
    assert ".grad" in told, told


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_a_gradient_is_compared(change: Change) -> None:
    compares(change, trained, HOLDERS[0])


@pytest.mark.parametrize("hold", HOLDERS)
@pytest.mark.parametrize("make", MAKERS)
def test_wherever_the_tensor_is_held(make: Make, hold: Hold) -> None:
    compares(gradient_helpers.drop, make, hold)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("read", READS)
def test_code_that_reads_a_gradient_passes(
    read: Callable[[torch.Tensor], torch.Tensor], make: Make
) -> None:
    @torch.compiler.disable  # type: ignore[untyped-decorator]  # Dynamo refuses some of them
    def reading(t: torch.Tensor) -> torch.Tensor:
        return read(t)

    def target(t: torch.Tensor, x: torch.Tensor) -> Any:
        return x / reading(t)

    seen = check(target, *[(make(), torch.ones(3))] * 2, backend="aot_eager")
    assert seen.verdict.outcome == "passed", seen.told


def test_a_gradient_that_only_stands_there_is_none_that_was_compared() -> None:
    def target(t: torch.Tensor) -> torch.Tensor:
        return t.detach() * 2

    seen = check(target, (trained(),))
    assert seen.verdict.outcome == "passed", seen.told
    parity = seen.verdict.observation.parity
    assert isinstance(parity, ParityObservation)
    assert parity.gradients_compared == 0


class Nets(nn.Module):
    """Changes gradients of its own parameters, by whatever name."""

    def __init__(self, change: Callable[[Any], object], *, departs: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.linear(torch.ones(3)).sum().backward()
        self.changes = changing(change, departs=departs)

    def forward(self, x: torch.Tensor) -> Any:
        return self.changes(self.linear.weight, x)


def by_a_constant_tuple(p: torch.Tensor) -> None:
    for name in ("grad", "grad"):
        getattr(p, name).mul_(2)


OF_PARAMETERS: tuple[Change, ...] = (
    *CHANGES,
    by_a_constant_tuple,
    lambda p: gradient_helpers.deeper((p * 2).sum()),
    lambda p: gradient_helpers.differentiate((p * 3).sum()),
)


@pytest.mark.parametrize("change", OF_PARAMETERS)
def test_so_is_what_changes_gradients_of_parameters(change: Change) -> None:
    net = Nets(change, departs=False)
    seen = check(net, (torch.ones(3),))
    assert seen.verdict.outcome == "passed", seen.told
    told = check(Nets(change, departs=True), (torch.ones(3),), locates=False).told
    assert "linear.weight.grad" in told, told


CIRCLE = {
    "__init__": "",
    "part": """
import circle

def drop(tensor):
    tensor.grad = None
""",
    "target": """
import circle.part
from torch.compiler import is_compiling

def drops(t, x):
    if not is_compiling():
        circle.part.drop(t)
    return x * 2
""",
}


def test_modules_may_import_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "circle").mkdir()
    for name, text in CIRCLE.items():
        (tmp_path / f"circle/{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    drops = importlib.import_module("circle.target").drops
    seen = check(drops, (trained(), torch.ones(3)), locates=False)
    assert "compiled differs from eager" in seen.told
