"""Plain data is passed over only where nothing in it can differ."""

from __future__ import annotations

import collections
import enum
import types
from typing import Any

import pytest
import torch

from pytest_compileguard.parity.plain import equal_leaves, holds_no_tensor


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


NAN = float("nan")


def nested(**changes: Any) -> dict[str, Any]:
    return {"a": 1, "b": ["x", None, (2, b"y")], "c": {"d": True, 3: Colour.RED}} | changes


def loop() -> list[Any]:
    endless: list[Any] = [1]
    endless.append(endless)
    return endless


@pytest.mark.parametrize(
    ("value", "leaves"),
    ((nested(), 7), ([], 0), ("word", 1), ([NAN, NAN], 2), (loop(), 1), ([torch.float32], 1)),
)
def test_the_same_data_is_counted(value: Any, leaves: int) -> None:
    assert equal_leaves(value, value) == leaves


def test_copies_of_data_are_the_same() -> None:
    assert equal_leaves(nested(), nested()) == 7


@pytest.mark.parametrize(
    ("one", "other"),
    (
        (nested(), nested(a=2)),
        (nested(), nested(a=True)),
        (nested(), nested(e=1)),
        (nested(), nested(b=["x", None, [2, b"y"]])),
        (nested(), nested(c={"d": True, 3: Colour.BLUE})),
        (nested(), nested(c={"d": True, True: Colour.RED})),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([1, 2], [1]),
        ([0.0], [-0.0]),
        ([float("nan")], [float("nan")]),
        ([1.0], [2.0]),
        ([torch.ones(1)], [torch.ones(1)]),
        ([types.SimpleNamespace(a=1)], [types.SimpleNamespace(a=1)]),
        (collections.OrderedDict(a=1), collections.OrderedDict(a=1)),
        ({1, 2}, {1, 2}),
    ),
)
def test_what_may_differ_is_looked_at(one: Any, other: Any) -> None:
    assert equal_leaves(one, other) is None


def test_what_is_known_to_be_the_same_counts_once() -> None:
    inner, other = {"a": 1, "b": 2}, {"a": 1, "b": 2}
    known: set[tuple[int, int]] = set()

    assert equal_leaves({"in": inner, "c": 3}, {"in": other, "c": 3}, known) == 3
    assert equal_leaves(inner, other, known) == 0


def test_what_was_met_before_a_difference_is_not_known_to_be_the_same() -> None:
    inner, other = [1, [2]], [1, [3]]
    known: set[tuple[int, int]] = set()

    assert equal_leaves([inner, 0], [other, 1], known) is None
    assert known == set()
    assert equal_leaves(inner, other, known) is None


def test_a_tensor_that_both_sides_hold_is_looked_at() -> None:
    tensor = torch.ones(1)

    assert equal_leaves([tensor], [tensor]) is None


@pytest.mark.parametrize("value", (nested(), 3, loop(), [{1, 2}, frozenset("a")], []))
def test_plain_data_holds_no_tensor(value: Any) -> None:
    assert holds_no_tensor(value)


@pytest.mark.parametrize(
    "value",
    (
        torch.ones(1),
        nested(b=[({"deep": torch.ones(1)},)]),
        types.SimpleNamespace(a=torch.ones(1)),
        [collections.deque([torch.ones(1)])],
        collections.OrderedDict(a=torch.ones(1)),
        torch.nn.Linear(1, 1),
    ),
)
def test_anything_else_may_hold_one(value: Any) -> None:
    assert not holds_no_tensor(value)
