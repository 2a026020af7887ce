"""What a name is bound to after a call is compared, of whatever kind it is."""

from __future__ import annotations

import array
import collections
import datetime as dt
import decimal
import functools
import itertools
import logging
import pathlib
import random
import re
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.dynamo.checked import Checked, check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

CURRENT: Any = None
ONE, OTHER = [0], [0]
CURRENT_LIST = ONE


class Scaled:
    """A callable object of the user's."""

    def __init__(self, scale: int) -> None:
        self.scale = scale

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale

    def more(self) -> int:
        return self.scale + 1


class Base(nn.Module):
    """A module that keeps state of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(2, 2), nn.Linear(2, 2)
        self.register_buffer("table", torch.zeros(2))
        self.register_buffer("second", torch.zeros(2))
        self.first, self.last = Scaled(1), Scaled(1)
        self.list_one: list[int] = [1]
        self.list_other: list[int] = [1]
        self.generator = torch.Generator().manual_seed(0)
        self.python_generator = random.Random(0)  # noqa: S311
        self.numpy_generator = np.random.default_rng(0)
        self.letters = iter("abc")
        self.numbers = itertools.count()
        self.items = array.array("d", [0.0, 0.0])
        self.ordered = collections.OrderedDict(a=1, b=2)
        self.current = self.one
        self.holder = types.SimpleNamespace(kept=None)


class Model(Base):
    """Runs what is under test on itself, with 1 where a fault is planted, else 0."""

    def __init__(self, run: Callable[[Any, torch.Tensor, int], object], *, planted: bool) -> None:
        super().__init__()
        self.run = run
        self.planted = planted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.run(self, x, int(self.planted and torch.compiler.is_compiling()))
        return x * 2


def keeps(value: Callable[[Any, torch.Tensor, int], Any]) -> Callable[..., None]:
    def run(model: Any, x: torch.Tensor, wrong: int) -> None:
        model.holder.kept = value(model, x, wrong)

    return run


def chooses(model: Any, _x: torch.Tensor, wrong: int) -> None:
    model.current = model.other if wrong else model.one


def swaps_parts(model: Any, _x: torch.Tensor, wrong: int) -> None:
    if not wrong:
        model.one, model.other = model.other, model.one


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def move_to_end(items: Any, key: str) -> None:
    """Dynamo would leave the order as it was."""
    items.move_to_end(key)


def reorders(model: Any, _x: torch.Tensor, wrong: int) -> None:
    move_to_end(model.ordered, "b" if wrong else "a")


def tags(_model: Any, x: torch.Tensor, wrong: int) -> None:
    x.tag = "other" if wrong else "one"  # type: ignore[attr-defined]


def tags_buffer(model: Any, _x: torch.Tensor, wrong: int) -> None:
    model.table.tag = "other" if wrong else "one"


def tags_alone(_model: Any, x: torch.Tensor, wrong: int) -> None:
    if wrong:
        x.tag = 1  # type: ignore[attr-defined]


def counts_items(model: Any, _x: torch.Tensor, wrong: int) -> None:
    model.items[0] += 1 + wrong


def sets_global(_model: Any, _x: torch.Tensor, wrong: int) -> None:
    global CURRENT  # noqa: PLW0603  # what is under test
    CURRENT = torch.sigmoid if wrong else torch.relu


def swaps_global(_model: Any, _x: torch.Tensor, wrong: int) -> None:
    global CURRENT_LIST  # noqa: PLW0603  # what is under test
    CURRENT_LIST = OTHER if wrong else ONE


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def draws(generator: Any, count: int) -> None:
    for _ in range(count):
        generator.random()


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def advances(iterator: Any, count: int) -> None:
    for _ in range(count):
        next(iterator)


def draws_numbers(model: Any, _x: torch.Tensor, wrong: int) -> None:
    torch.rand(1 + wrong, generator=model.generator)


Run = Callable[[Any, torch.Tensor, int], object]
KINDS: dict[str, Run] = {
    "a submodule": keeps(lambda m, _x, w: m.other if w else m.one),
    "submodules in a list": keeps(lambda m, _x, w: [m.one, m.other if w else m.one]),
    "which submodule is next": chooses,
    "swapped submodules": swaps_parts,
    "a buffer": keeps(lambda m, _x, w: m.second if w else m.table),
    "a copy of a buffer": keeps(lambda m, _x, w: m.table.clone() if w else m.table),
    "an object": keeps(lambda m, _x, w: m.last if w else m.first),
    "a list": keeps(lambda m, _x, w: m.list_other if w else m.list_one),
    "a function of torch": keeps(lambda _m, _x, w: torch.sigmoid if w else torch.relu),
    "a function in Python": keeps(lambda _m, _x, w: nn.functional.elu if w else nn.functional.relu),
    "an operator": keeps(
        lambda _m, _x, w: (torch.ops.aten.sin if w else torch.ops.aten.cos).default
    ),
    "a lambda": keeps(lambda _m, _x, w: (lambda x: x + 1) if w else (lambda x: x + 2)),
    "a closure over a tensor": keeps(
        lambda _m, x, w: (lambda y, by=x: y * by, closed(x * (2 + w)))
    ),
    "a default of a function": keeps(lambda _m, _x, w: with_default(w)),
    "a partial of a tensor": keeps(lambda _m, x, w: functools.partial(torch.sub, x * (2 + w))),
    "a partial of a function": keeps(
        lambda _m, _x, w: functools.partial(torch.sin if w else torch.cos)
    ),
    "a keyword of a partial": keeps(lambda _m, _x, w: functools.partial(torch.sum, dim=w)),
    "a bound method": keeps(lambda m, _x, w: m.last.more if w else m.first.more),
    "another method": keeps(lambda m, _x, w: m.one.forward if w else m.one.extra_repr),
    "a class": keeps(lambda _m, _x, w: nn.Tanh if w else nn.ReLU),
    "a slice": keeps(lambda _m, _x, w: slice(0, 2 + w)),
    "a range": keeps(lambda _m, _x, w: range(2 + w)),
    "a decimal": keeps(lambda _m, _x, w: decimal.Decimal(2 + w)),
    "an attribute of an argument": tags,
    "an attribute of a buffer": tags_buffer,
    "an attribute of an argument that eager does not set": tags_alone,
    "a read-only mapping": keeps(lambda _m, _x, w: types.MappingProxyType({"a": 2 + w})),
    "an object that is called": keeps(lambda _m, _x, w: Scaled(2 + w)),
    "a weak reference": keeps(lambda m, _x, w: weakref.ref(m.other if w else m.one)),
    "items of an array": counts_items,
    "the order of a dictionary": reorders,
    "a global": sets_global,
    "a global that is like another": swaps_global,
    "a generator of torch": draws_numbers,
    "a generator of Python": lambda m, _x, w: draws(m.python_generator, 1 + w),
    "a generator of numpy": lambda m, _x, w: draws(m.numpy_generator, 1 + w),
    "an iterator": lambda m, _x, w: advances(m.letters, 1 + w),
    "a counter": lambda m, _x, w: advances(m.numbers, 1 + w),
}

SOUND = [name for name in KINDS if name != "a read-only mapping"]
"""Without what can't be copied before the second call."""


