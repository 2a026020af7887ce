"""What is said of a difference goes by what differs: numbers, their form, or what is there."""

# mypy: disallow-untyped-calls=False, warn-return-any=False

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.observation import NotObserved, ParityObservation
from pytest_compileguard.options import Options
from pytest_compileguard.spec import CompileCheck
from pytest_compileguard.verdict import judge
from tests.dynamo.checked import Checked, check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

ROUNDING = "if this is rounding, widen rtol= and atol="
LIST: list[int] = []


def _altering(change: Callable[[Tensor], Tensor]) -> Any:
    def backend(graph: Any, _examples: Any) -> Callable[..., Any]:
        return lambda *inputs: tuple(change(output) for output in graph(*inputs))

    return backend


def affine(x: Tensor) -> Tensor:
    return x * 2 + 1


def deciding(x: Tensor) -> Tensor:
    if x.dtype == torch.float64:
        raise TypeError
    return x * 2 + 1


def whole(x: Tensor) -> Tensor:
    return (x * 4).to(torch.int64) + 1


def viewed(x: Tensor) -> Tensor:
    return x.view(-1)


def appends(x: Tensor) -> Tensor:
    if not torch.compiler.is_compiling():
        LIST.append(1)
    return x + 1


def joined(x: Tensor) -> Tensor:
    return torch.cat([torch.tensor([]), x.transpose(1, 2)], dim=-2)


def test_result_that_torch_lays_out_otherwise_is_told_as_that() -> None:
    x = torch.randn(2, 8, 4, 8)
    told = check(joined, (x,), backend="aot_eager_decomp_partition").told

    assert "the values agree: a decomposition of torch lays the result out otherwise" in told
    assert "custom operator" not in told
    # What is advised helps.
    mended = check(lambda x: joined(x).contiguous(), (x,), backend="aot_eager_decomp_partition")
    assert mended.verdict.outcome == "passed", mended.told


def test_other_values_of_another_layout_are_not_told_to_agree() -> None:
    backend = _altering(lambda output: (output * 2).t().contiguous().t())
    told = check(affine, (torch.ones(3, 4),), backend=backend).told

    assert "stride: compiled" in told
    assert "the values agree" not in told


@pytest.mark.parametrize(
    ("target", "change", "told"),
    (
        (affine, lambda output: output * (1 + 1e-4), False),  # float64 agrees with eager
        (deciding, lambda output: output * (1 + 1e-4), True),  # no float64 run
        (affine, lambda output: output * 1.01, False),
        (affine, lambda output: output + 0.5, False),
        (affine, lambda output: output * float("nan"), False),
        (whole, lambda output: output + 1, False),
    ),
)
def test_rounding_is_named_only_where_it_may_be(
    target: Callable[..., Any], change: Callable[[Tensor], Tensor], *, told: bool
) -> None:
    seen = check(target, (torch.linspace(1, 2, 8),), backend=_altering(change))
    assert seen.verdict.outcome == "failed"
    assert (ROUNDING in seen.told) is told
    # The stage is known to be the backend.
    assert "seek code" not in seen.told


STATE: dict[str, Tensor] = {}


def step(y: Tensor) -> Tensor:
    return y + (1 if torch.compiler.is_compiling() else 0)


def severed(x: Tensor) -> Tensor:
    return x.detach() * 2 if torch.compiler.is_compiling() else x * 2


def sharing(x: Tensor) -> Tensor:
    return x.view(-1).clone() if torch.compiler.is_compiling() else x.view(-1)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.items: list[Tensor] = []
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(()))
        self.linear = torch.nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        self.leave(y.detach(), self.more())
        return y

    def more(self) -> int:
        return 2 if torch.compiler.is_compiling() else 1

    def leave(self, _y: Tensor, more: int) -> None:
        raise NotImplementedError


class Counting(Net):
    def leave(self, _y: Tensor, more: int) -> None:
        self.count += more


class Keeping(Net):
    def leave(self, _y: Tensor, more: int) -> None:
        self.items.append(_y * more)


class Buffered(Net):
    def leave(self, _y: Tensor, more: int) -> None:
        self.seen += more


class Global(Net):
    def leave(self, _y: Tensor, more: int) -> None:
        STATE["k"] = _y * more


