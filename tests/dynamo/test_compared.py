"""What is compared: for each kind of result one that is right, and one that is wrong."""

from __future__ import annotations

import collections
import dataclasses
import enum
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.dynamo.checked import Checked, check

pytestmark = [
    pytest.mark.usefixtures("compiler_loaded"),
    # What torch says of its own sparse and quantised tensors.
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@dataclasses.dataclass
class Record:
    value: torch.Tensor
    note: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: torch.Tensor


class Named(NamedTuple):
    first: Any
    second: Any


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class ModelOutput(collections.OrderedDict[str, Any]):
    """As libraries of models make theirs: a dictionary with attributes."""

    def __init__(self, **values: Any) -> None:
        super().__init__(values)
        for name, value in values.items():
            object.__setattr__(self, name, value)


class Tree:
    """A container that its author registered with pytree."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


pytree.register_pytree_node(
    Tree,
    lambda tree: (list(tree.parts), None),
    lambda parts, _: Tree(*parts),
    serialized_type_name="compileguard_tests.Tree",
)


def nested(t: torch.Tensor) -> torch.Tensor:
    return torch.nested.nested_tensor([t, t[:1]], layout=torch.jagged)


def quantised(t: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(t, 0.1, 0, torch.quint8)


class Case(NamedTuple):
    """A result, made of one tensor, and the same done wrongly."""

    right: Callable[[torch.Tensor], Any]
    wrong: Callable[[torch.Tensor], Any]
    where: str = "output"
    """What the message must name."""


NAN, INFINITY = float("nan"), float("inf")
CASES = {
    "number": Case(lambda _: 1.5, lambda _: 1.6),
    "whole number": Case(lambda _: 3, lambda _: 4),
    "number that is a truth value": Case(lambda _: 1, lambda _: True, "bool"),
    "string": Case(lambda _: "a", lambda _: "b"),
    "None": Case(lambda _: None, lambda _: 0),
    "enumeration": Case(lambda _: Colour.RED, lambda _: Colour.BLUE),
    "dtype": Case(lambda t: t.dtype, lambda _: torch.float64),
    "shape": Case(lambda t: t.shape, lambda t: t.shape[1:]),
    "tuple": Case(lambda t: (t, (t, 1)), lambda t: (t, (t + 1, 1)), "output[1][0]"),
    "tuple for list": Case(lambda t: [t, t], lambda t: (t, t)),
    "length": Case(lambda t: [t, t], lambda t: [t]),
    "dictionary": Case(lambda t: {"a": {"b": t}}, lambda t: {"a": {"b": -t}}, "output['a']['b']"),
    "key": Case(lambda t: {"a": t}, lambda t: {"b": t}),
    "order of keys": Case(lambda t: {"a": t, "b": t * 2}, lambda t: {"b": t, "a": t * 2}),
    "dataclass": Case(lambda t: Record(t), lambda t: Record(t + 1), "output.value"),  # noqa: PLW0108
    "field": Case(lambda t: Record(t, "x"), lambda t: Record(t, "y"), "output.note"),
    "frozen dataclass": Case(lambda t: Frozen(t), lambda t: Frozen(t + 1), "output.value"),  # noqa: PLW0108
    "class": Case(lambda t: Frozen(t), lambda t: Record(t)),  # noqa: PLW0108
    "named tuple": Case(lambda t: Named(t, 1), lambda t: Named(t + 1, 1), "output.first"),
    "named tuple's type": Case(lambda t: Named(t, 1), lambda t: (t, 1)),
    "registered pytree": Case(lambda t: Tree(t, t), lambda t: Tree(t, t + 1)),
    "model output": Case(
        lambda t: ModelOutput(loss=t), lambda t: ModelOutput(loss=t * 2), "['loss']"
    ),
    "array": Case(lambda t: t.detach().numpy() * 1, lambda t: t.detach().numpy() * 2),
    "value": Case(lambda t: t * 2, lambda t: t * 2.001),
    "float dtype": Case(lambda t: t * 2, lambda t: t.double() * 2, "dtype"),
    "tensor's shape": Case(lambda t: t * 2, lambda t: t[:1] * 2, "shape"),
    "device": Case(lambda t: t * 2, lambda t: (t * 2).to("meta"), "device"),
    "strides": Case(lambda t: t * 2, lambda t: (t * 2).t().contiguous().t(), "stride"),
    "requires_grad": Case(lambda t: t * 2, lambda t: t.detach() * 2, "requires_grad"),
    "complex": Case(lambda t: torch.complex(t, t), lambda t: torch.complex(t, -t)),
    "truth": Case(lambda t: t > 0, lambda t: t < 0),
    "index": Case(lambda t: t.argmax(-1), lambda t: t.argmin(-1)),
    "empty": Case(lambda t: t[:0], lambda t: t[:0, :1], "shape"),
    "dtype of an empty one": Case(lambda t: t[:0], lambda t: t[:0].double(), "dtype"),
    "NaN": Case(lambda t: t * NAN, lambda t: torch.where(t > 0.8, t * 1, NAN)),
    "NaN for a number": Case(lambda t: t * 1, lambda t: torch.where(t > 0.8, t, NAN)),
    "infinity": Case(lambda t: t.exp() * INFINITY, lambda t: -t.exp() * INFINITY),
    "infinity for the greatest number": Case(
        lambda t: t.exp() * INFINITY, lambda t: torch.full_like(t, 3.4e38) + t * 0
    ),
    # Equal by IEEE 754 and by torch.testing; what depends on the sign shows it.
    "what the sign of zero decides": Case(
        lambda t: 1 / (t * 0).abs(), lambda t: 1 / -(t * 0).abs()
    ),
    "sparse": Case(lambda t: t.detach().to_sparse(), lambda t: (t.detach() * 2).to_sparse()),
    "layout": Case(lambda t: t.detach().to_sparse(), lambda t: t.detach() * 1, "layout"),
    "compressed sparse": Case(
        lambda t: t.detach().to_sparse_csr(), lambda t: (t.detach() * 2).to_sparse_csr()
    ),
    "quantised": Case(lambda t: quantised(t.detach()), lambda t: quantised(t.detach() + 1)),
    "scale of a quantised one": Case(
        lambda t: quantised(t.detach()),
        lambda t: torch.quantize_per_tensor(t.detach(), 0.2, 0, torch.quint8),
    ),
    "nested": Case(lambda t: nested(t.detach()), lambda t: nested(t.detach() + 1)),
    "lengths of a nested one": Case(
        lambda t: nested(t.detach()),
        lambda t: torch.nested.nested_tensor([t.detach()[:1], t.detach()], layout=torch.jagged),
    ),
    "parameter": Case(lambda t: nn.Parameter(t.detach()), lambda t: t.detach().requires_grad_()),
}


def result_of(make: Callable[[torch.Tensor], Any], planted: Callable[[torch.Tensor], Any]) -> Any:
    """A target that computes a graph and then makes its result, another one where compiled."""

    # What the tracer does not know is made as it would be made eagerly.
    def finish(t: torch.Tensor, compiled: bool) -> Any:  # noqa: FBT001
        return planted(t) if compiled else make(t)

    finish_eagerly = torch.compiler.disable(finish)  # type: ignore[no-untyped-call]

    def target(t: torch.Tensor) -> Any:
        return finish_eagerly(t.sin().cos(), torch.compiler.is_compiling())

    return target


def told(name: str, *, planted: bool) -> Checked:
    case = CASES[name]
    target = result_of(case.right, case.wrong if planted else case.right)
    return check(target, (torch.arange(6.0).reshape(2, 3).requires_grad_(),))


def unchecked(seen: Checked) -> list[str]:
    return [f.message for f in seen.verdict.findings if f.metric == "isolation"]


@pytest.mark.parametrize("name", CASES)
def test_a_right_result_passes_and_was_compared(name: str) -> None:
    seen = told(name, planted=False)
    assert seen.verdict.outcome == "passed", seen.told
    without_numbers = name in ("empty", "dtype of an empty one", "None")
    only_nan = name in ("NaN", "what the sign of zero decides")  # of the latter, its gradient
    assert bool(unchecked(seen)) == (without_numbers or only_nan)


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_result_is_told_by_its_path(name: str) -> None:
    seen = told(name, planted=True)
    assert seen.verdict.outcome == "failed", seen.verdict
    assert "compiled differs from eager" in seen.told
    assert CASES[name].where in seen.told


@pytest.mark.parametrize(
    "make",
    (
        lambda t: t[:, :1] * 1,
        lambda t: t[:0].t(),
        lambda t: t.sum(),
    ),
)
def test_strides_that_nobody_sees_are_not_compared(make: Callable[[torch.Tensor], Any]) -> None:
    def other(t: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = make(t)
        if made.dim() < 2:
            return made
        return made.as_strided(made.size(), (7, 5) if made.numel() == 0 else (1, 9))

    seen = check(result_of(make, other), (torch.arange(6.0).reshape(2, 3),))
    assert seen.verdict.outcome == "passed", seen.told


def test_zeros_of_either_sign_are_equal() -> None:
    target = result_of(lambda t: (t * 0).abs(), lambda t: -(t * 0).abs())
    assert check(target, (torch.ones(2, 3),)).verdict.outcome == "passed"


def test_what_has_no_equality_is_said_to_be_unchecked() -> None:
    class Opaque:
        __slots__ = ()

    seen = check(result_of(lambda t: (t, Opaque()), lambda t: (t, Opaque())), (torch.ones(2, 3),))
    assert any("Opaque can't be compared" in message for message in unchecked(seen))


def test_arrays_of_kinds_that_torch_lacks_are_compared_or_said() -> None:
    seen = check(
        result_of(lambda _: np.array(["a"]), lambda _: np.array(["b"])), (torch.ones(2, 3),)
    )
    assert seen.verdict.outcome == "failed" or unchecked(seen)


def test_a_call_whose_result_can_t_be_compared_is_not_counted_as_compared() -> None:
    def makes_function(x: torch.Tensor) -> Callable[[], torch.Tensor]:
        y = x.sin()
        return lambda: y

    seen = check(makes_function, (torch.ones(3),))
    (parity,) = [f for f in seen.verdict.findings if f.metric == "parity"]
    assert parity.status == "failed"
    assert "nothing was compared: output: values of type function" in parity.message


@pytest.mark.parametrize(
    ("make", "said"),
    (
        (lambda: torch.ones(0, 3), True),
        (lambda: torch.ones(3, device="meta"), True),
        (lambda: torch.ones(3), False),
    ),
)
def test_a_result_without_numbers_is_said_to_be_unchecked(
    make: Callable[[], torch.Tensor],
    said: bool,  # noqa: FBT001
) -> None:
    def target(x: torch.Tensor) -> list[torch.Tensor]:
        return [x * 2]

    seen = check(target, (make(),))
    assert seen.verdict.outcome == "passed", seen.told
    assert any("no number" in message for message in unchecked(seen)) == said


def test_a_result_of_which_a_part_has_numbers_was_compared() -> None:
    seen = check(lambda x: (x * 2, x[:0] * 2), (torch.ones(3),))
    assert seen.verdict.outcome == "passed", seen.told
    assert unchecked(seen) == []


class Seen:
    total = torch.zeros(3)


class Meter:
    def __init__(self) -> None:
        self.total = torch.zeros(3)

    def shows(self, x: torch.Tensor) -> None:
        sys.stdout.write(f"{x.sin()}\n")

    def keeps(self, x: torch.Tensor) -> None:
        self.total = self.total + x


def shows_and_lists(x: torch.Tensor) -> list[None]:
    sys.stdout.write(f"{x.sin()}\n")
    return [None, None]


def writes(x: torch.Tensor) -> None:
    x.add_(1)


def doubles(x: torch.Tensor, out: torch.Tensor) -> None:
    torch.mul(x, 2, out=out)


def fills(x: torch.Tensor, found: dict[str, Any]) -> None:
    found["sin"] = x.sin()


def draws(x: torch.Tensor) -> None:
    torch.rand(2) * x


def marks(x: torch.Tensor) -> None:
    Seen.total = Seen.total + x


def differentiates(x: torch.Tensor) -> None:
    x.sin().sum().backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("target", (Meter().shows, shows_and_lists))
def test_a_call_that_leaves_nothing_is_said_to_be_unchecked(target: Callable[..., Any]) -> None:
    seen = check(target, (torch.ones(3),))
    assert seen.verdict.outcome == "passed", seen.told
    assert any("code that does nothing would pass" in message for message in unchecked(seen))


@pytest.mark.parametrize(
    ("target", "arguments"),
    (
        (Meter().keeps, (torch.ones(3),)),
        (writes, (torch.ones(3),)),
        (fills, (torch.ones(3), {})),
        (draws, (torch.ones(2),)),
        (marks, (torch.ones(3),)),
        (differentiates, (torch.ones(3, requires_grad=True),)),
    ),
)
def test_a_call_that_returns_nothing_but_leaves_something_was_compared(
    target: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    seen = check(target, arguments)
    assert seen.verdict.outcome == "passed", seen.told
    assert unchecked(seen) == []


def test_a_call_that_writes_once_more_what_it_wrote_before_was_compared() -> None:
    seen = check(doubles, *[(torch.ones(3), torch.empty(3))] * 2)
    assert seen.verdict.outcome == "passed", seen.told
    assert unchecked(seen) == []
