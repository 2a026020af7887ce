"""Containers of users' classes whose own methods forbid changes, or keep something else than given.

They are put back as Python's own classes would do it, else a guarded call empties them, or raises.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch.compiler import is_compiling

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")


class Output(collections.OrderedDict[str, Any]):
    """As the results of some libraries for models are."""

    def update(self, *_: object, **__: object) -> None:
        raise RuntimeError("no update")


class Wrapping(collections.OrderedDict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, [value])

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key)[0]


class Lasting(dict[str, Any]):
    def clear(self) -> None:
        raise RuntimeError("no clear")


class Growing(list[Any]):
    def clear(self) -> None:
        raise RuntimeError("no clear")

    def extend(self, _: Iterable[Any]) -> None:
        raise RuntimeError("no extend")


class Unique(set[Any]):
    def update(self, *_: Iterable[Any]) -> None:
        raise RuntimeError("no update")


KEPT: dict[str, Any] = {}


def begin() -> None:
    KEPT.clear()
    KEPT.update(o=Output(), w=Wrapping(), d=Lasting(a=1), l=Growing([1]), s=Unique())


@torch.compiler.disable  # type: ignore[untyped-decorator]  # the call goes on outside of a graph
def put(kept: dict[str, Any], more: int) -> None:
    kept["o"]["n"] = kept["o"].get("n", 0) + 1
    kept["w"]["n"] = 1
    kept["d"]["n"] = kept["d"].get("n", 0) + 1
    kept["l"].append(len(kept["l"]))
    kept["s"].add(len(kept["s"]) + more)


class OfGlobals(torch.nn.Module):
    def __init__(self, more: int = 0) -> None:
        super().__init__()
        self.more = more

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        put(KEPT, self.more if is_compiling() else 0)
        return y + 1


class OfItself(OfGlobals):
    def __init__(self) -> None:
        super().__init__()
        self.kept = KEPT

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        put(self.kept, 0)
        return y + 1


@pytest.mark.parametrize("target", (OfGlobals, OfItself))
def test_they_are_left_as_the_call_leaves_them(target: type[torch.nn.Module]) -> None:
    begin()
    for _ in range(2):
        put(KEPT, 0)
    expected = {name: repr(value) for name, value in KEPT.items()}
    begin()

    checked = check(target(), *[(torch.ones(3),)] * 2)

    assert checked.verdict.outcome == "passed", checked.told
    assert {name: repr(value) for name, value in KEPT.items()} == expected


def test_they_are_compared() -> None:
    begin()
    assert "KEPT" in check(OfGlobals(more=1), (torch.ones(3),), locates=False).told


class Counter:
    """Keeps its number where a property of that name hides it."""

    def __init__(self) -> None:
        vars(self)["number"] = 0

    @property
    def number(self) -> int:
        return int(vars(self)["number"])

    def count(self) -> None:
        vars(self)["number"] += 1


COUNTER = Counter()


@torch.compiler.disable  # type: ignore[untyped-decorator]  # older torch can't trace it
def counted() -> int:
    COUNTER.count()
    return COUNTER.number


class Counting(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = x + 1
        after: torch.Tensor = before * counted()
        return after + 1


def test_attribute_that_a_property_hides_is_put_back() -> None:
    seen = check(Counting(), (torch.ones(3),), (torch.ones(3),))
    assert seen.verdict.outcome == "passed", seen.told
    assert COUNTER.number == 2