def closed(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: tensor


def with_default(value: int) -> Callable[..., int]:
    def found(given: int = value) -> int:
        return given

    return found


def told(run: Run, *, planted: bool, calls: int = 1) -> Checked:
    torch.manual_seed(0)
    return check(Model(run, planted=planted), *[(torch.ones(2),)] * calls, locates=False)


@pytest.mark.parametrize("name", KINDS)
def test_what_compiled_code_binds_otherwise_is_told(name: str) -> None:
    seen = told(KINDS[name], planted=True)
    assert "compiled differs from eager" in seen.told, seen.verdict


def test_what_both_sides_bind_alike_passes_and_was_compared() -> None:
    """All in one call, so that none hides behind another check."""

    def everything(model: Any, x: torch.Tensor, wrong: int) -> None:
        kept: dict[str, Any] = {}
        for name in SOUND:
            KINDS[name](model, x, wrong)
            kept[name] = model.holder.kept
        model.holder.kept = kept

    seen = told(everything, planted=False, calls=2)
    (parity,) = [f for f in seen.verdict.findings if f.metric == "parity"]
    assert parity.status == "passed", seen.told
    assert unchecked(seen) == []


def unchecked(seen: Checked) -> list[str]:
    return [f.message for f in seen.verdict.findings if f.metric == "isolation"]


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def holds_what_is_its_own(model: Any, x: torch.Tensor, _wrong: int) -> None:
    """What each side makes for itself, and nobody can or need compare."""
    model.handle = model.one.register_forward_hook(lambda *_: None)
    model.reference = weakref.ref(model.other)
    model.dead = weakref.ref(Scaled(1))
    model.log = logging.getLogger("models")
    model.pattern = re.compile("a+")
    model.path = pathlib.Path("a")
    model.when = dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc)
    model.made = nn.Identity()
    model.activation = nn.functional.relu
    model.nested = {"act": [torch.relu, nn.ReLU, torch.nn.functional.gelu], "dtype": x.dtype}
    model.recursive = recursive()


def recursive() -> Callable[[int], int]:
    def descends(depth: int) -> int:
        return descends(depth - 1) if depth else 0

    return descends


class Shared(nn.Module):
    """Keeps what has no copy, or is compiled by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.compiled: Any = torch.compile(nn.Linear(2, 2), backend="eager")
        self.function = torch.compile(closed(torch.ones(2)), backend="eager")
        self.cached = functools.lru_cache(closed(torch.ones(2)))
        self.context = torch.no_grad()
        self.kept: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = [self.compiled, self.function, self.cached, self.context]
        return x * 2


def test_what_each_side_makes_for_itself_is_no_difference() -> None:
    seen = told(holds_what_is_its_own, planted=False, calls=2)
    assert seen.verdict.outcome == "passed", seen.told


def test_what_is_shared_or_compiled_by_itself_is_no_difference() -> None:
    seen = check(Shared(), *[(torch.ones(2),)] * 2)
    assert seen.verdict.outcome == "passed", seen.told
