"""What can't be differentiated hides no gradient of what can.

By a backend that only runs the graph: AOTAutograd differentiates all outputs of a graph as it
traces it, and raises for one that eager can't differentiate. With it, this is met where that one
is in another graph, or in none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd

from tests.dynamo.checked import Checked, check
from tests.dynamo.mutators import backend
from tests.dynamo.test_gradients import wrong_gradients

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Result = dict[str, Any]


class Refusing(torch.autograd.Function):
    """Identity that has no backward pass."""

    @staticmethod
    def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, *_gradients: Any) -> Any:
        raise NotImplementedError("no backward pass")


def written_first(x: torch.Tensor) -> Result:
    y, good = x.exp(), x.sin().sum(0)
    y.add_(1)  # what its backward needs
    return {"bad": y, "good": good}


def written_last(x: torch.Tensor) -> Result:
    good, y = x.sin().sum(0), x.exp()
    y.add_(1)
    return {"bad": y, "good": good}


@torch.compiler.disable  # type: ignore[untyped-decorator]
def refusing(x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = Refusing.apply(x * 2)  # type: ignore[no-untyped-call]
    return found


def in_another_graph(x: torch.Tensor) -> Result:
    return {"bad": refusing(x), "good": x.sin()}


def argument_too(x: torch.Tensor, y: torch.Tensor) -> Result:
    y.exp_()
    z = y.sin()
    y.add_(1)
    return {"good": x.cos(), "bad": z, "last": x * y.detach()}


def used(x: torch.Tensor) -> Result:
    loss = (x * x).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    return {"bad": loss, "good": x.sin()}


def used_in_the_same_graph(x: torch.Tensor) -> Result:
    loss = (x * x).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    return {"bad": loss * 2, "good": x.sin()}


def refused_in_the_same_graph(x: torch.Tensor) -> Result:
    return {"bad": refusing(x) * 2, "good": x.sin()}


class Keeping(nn.Module):
    """Keeps what can be differentiated beside a result that can't be."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = x.sin().sum(0)
        y = x.exp()
        y.add_(1)
        return y


def x() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4).div(7).requires_grad_()


def written() -> torch.Tensor:
    return x() * 1


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "written first": (written_first, lambda: (x(),)),
    "written last": (written_last, lambda: (x(),)),
    "in another graph": (in_another_graph, lambda: (x(),)),
    "an argument is written to": (argument_too, lambda: (x(), written())),
    "beside what the module keeps": (Keeping(), lambda: (x(),)),
}


def told_not_checked(checked: Checked) -> str:
    found = [f for f in checked.verdict.findings if f.status == "not_checked"]
    return "\n".join(finding.message for finding in found)


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_gradient_beside_it_is_found(name: str) -> None:
    target, arguments = CASES[name]
    seen = check(target, arguments(), arguments(), backend=backend("gradient scaled"))
    assert "gradient of x" in seen.told


@pytest.mark.parametrize("name", CASES)
def test_sound_code_passes_and_what_is_left_out_is_told(name: str) -> None:
    target, arguments = CASES[name]
    seen = check(target, arguments(), backend="eager")
    assert seen.verdict.outcome == "passed", seen.told
    told = told_not_checked(seen)
    assert "eager can't be differentiated" in told
    assert "output['good']" not in told
    assert ("output" if name == "beside what the module keeps" else "output['bad']") in told


def test_compiled_by_aot_autograd_it_is_found_too() -> None:
    seen = check(in_another_graph, (x(),), backend=wrong_gradients)
    assert "gradient of x" in seen.told
    assert check(in_another_graph, (x(),), backend="aot_eager").verdict.outcome == "passed"


def test_a_backward_pass_of_the_call_hides_no_other_gradient() -> None:
    wrong = check(used, (x(),), backend=wrong_gradients, locates=False)
    assert "gradient of x" in wrong.told
    sound = check(used, (x(),), backend="aot_eager")
    assert sound.verdict.outcome == "passed", sound.told
    assert "differentiated" not in told_not_checked(sound)


@pytest.mark.parametrize("target", (used_in_the_same_graph, refused_in_the_same_graph))
def test_a_backward_pass_through_all_outputs_of_a_graph_is_not_refused(target: Any) -> None:
    seen = check(target, (x(),), backend="aot_eager")
    assert seen.verdict.outcome == "passed", seen.told
    assert "gradients of what compiled code computes with it" in told_not_checked(seen)


def test_another_error_in_the_backward_pass_fails() -> None:
    def raising(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        def run(*_args: Any) -> Any:
            raise ValueError(graph)

        return run

    wrong = aot_autograd(fw_compiler=lambda graph, _: graph, bw_compiler=raising)
    for target in (used, refused_in_the_same_graph):
        assert "ValueError" in check(target, (x(),), backend=wrong).told


def test_several_are_told_in_one_line() -> None:
    def many(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.sin(), *(refusing(x) for _ in range(9))]

    told = told_not_checked(check(many, (x(),), backend="aot_eager"))
    assert "output[1], output[2], output[3] and 6 more" in told
