"""Functions of one file that a target holds and that use globals: one set of globals for all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.compiler import is_compiling

from tests.dynamo.checked import check
from tests.dynamo.hooked import passing_on

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Function = Callable[[torch.Tensor], Any]
SUM = torch.zeros(3)
NORM = nn.BatchNorm1d(3)
LOG: list[int] = []
TABLES: dict[int, torch.Tensor] = {}
WEIGHT = nn.Parameter(torch.ones(3))
HEAD = nn.Linear(3, 3)
calls = 0
factor = 0


def sums(x: torch.Tensor) -> torch.Tensor:
    SUM.add_(x[0])
    return x * 2


def normalises(x: torch.Tensor) -> Any:
    return NORM(x)


def logs(x: torch.Tensor) -> torch.Tensor:
    LOG.append(len(LOG))
    return x * len(LOG)


def counts(x: torch.Tensor) -> torch.Tensor:
    global calls  # noqa: PLW0603  # what is tested
    calls += 1
    return x * 2


def caches(x: torch.Tensor) -> torch.Tensor:
    if len(x) not in TABLES:
        TABLES[len(x)] = torch.arange(float(len(x)))
    return x + TABLES[len(x)][:, None]


def weighs(x: torch.Tensor) -> torch.Tensor:
    return x * WEIGHT


def sums_wrongly(x: torch.Tensor) -> torch.Tensor:
    SUM.add_(x[0] * (3 if is_compiling() else 2))
    return x * 2


def logs_wrongly(x: torch.Tensor) -> torch.Tensor:
    LOG.append(1 if is_compiling() else 0)
    return x * 2


def thrice_in_backward(y: torch.Tensor) -> torch.Tensor:
    return y.detach() + (y - y.detach()) * 3


def weighs_wrongly(x: torch.Tensor) -> torch.Tensor:
    y = x * WEIGHT
    return thrice_in_backward(y) if is_compiling() else y


def heads_wrongly(x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = HEAD(x)
    return thrice_in_backward(y) if is_compiling() else y


def alone(function: Function) -> Function:
    return function


def wrapped(function: Function) -> Function:
    @functools.wraps(function)
    def on(x: torch.Tensor) -> Any:
        return function(x)

    return on


def by_default(function: Function) -> Function:
    def on(x: torch.Tensor, inner: Function = function) -> Any:
        return inner(x)

    return on


def in_a_list(function: Function) -> Function:
    functions = [function]

    def on(x: torch.Tensor) -> Any:
        for inner in functions:
            x = inner(x)
        return x

    return on


def in_a_partial(function: Function) -> Function:
    inner = functools.partial(function)
    return lambda x: inner(x) + 1


def of_another_file(function: Function) -> Function:
    return passing_on(function)


def with_gradients(function: Function) -> Function:
    return torch.enable_grad()(function)


class Holds(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


SAME_FILE = (alone, wrapped, by_default, in_a_list, in_a_partial)
HOLDERS = (*SAME_FILE, of_another_file, with_gradients, Holds, functools.partial)
SOUND = (sums, normalises, logs, counts, caches, weighs)


def given() -> torch.Tensor:
    return torch.arange(12.0).reshape(4, 3)


def state() -> dict[str, Any]:
    statistics = NORM.running_mean
    assert statistics is not None
    return {
        "sum": SUM.tolist(),
        "norm": (statistics.tolist(), int(NORM.num_batches_tracked or 0)),
        "log": list(LOG),
        "calls": calls,
        "tables": {size: table.tolist() for size, table in TABLES.items()},
    }


@pytest.fixture(autouse=True)
def _begin() -> None:
    forget()


def forget() -> None:
    global calls, factor  # noqa: PLW0603  # what is tested
    calls = factor = 0
    SUM.zero_()
    NORM.reset_running_stats()
    LOG.clear()
    TABLES.clear()
    WEIGHT.grad = None


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: holder.__name__)
@pytest.mark.parametrize("function", SOUND, ids=lambda function: function.__name__)
def test_globals_are_left_as_the_call_leaves_them(function: Function, holder: Any) -> None:
    held = holder(function)
    for _ in range(2):
        held(given())
    expected = state()
    forget()

    checked = check(holder(function), *[(given(),)] * 2)

    assert checked.verdict.outcome == "passed", checked.told
    assert state() == expected


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: holder.__name__)
@pytest.mark.parametrize(
    ("function", "place"),
    ((sums_wrongly, "SUM"), (logs_wrongly, "LOG")),
    ids=("sums", "logs"),
)
def test_what_is_left_wrongly_in_globals_is_found(
    function: Function, place: str, holder: Any
) -> None:
    held = holder(function)
    held(given())  # what an earlier call left must not hide it
    checked = check(held, (given(),), locates=False)

    assert "parity" in checked.told
    assert place in checked.told


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: holder.__name__)
@pytest.mark.parametrize(
    ("function", "place"),
    ((weighs_wrongly, "WEIGHT"), (heads_wrongly, "HEAD.weight")),
    ids=("parameter", "module"),
)
def test_gradients_of_globals_are_compared(function: Function, place: str, holder: Any) -> None:
    checked = check(holder(function), (given(),), locates=False)

    assert f"{place}: greatest difference" in checked.told
    assert "gradient of" in checked.told


def applies(function: Function, x: torch.Tensor) -> Any:
    return function(x)


@pytest.mark.parametrize("function", SOUND, ids=lambda function: function.__name__)
def test_a_function_that_is_an_argument_leaves_globals_alike(function: Function) -> None:
    for _ in range(2):
        function(given())
    expected = state()
    forget()

    checked = check(applies, *[(function, given())] * 2)

    assert checked.verdict.outcome == "passed", checked.told
    assert state() == expected


class Counter:
    def add(self) -> None:
        global factor  # noqa: PLW0603  # what is tested
        factor += 1


COUNTER = Counter()


def scales(x: torch.Tensor) -> torch.Tensor:
    return x * factor


def counts_by_a_method(x: torch.Tensor) -> torch.Tensor:
    COUNTER.add()
    return scales(x) + x * factor


def counts_wrongly_by_a_method(x: torch.Tensor) -> torch.Tensor:
    COUNTER.add()
    if is_compiling():
        COUNTER.add()
    return x * 2


def test_a_target_meets_the_globals_that_methods_of_its_file_assign() -> None:
    checked = check(counts_by_a_method, *[(given(),)] * 3)

    assert checked.verdict.outcome == "passed", checked.told
    assert factor == 3


def test_a_global_that_a_method_assigns_wrongly_is_found() -> None:
    checked = check(counts_wrongly_by_a_method, (given(),), locates=False)

    assert "factor" in checked.told


def descends(x: torch.Tensor, depth: int) -> torch.Tensor:
    LOG.append(depth)
    return x if depth == 0 else descends(x + 1, depth - 1)


def goes_there(x: torch.Tensor, depth: int) -> torch.Tensor:
    LOG.append(depth)
    return x if depth == 0 else and_back(x * 2, depth)


def and_back(x: torch.Tensor, depth: int) -> torch.Tensor:
    return goes_there(x + 1, depth - 1)


def local_recursion() -> Callable[[torch.Tensor, int], torch.Tensor]:
    def down(x: torch.Tensor, depth: int) -> torch.Tensor:
        LOG.append(depth)
        return x if depth == 0 else up(x * 2, depth)

    def up(x: torch.Tensor, depth: int) -> torch.Tensor:
        return down(x + 1, depth - 1)

    return down


def with_its_own_list() -> tuple[Callable[[torch.Tensor, int], torch.Tensor], list[int]]:
    seen: list[int] = []

    def down(x: torch.Tensor, depth: int) -> torch.Tensor:
        seen.append(depth)
        return x if depth == 0 else up(x * 2, depth)

    def up(x: torch.Tensor, depth: int) -> torch.Tensor:
        return down(x + 1, depth - 1)

    return down, seen


@pytest.mark.parametrize("target", (descends, goes_there, local_recursion()))
def test_recursive_functions_leave_globals_as_one_call_leaves_them(target: Any) -> None:
    checked = check(target, *[(given(), 3)] * 2)

    assert checked.verdict.outcome == "passed", checked.told
    assert LOG == [3, 2, 1, 0] * 2


def test_recursive_functions_leave_their_variables_as_one_call_leaves_them() -> None:
    target, seen = with_its_own_list()
    checked = check(target, *[(given(), 3)] * 2)

    assert checked.verdict.outcome == "passed", checked.told
    assert seen == [3, 2, 1, 0] * 2


def steps(x: torch.Tensor, weight: float = 1.0) -> torch.Tensor:
    loss: torch.Tensor = (HEAD(x) * WEIGHT).sum() * weight
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def steps_wrongly(x: torch.Tensor, weight: float = 1.0) -> torch.Tensor:
    return steps(x, weight * (3 if is_compiling() else 1))


class Steps:
    def __init__(self, step: Callable[..., torch.Tensor]) -> None:
        self.step = step

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(x)


def forget_gradients() -> None:
    WEIGHT.grad = HEAD.weight.grad = HEAD.bias.grad = None


@pytest.mark.parametrize("begins_without", (True, False), ids=("none", "some"))
@pytest.mark.parametrize("holder", (alone, functools.partial, Steps, Holds, of_another_file))
def test_gradients_that_a_call_leaves_in_globals_are_those_of_one_call(
    holder: Any, *, begins_without: bool
) -> None:
    forget_gradients()
    for _ in range(2 if begins_without else 3):
        steps(given())
    expected = [parameter.grad for parameter in (WEIGHT, *HEAD.parameters())]
    forget_gradients()
    if not begins_without:
        steps(given())

    checked = check(holder(steps), *[(given(),)] * 2)

    assert checked.verdict.outcome == "passed", checked.told
    for parameter, gradient in zip((WEIGHT, *HEAD.parameters()), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("holder", (functools.partial, Steps, Holds, of_another_file))
def test_gradients_that_a_call_leaves_wrongly_in_globals_are_found(holder: Any) -> None:
    forget_gradients()
    checked = check(holder(steps_wrongly), (given(),), locates=False)

    assert "WEIGHT.grad" in checked.told
    assert "HEAD.weight.grad" in checked.told
