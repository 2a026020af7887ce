"""Gradients are compared wherever they can be: of what is kept, of nested tensors, in any mode."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd

from tests.dynamo.checked import Checked, check
from tests.dynamo.torch_versions import JAGGED_IS_COPIED

pytestmark = pytest.mark.usefixtures("compiler_loaded")

KEPT: dict[str, torch.Tensor] = {}
LIST: list[torch.Tensor] = []


def sevenfold(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
    def scaled(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value * 7 if floating else value

    return lambda *args: [scaled(value) for value in graph(*args)]


wrong_gradients = aot_autograd(fw_compiler=lambda graph, _: graph, bw_compiler=sevenfold)
STORE = types.SimpleNamespace()


class Auxiliary(nn.Module):
    """Leaves a second loss somewhere."""

    last: Any = None

    def __init__(self, place: str, *, twice: bool = False) -> None:
        super().__init__()
        self.gate, self.place, self.twice = nn.Linear(4, 2), place, twice
        self.losses: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> Any:
        loss = self.gate(x).square().mean()
        match self.place:
            case "attribute":
                self.loss = loss
            case "container":
                self.losses["gate"] = loss
            case "class":
                type(self).last = loss
            case "global":
                KEPT["loss"] = loss
            case "list":
                LIST.append(loss)
        return (x * 2, loss) if self.twice else x * 2


PLACES = ("attribute", "container", "class", "global", "list")


def x(*, grad: bool = False) -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4).requires_grad_(grad)


@pytest.fixture(autouse=True)
def _as_new() -> Any:
    yield
    KEPT.clear()
    LIST.clear()
    Auxiliary.last = None


@pytest.mark.parametrize("place", PLACES)
def test_a_loss_that_is_left_somewhere_is_differentiated(place: str) -> None:
    seen = check(Auxiliary(place), (x(),), backend=wrong_gradients, locates=False)
    assert "gradient of gate.weight" in seen.told


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("twice", (True, False))
def test_sound_code_passes_and_the_test_keeps_its_graph(place: str, twice: bool) -> None:  # noqa: FBT001
    module: Any = Auxiliary(place, twice=twice)
    seen = check(module, (x(),), (x(),), (x(),), backend="aot_eager")
    assert seen.verdict.outcome == "passed", seen.told
    places: dict[str, Callable[[], Any]] = {
        "attribute": lambda: [module.loss],
        "container": lambda: [module.losses["gate"]],
        "class": lambda: [module.last],
        "global": lambda: [KEPT["loss"]],
        "list": lambda: LIST,
    }
    kept = places[place]()
    assert len(kept) == (3 if place == "list" else 1)
    loss: Any
    for loss in kept:
        loss.backward()
    assert module.gate.weight.grad is not None


class Differentiating(Auxiliary):
    """Differentiates what it keeps, and not what it returns."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.loss = self.gate(x).square().mean()
        self.loss.backward()
        return x.sin()


def test_a_graph_that_the_call_used_hides_no_other_gradient() -> None:
    seen = check(
        Differentiating("attribute"), (x(grad=True),), backend=wrong_gradients, locates=False
    )
    assert "gradient of x" in seen.told
    sound = check(Differentiating("attribute"), (x(grad=True),), backend="aot_eager")
    assert sound.verdict.outcome == "passed", sound.told


def nested(layout: torch.layout) -> torch.Tensor:
    torch.manual_seed(0)
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    return torch.nested.nested_tensor(parts, layout=layout, requires_grad=True)


def waves(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def of_nested(backend: Any) -> Checked:
    return check(
        waves, (nested(torch.jagged),), (nested(torch.jagged),), backend=backend, locates=False
    )


@pytest.mark.skipif(not JAGGED_IS_COPIED, reason="this torch can't copy jagged tensors")
def test_gradients_of_nested_tensors_are_compared() -> None:
    assert "gradient of x" in of_nested(wrong_gradients).told
    sound = of_nested("aot_eager").verdict
    assert sound.outcome == "passed"
    assert not any("differentiated" in finding.message for finding in sound.findings)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_that_torch_does_not_compile_is_said_to_be_one() -> None:
    told = check(waves, (nested(torch.strided),), backend="aot_eager").told
    assert "torch.compile does not support strided Nested" in told


def overwrites(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    y.add_(1)  # what its backward needs
    return y


def test_it_is_told_that_eager_cannot_be_differentiated() -> None:
    found = check(overwrites, (x(grad=True),), backend="eager").verdict.findings
    told = {finding.metric: finding for finding in found}
    assert told["parity"].message == "1 of 1 call, without gradients"
    assert told["isolation"].status == "not_checked"
    assert "eager can't be differentiated (RuntimeError)" in told["isolation"].message


@torch.enable_grad()
def cubed(x: torch.Tensor) -> torch.Tensor:
    return (x**3).sum()


def test_a_target_that_records_gradients_by_itself_is_differentiated() -> None:
    def without(_call: int) -> Any:
        return torch.no_grad()

    wrong = check(cubed, (x(grad=True),), around=without, backend=wrong_gradients, locates=False)
    assert "gradient of x" in wrong.told
    sound = check(cubed, (x(grad=True),), around=without, backend="aot_eager")
    assert sound.verdict.outcome == "passed", sound.told
