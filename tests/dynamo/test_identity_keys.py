"""Containers whose keys are known by identity: those that are copies of each other match."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")


class Request:
    def __init__(self) -> None:
        self.number = 1


def wrong() -> int:
    """Something else where it is compiled."""
    return int(torch.compiler.is_compiling())


class PerRequest(nn.Module):
    def __init__(self, kept: Any, key: Callable[[Any], Any], by: Callable[[], int]) -> None:
        super().__init__()
        self.kept = kept
        self.key = key
        self.by = by

    def forward(self, x: torch.Tensor, request: Request) -> torch.Tensor:
        y, by = x.sin(), self.by()
        count(self.kept, self.key, request, by)
        return y.cos()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def count(kept: Any, key_of: Callable[[Any], Any], request: Any, by: int) -> None:
    key = key_of(request)
    kept[key] = kept.get(key, 0) + by


def once() -> int:
    return 1


def once_more() -> int:
    return 1 + wrong()


KEYS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "an argument": (dict, lambda request: request),
    "a weak key": (weakref.WeakKeyDictionary, lambda request: request),
    "a number made by id": (dict, id),
    "a new object": (dict, lambda _: object()),
    "a function": (dict, lambda _: lambda: None),
    "a tuple": (dict, lambda request: (request, 1)),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_that_are_copies_of_each_other_match(name: str) -> None:
    kept, key = KEYS[name]
    request = Request()
    seen = check(PerRequest(kept(), key, once), *[(torch.ones(3), request)] * 2)
    assert seen.verdict.outcome == "passed", seen.told


@pytest.mark.parametrize("name", KEYS)
def test_values_under_such_keys_are_compared(name: str) -> None:
    kept, key = KEYS[name]
    told = check(PerRequest(kept(), key, once_more), (torch.ones(3), Request())).told
    assert "compiled 2, eager 1" in told, told
    assert not re.search("0x[0-9a-f]{6}", told), told


class Dispatching(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        @functools.singledispatch
        def by_kind(_a: Any, x: torch.Tensor) -> torch.Tensor:
            return x

        self.by_kind = by_kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.by_kind(2, x.sin())


def test_the_cache_of_a_dispatching_function_matches() -> None:
    seen = check(Dispatching(), *[(torch.ones(3),)] * 2)
    assert seen.verdict.outcome == "passed", seen.told


def test_a_set_of_tensors_is_not_compared_and_said_so() -> None:
    seen = check(lambda x: (x, {x.sin(), x.cos()}), (torch.ones(3),))
    assert seen.verdict.outcome == "passed", seen.told
    assert "in a set" in str(seen.verdict.observation.parity)


def test_results_by_object_are_compared_without_their_addresses() -> None:
    def target(x: torch.Tensor, request: Request) -> Any:
        return {request: x + wrong()}

    told = check(target, (torch.ones(3), Request())).told
    assert "compiled 2, eager 1" in told, told
    assert not re.search("0x[0-9a-f]{6}", told), told


class Noting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Any] = set()

    def forward(self, x: torch.Tensor, requests: list[Request]) -> torch.Tensor:
        y = x.sin()
        add(self.seen, requests[wrong()])
        return y.cos()


def test_a_set_that_gets_another_item_is_found() -> None:
    told = check(Noting(), (torch.ones(3), [Request(), Request()])).told
    assert "seen (items)" in told, told


@torch.compiler.disable  # type: ignore[untyped-decorator]
def add(seen: Any, item: Any) -> None:
    seen.add(item)