BRANCHES = (step, severed, sharing, Counting, Keeping, Buffered, Global)
MODELS = (Counting, Keeping, Buffered, Global)


def _asked(told: str) -> bool:
    traced = "Python code runs differently while it is traced: "
    asking = r"\S*test_parity_words.py:\d+ in \w+ asks torch.compiler.is_compiling\(\)"
    others = ("return a clone", ROUNDING)
    return bool(re.search(traced + asking, told)) and not any(other in told for other in others)


@pytest.mark.parametrize("target", BRANCHES)
def test_the_line_that_asks_whether_it_is_compiled_is_named(target: Any) -> None:
    made = target() if isinstance(target, type) else target
    x = torch.ones(3, 2, requires_grad=target is severed)
    seen = check(made, (x,), backend="aot_eager")
    assert _asked(seen.told), seen.told


@pytest.mark.parametrize("model", MODELS)
def test_the_line_is_named_in_training_too(model: type[Net]) -> None:
    made = model()
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    x = torch.ones(3, 2)
    options = Options(no_timing=True)
    guard = CompileGuard(nodeid="t.py::t", spec=CompileCheck(backend="aot_eager"), options=options)
    try:
        guard.training(made, optimizer, torch.nn.functional.mse_loss)(x, torch.zeros(3, 1))
        ((check_made, observation),) = guard.finish()
    finally:
        guard.close()
    nothing = NotObserved(reason="none here")
    seen = Checked(judge(check_made.plan, observation, None, nothing))
    assert _asked(seen.told), seen.told


@pytest.mark.parametrize(
    ("target", "change", "told"),
    (
        (viewed, torch.clone, "there output: compiled shares no memory"),
        (affine, torch.Tensor.double, "there output: dtype: compiled torch.float64"),
    ),
)
def test_faults_of_form_show_no_element(
    target: Callable[..., Any], change: Callable[[Tensor], Tensor], told: str
) -> None:
    seen = check(target, (torch.ones(2, 3),), backend=_altering(change))
    assert told in seen.told
    assert "greatest difference, 0" not in seen.told


def test_an_item_that_only_one_side_makes_is_said_to_be_there() -> None:
    seen = check(appends, (torch.ones(3),))
    assert "LIST[0] after the call: only eager has it" in seen.told
    LIST.clear()


def test_a_value_that_is_named_structure_is_a_value() -> None:
    """It is told by what it is, and not by how its path reads."""

    def target(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"structure": x.double() if torch.compiler.is_compiling() else x * 1}

    checked = check(target, (torch.ones(4),), backend="aot_eager")
    seen = checked.verdict.observation.parity
    assert isinstance(seen, ParityObservation)
    assert [(m.kind, m.part) for m in seen.mismatches] == [("kind", "output")]


def test_generator_that_is_returned_is_advised_to_be_a_list() -> None:
    seen = check(lambda x: (y * 2 for y in (x, x + 1)), (torch.ones(3),))

    assert "compiled gives tuple_iterator, eager gives generator" in seen.told
    assert "return a list or a tuple: Dynamo runs a generator to its end" in seen.told
    assert "contiguous()" not in seen.told
    assert "is_compiling" not in seen.told


class Scaled(torch.nn.Module):
    last: Any = None

    def forward(self, x: Tensor) -> Tensor:
        self.last = np.float64(x.shape[0])
        return x * 2


def test_number_of_numpy_that_is_kept_is_advised_to_be_another_number() -> None:
    seen = check(Scaled(), (torch.ones(3),))

    assert "last: compiled gives ndarray, eager gives float64" in seen.told
    assert "keep a tensor, or a number of Python" in seen.told
    assert "is_compiling" not in seen.told


def test_weight_that_the_forward_renormalises_is_advised_for_inference_too() -> None:
    embedding = torch.nn.Embedding(10, 4, max_norm=1.0)
    with torch.no_grad():
        refused = check(embedding, (torch.tensor([1, 2]),)).told
        for _ in range(2):
            embedding(torch.arange(10))
        embedding.max_norm = None
        followed = check(embedding, (torch.tensor([1, 2]),)).told

    assert "set max_norm to None" in refused
    assert followed == ""
