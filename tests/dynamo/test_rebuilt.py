"""What compiled code rebuilds in another form is compared all the same, wherever it is kept."""

from __future__ import annotations

import collections
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.compiler import is_compiling

from tests.dynamo.checked import check
from tests.dynamo.torch_versions import KEEPS_ITERATORS

pytestmark = pytest.mark.usefixtures("compiler_loaded")

X = torch.ones(3)


@pytest.fixture(autouse=True)
def _grad_mode_is_left() -> Iterator[None]:
    """Undo what the calls do: to make a ``set_grad_enabled`` is to set it."""
    with torch.enable_grad():
        yield


def more() -> int:
    """Return 1; 2 where the fault is planted."""
    return 2 if is_compiling() else 1


class Keeps(nn.Module):
    """Keeps what is under test, and what it may be made of."""

    def __init__(self, keep: Callable[[Any], object]) -> None:
        super().__init__()
        self.keep = keep
        self.kept: Any = None
        self.one, self.other = [1], [1]
        self.cast = torch.autocast("cpu", enabled=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.keep(self)
        return x * 2


def keeps(value: Callable[[Any], object]) -> Callable[[Any], None]:
    def keep(module: Any) -> None:
        module.kept = value(module)

    return keep


def advanced(steps: int) -> Iterator[int]:
    found = iter([1, 2, 3])
    for _ in range(steps):
        next(found)
    return found


def in_eager_alone(module: Any) -> None:
    if not is_compiling():
        module.kept = operator.itemgetter(0)


def changes_cast(module: Any) -> None:
    module.cast.fast_dtype = torch.float16 if is_compiling() else torch.bfloat16


PLANTED: dict[str, Callable[[Any], object]] = {
    "a getter that compiled code drops": in_eager_alone,
    "an item": keeps(lambda _: operator.itemgetter(more())),
    "an attribute": keeps(lambda _: operator.attrgetter("a" if is_compiling() else "b")),
    "a keyword": keeps(lambda _: [operator.methodcaller("sum", dim=more())]),
    "another getter": keeps(
        lambda _: operator.attrgetter("a") if is_compiling() else operator.itemgetter("a")
    ),
    "no mode": keeps(lambda _: "junk" if is_compiling() else torch.no_grad()),
    "a longer range": keeps(lambda _: iter(range(200 if is_compiling() else 300))),
    "a list for an iterator": keeps(lambda _: [1, 2] if is_compiling() else iter((1, 2))),
    "another object in an iterator": keeps(
        lambda module: iter([module.other if is_compiling() else module.one])
    ),
    "a copy in an iterator": keeps(lambda module: iter([[1] if is_compiling() else module.one])),
    "a tensor in an iterator": keeps(lambda _: iter([X * more()])),
    "items of a deque": keeps(lambda _: iter(collections.deque([1, more()]))),
    "a step of an iterator": keeps(lambda _: advanced(more())),
    "another mode": keeps(lambda _: (torch.enable_grad() if is_compiling() else torch.no_grad(),)),
    "an attribute of an autocast": changes_cast,
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_compiled_code_keeps_wrongly_is_found(name: str) -> None:
    told = check(Keeps(PLANTED[name]), (X,), locates=False).told

    assert "compiled differs from eager" in told


def everything(module: Any) -> None:
    """Keep all of it at once, so that none hides behind another check."""
    module.getters = [operator.itemgetter(0), operator.itemgetter(0, 2)]
    module.attributes = {"a": operator.attrgetter("b"), "b": operator.attrgetter("b.c", "d")}
    module.caller = operator.methodcaller("sum", 1, dim=2)
    module.contexts = (torch.no_grad(), torch.enable_grad(), torch.set_grad_enabled(False))
    with torch.no_grad():
        module.within = torch.set_grad_enabled(True)
    module.iterators = KEEPS_ITERATORS and [
        *(iter([module.one]), iter((1, 2)), iter("ab"), iter(b"ab"), iter(range(20_000))),
        *(reversed([1, 2]), iter(collections.deque([1, 2], maxlen=2)), map(str, [1])),
        *(zip(itertools.count(), [1], strict=False), itertools.product([1], module.one)),
        *(itertools.repeat(1, 3), itertools.repeat(1)),
        *(itertools.filterfalse(bool, [1]), itertools.filterfalse(None, [1]), advanced(1)),
    ]
    module.words = iter("ab")
    with module.cast:
        module.entered = True


def test_what_is_rebuilt_alike_is_no_difference() -> None:
    seen = check(Keeps(everything), *[(X,)] * 2)

    assert seen.verdict.outcome == "passed", seen.told
    assert [f.message for f in seen.verdict.findings if f.metric == "isolation"] == []
