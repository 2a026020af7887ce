"""Gradients of parameters that code changes by helpers, wherever it takes these from."""

# ruff: noqa: PLW0108  # what a lambda only hands on is taken out of the module by its code

from __future__ import annotations

import functools
import importlib
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pytest_compileguard.shadow.gradient_names import names_gradients
from tests.dynamo import gradient_helpers as helpers
from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Change = Callable[[torch.Tensor], object]
NAME = "hal" + "ve"


def by_import(p: torch.Tensor) -> None:
    from tests.dynamo.gradient_helpers import halve as helper  # noqa: PLC0415  # under test

    helper(p)


def by_module_import(p: torch.Tensor) -> None:
    import tests.dynamo.gradient_helpers as module  # noqa: PLC0415  # under test

    module.calling(p)


BEHIND: dict[str, Change] = {
    "function": lambda p: helpers.halve(p),
    "partial": lambda p: helpers.partial(p),
    "partial of a partial": lambda p: helpers.nested(p),
    "partial itself": helpers.partial,
    "bound method": lambda p: helpers.of_method(p),
    "callable object": lambda p: helpers.calling(p),
    "callable object itself": helpers.calling,
    "method of an object": lambda p: helpers.calling.by_method(p),
    "property of an object": lambda p: helpers.calling.given(p),
    "static method": lambda p: helpers.Halving.by_static(p),
    "class method": lambda p: helpers.Halving.by_class(p),
    "inherited method": lambda p: helpers.inheriting.by_method(p),
    "table of a class": lambda p: helpers.Halving.table[0](p),
    "slot": lambda p: helpers.slotted.halves(p),
    "dictionary": lambda p: helpers.table["halve"](p),
    "lists in lists": lambda p: helpers.pairs[0][1][0](p),
    "namespace": lambda p: helpers.space.halve(p),
    "decorated": lambda p: helpers.wrapped(p),
    "default": lambda p: helpers.by_default(p),
    "keyword default": lambda p: helpers.by_keyword(p),
    "attribute of a function": lambda p: helpers.by_attribute(p),
    "cached": lambda p: helpers.cached(1)[0](p),
    "attrgetter": lambda p: helpers.gradient_of(p).mul_(0.5),
    "methodcaller": lambda p: helpers.differentiated((p * 2).sum()),
    "getattr": lambda p: getattr(helpers, "halve")(p),  # noqa: B009  # under test
    "getattr of a computed name": lambda p: getattr(helpers, NAME)(p),
    "globals": lambda p: helpers.named("halve", p),
    "vars": lambda p: vars(helpers)[NAME](p),
    "eval": lambda p: eval("hel" + "pers." + NAME)(p),  # noqa: S307
    "import": by_import,
    "import of the module": by_module_import,
    "import by a name": lambda p: importlib.import_module("tests.dynamo." + HELPERS).halve(p),
}
HELPERS = "gradient_helpers"


class Net(nn.Module):
    def __init__(self, change: Change) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.change = change

    def forward(self, x: torch.Tensor) -> Any:
        apart(self, x)
        return self.linear(x)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # Dynamo refuses some of them
def apart(net: Net, x: torch.Tensor) -> None:
    assert x is not None
    net.change(net.linear.weight)


def trained(change: Change) -> Net:
    """Not in the class, whose methods would name gradients themselves."""
    net = Net(change)
    net.linear.weight.grad = torch.full((3, 3), 4.0)
    return net


@pytest.mark.parametrize("change", BEHIND.values(), ids=BEHIND)
def test_gradients_are_copied_for_what_changes_them(change: Change) -> None:
    expected, net = trained(change), trained(change)
    change(expected.linear.weight)
    seen = check(net, (torch.ones(3),), locates=False)
    assert seen.verdict.outcome == "passed", seen.told
    left, right = net.linear.weight.grad, expected.linear.weight.grad
    assert left is not None
    assert right is not None
    assert torch.equal(left, right)


@pytest.mark.parametrize("change", BEHIND.values(), ids=BEHIND)
def test_from_wherever_code_takes_it(change: Change) -> None:
    def by_closure(p: torch.Tensor) -> None:
        change(p)

    class Holding:
        kept = (functools.partial(by_closure),)

    held: list[Any] = [{"a": Holding()}]

    def target(p: torch.Tensor) -> torch.Tensor:
        held[0]["a"].kept[0](p)
        return p * 2

    assert names_gradients(target)


class Config:
    def __init__(self) -> None:
        self.sizes = {str(n): n for n in range(200_000)}
        self.again = self

    def size(self) -> int:
        return len(self.sizes)


CONFIG, LOG = Config(), logging.getLogger(__name__)


def plain(x: torch.Tensor) -> torch.Tensor:
    LOG.debug("called")
    return nn.functional.relu(x) * CONFIG.size()


@pytest.mark.parametrize(
    "target",
    (
        plain,
        nn.Linear(3, 3).eval(),
        nn.Transformer(8, 2, 1, 1, batch_first=True),
        functools.partial(plain),
    ),
    ids=("function", "linear", "transformer", "partial"),
)
def test_those_of_other_code_stay_shared(target: Any) -> None:
    assert not names_gradients(target)


def test_what_is_too_large_to_be_looked_through_may_change_them() -> None:
    many = [[n] for n in range(200_000)]

    def target(x: torch.Tensor) -> torch.Tensor:
        return x * len(many)

    began = time.perf_counter()
    assert names_gradients(target)
    assert time.perf_counter() - began < 5
