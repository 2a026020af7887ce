"""Functions that reach themselves through tables, and functions that share their code."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.compiler import is_compiling

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Walk = Callable[[torch.Tensor, int], torch.Tensor]
count = 0
WRONG: list[bool] = []


@pytest.fixture(autouse=True)
def _as_new() -> Iterator[None]:
    global count  # noqa: PLW0603
    count = 0
    yield
    WRONG.clear()


def step() -> int:
    """Counts an inner call, and wrongly if that is asked for."""
    return 2 if WRONG and is_compiling() else 1


class Holder:
    walk: Walk


HOLDER = Holder()
LIST: list[Walk] = []
DICT: dict[str, Walk] = {}
SET: set[Walk] = set()


def by_list(x: torch.Tensor, depth: int) -> torch.Tensor:
    global count  # noqa: PLW0603  # what is tested
    count += step()
    return LIST[0](x, depth - 1) if depth else x * 2


def by_dict(x: torch.Tensor, depth: int) -> torch.Tensor:
    global count  # noqa: PLW0603  # what is tested
    count += step()
    return DICT["walk"](x, depth - 1) if depth else x * 2


def by_holder(x: torch.Tensor, depth: int) -> torch.Tensor:
    global count  # noqa: PLW0603  # what is tested
    count += step()
    return HOLDER.walk(x, depth - 1) if depth else x * 2


def by_tuple(x: torch.Tensor, depth: int) -> torch.Tensor:
    global count  # noqa: PLW0603  # what is tested
    count += step()
    return TUPLE[0](x, depth - 1) if depth else x * 2


def by_default(x: torch.Tensor, depth: int, own: tuple[list[Walk], ...] = ([],)) -> torch.Tensor:
    global count  # noqa: PLW0603  # what is tested
    count += step()
    return own[0][0](x, depth - 1) if depth else x * 2


def by_another(x: torch.Tensor, depth: int) -> torch.Tensor:
    global count  # noqa: PLW0603  # what is tested
    count += step()
    return passes_on(x, depth) if depth else x * 2


def passes_on(x: torch.Tensor, depth: int) -> torch.Tensor:
    return LIST[1](x, depth - 1)


LIST += [by_list, by_another]
DICT["walk"] = by_dict
HOLDER.walk = by_holder
TUPLE = (by_tuple,)
by_default.__defaults__[0][0].append(by_default)  # type: ignore[index]


@pytest.mark.parametrize(
    "walk",
    (by_list, by_dict, by_holder, by_tuple, by_default, by_another),
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("calls", (1, 2))
@pytest.mark.parametrize("wrong", (False, True))
def test_globals_are_compared_and_left_as_one_call_leaves_them(
    walk: Walk, calls: int, *, wrong: bool
) -> None:
    WRONG[:] = [True] * wrong
    seen = check(walk, *[(torch.ones(3), 2)] * calls, locates=False)
    assert seen.verdict.outcome == ("failed" if wrong else "passed"), seen.told
    assert "after the call" in seen.told or not wrong
    assert count == 3 * calls


def registry() -> tuple[Walk, list[int], Callable[[], int]]:
    """Functions within one another's reach by a table that none of them is."""
    table: dict[str, Walk] = {}
    seen: list[int] = []
    total = 0

    def walk(x: torch.Tensor, depth: int) -> torch.Tensor:
        nonlocal total
        total += step()
        seen.append(depth)
        return table["walk"](x, depth - 1) if depth else x * 2

    table["walk"] = walk
    return walk, seen, lambda: total


@pytest.mark.parametrize("wrong", (False, True))
def test_so_are_variables_of_outer_functions(*, wrong: bool) -> None:
    WRONG[:] = [True] * wrong
    walk, seen, total = registry()
    told = check(walk, *[(torch.ones(3), 2)] * 2, locates=False).told
    assert ("after the call" in told) == wrong, told
    assert (seen, total()) == ([2, 1, 0] * 2, 6)


LOG = logging.getLogger(__name__)
STATE = [0]


def logged(function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    @functools.wraps(function)
    def wrapper(x: torch.Tensor) -> torch.Tensor:
        LOG.debug("calling")
        torch._dynamo.graph_break()
        return function(x)

    return wrapper


@logged
def helper(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@logged
def counts(x: torch.Tensor) -> torch.Tensor:
    global count  # noqa: PLW0603  # what is tested
    count += step()
    return helper(x) + 1  # type: ignore[no-any-return]


@logged
def counts_in_a_list(x: torch.Tensor) -> torch.Tensor:
    STATE[0] += 1
    return helper(x) + 1  # type: ignore[no-any-return]


def wrapped_helper(x: torch.Tensor) -> torch.Tensor:
    return helper(x) * 2  # type: ignore[no-any-return]


@logged
def counts_through_another(x: torch.Tensor) -> torch.Tensor:
    global count  # noqa: PLW0603  # what is tested
    count += step()
    return wrapped_helper(x) + 1


def counted(function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    calls = 0

    @functools.wraps(function)
    def wrapper(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        torch._dynamo.graph_break()
        return function(x) * calls

    return wrapper


@counted
def counted_helper(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@counted
def counts_everywhere(x: torch.Tensor) -> torch.Tensor:
    global count  # noqa: PLW0603  # what is tested
    count += step()
    return counted_helper(x) + 1  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "target", (counts, counts_in_a_list, counts_through_another, counts_everywhere)
)
def test_functions_behind_one_decorator_that_breaks_the_graph(target: Any) -> None:
    """Dynamo puts what is left of a function into the globals that it met its code with."""
    seen = check(target, (torch.ones(3),), (torch.ones(3),))
    assert seen.verdict.outcome == "passed", seen.told


def test_and_what_they_leave_wrongly_is_found() -> None:
    WRONG[:] = [True]
    told = check(counts, (torch.ones(3),), locates=False).told
    assert "count after the call: compiled 2, eager 1" in told
    assert count == 1
