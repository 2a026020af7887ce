"""Recompiles of call sequences: how many, which guard failed, and what changed."""

# mypy: disallow-untyped-calls=False, warn-return-any=False

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_compileguard.trace.guard_text import read_guard
from tests.dynamo import break_functions
from tests.dynamo.checked import Checked, check
from tests.dynamo.torch_versions import AUTOCAST

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Call = tuple[Any, ...]
FACTOR = 1


def plain(x: Tensor) -> Tensor:
    return x.sin() + 1


def times(x: Tensor, n: Any) -> Tensor:
    return x * n


def times_global(x: Tensor) -> Tensor:
    return x * FACTOR


def calls_times_global(x: Tensor) -> Tensor:
    return times_global(x) + 1


def named(x: Tensor, way: str) -> Tensor:
    return x.sin() if way == "sine" else x.cos()


def call(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    return function(x)


def total(tensors: Any) -> Tensor:
    return torch.stack(list(tensors)).sum(0)


def odd_or_even(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] % 2 else x - 1


def large_or_small(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] > 20 else x - 1


def add_if_given(x: Tensor, y: Any) -> Tensor:
    return x.sin() if y is None or y is False else x + y


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y if x.shape[0] == y.shape[0] else x - 1


def factory(n: int) -> Callable[[Tensor], Tensor]:
    def multiply(x: Tensor) -> Tensor:
        return x * n

    return multiply


def set_factor(index: int) -> None:
    globals()["FACTOR"] = index + 1


def sizes(*numbers: int) -> list[Call]:
    return [(torch.ones(n),) for n in numbers]


def marked(*numbers: int) -> list[Call]:
    calls = sizes(*numbers)
    for (x,) in calls:
        torch._dynamo.mark_dynamic(x, 0)
    return calls


def with_each(*values: Any) -> list[Call]:
    return [(torch.ones(4), value) for value in values]


Expected = tuple[str, str, str, str]
"""Subject, value before, value after, kind."""


@dataclass(frozen=True)
class Case:
    """A call sequence and the recompiles that it must give."""

    target: Callable[..., Any]
    calls: list[Call]
    recompiles: tuple[Expected, ...] = ()
    at: tuple[int, ...] = ()
    """Calls at which they come."""
    graphs: int = 1
    before: Callable[[int], object] = lambda _call: None
    around: Callable[[int], contextlib.AbstractContextManager[object]] = lambda _call: (
        contextlib.nullcontext()
    )
    limits: dict[str, Any] = field(default_factory=dict)


def no_grad_later(index: int) -> contextlib.AbstractContextManager[object]:
    return torch.no_grad() if index else contextlib.nullcontext()


def autocast_later(index: int) -> contextlib.AbstractContextManager[object]:
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=bool(index))


def dropout() -> Case:
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    return Case(
        net,
        [(torch.ones(2, 4),)] * 3,
        (("1.training", "True", "False", "training"),),
        at=(1,),
        graphs=2,
        before=lambda i: net.train(i != 1),
    )


GREW: Expected = ("x.size(0)", "4", "5", "automatic_dynamic")


def too_small(size: int) -> Expected:
    return "x.size(0)", ">= 2", str(size), "size"


CASES: dict[str, Callable[[], Case]] = {
    "sizes, then dynamic": lambda: Case(plain, sizes(4, 5, 6, 7), (GREW,), at=(1,), graphs=2),
    "size 1 is special": lambda: Case(
        plain, sizes(4, 5, 1, 7), (GREW, too_small(1)), at=(1, 2), graphs=3
    ),
    "size 0 is special": lambda: Case(
        plain, sizes(4, 5, 0, 7), (GREW, too_small(0)), at=(1, 2), graphs=3
    ),
    "dynamic=True": lambda: Case(plain, sizes(4, 5, 6), limits={"dynamic": True}),
    "dynamic=True, size 1": lambda: Case(
        plain, sizes(4, 5, 6, 1), (too_small(1),), at=(3,), graphs=2, limits={"dynamic": True}
    ),
    "dynamic=False": lambda: Case(
        plain,
        sizes(4, 5, 6),
        (("x.size(0)", "4", "5", "size"), ("x.size(0)", "5", "6", "size")),
        at=(1, 2),
        graphs=3,
        limits={"dynamic": False},
    ),
    "mark_dynamic on the tensors of the test": lambda: Case(plain, marked(4, 5, 6)),
    "rank": lambda: Case(
        plain,
        [(torch.ones(3),), (torch.ones(3, 4),)],
        (("x.rank", "1", "2", "rank"),),
        at=(1,),
        graphs=2,
    ),
    "sizes that are compared": lambda: Case(
        add,
        [(torch.ones(a), torch.ones(b)) for a, b in ((4, 4), (5, 5), (6, 7))],
        (GREW, ("y.size(0)", "x.size(0)", "", "size")),
        at=(1, 2),
        graphs=3,
    ),
    "a size that code branches on": lambda: Case(
        large_or_small,
        sizes(4, 8, 30),
        (("x.size(0)", "4", "8", "automatic_dynamic"), ("x.size(0)", ">= 2, <= 20", "30", "size")),
        at=(1, 2),
        graphs=3,
    ),
    "a marked size that code branches on": lambda: Case(
        large_or_small,
        marked(4, 8, 30),
        (("x.size(0)", ">= 2, <= 20", "30", "size"),),
        at=(2,),
        graphs=2,
    ),
    "None, then a value": lambda: Case(
        add_if_given,
        with_each(None, torch.ones(4)),
        (("y", "None", "", "presence"),),
        at=(1,),
        graphs=2,
    ),
    "flag": lambda: Case(
        add_if_given,
        with_each(True, False),
        (("y", "True", "False", "value"),),
        at=(1,),
        graphs=2,
    ),
    "remainder of a size": lambda: Case(
        odd_or_even,
        sizes(4, 6, 7),
        (("x.size(0)", "4", "6", "automatic_dynamic"), ("x.size(0) % 2", "0", "", "size")),
        at=(1, 2),
        graphs=3,
    ),
    "one break: both parts": lambda: Case(
        break_functions.one_gb,
        sizes(4, 5, 6),
        (GREW, ("y.size(0)", "4", "5", "automatic_dynamic")),
        at=(1, 1),
        graphs=4,
    ),
    "break in a helper: all four frames": lambda: Case(
        break_functions.nested,
        sizes(4, 5, 6),
        (
            GREW,
            GREW,
            ("y.size(0)", "4", "5", "automatic_dynamic"),
            ("___stack0.size(0)", "4", "5", "automatic_dynamic"),
        ),
        at=(1, 1, 1, 1),
        graphs=8,
    ),
    "global number": lambda: Case(
        times_global,
        sizes(4, 4, 4),
        (("FACTOR", "1", "2", "value"), ("FACTOR", "2", "3", "value")),
        at=(1, 2),
        graphs=3,
        before=set_factor,
    ),
    "global number of a helper": lambda: Case(
        calls_times_global,
        sizes(4, 4, 4),
        (("FACTOR", "1", "2", "value"), ("FACTOR", "2", "3", "value")),
        at=(1, 2),
        graphs=3,
        before=set_factor,
    ),
    "whole number, then dynamic": lambda: Case(
        times,
        with_each(2, 3, 4, 5),
        (("n", "2", "3", "automatic_dynamic"),),
        at=(1,),
        graphs=2,
    ),
    "whole number, dynamic=False": lambda: Case(
        times,
        with_each(2, 3, 4),
        (("n", "2", "3", "value"), ("n", "3", "4", "value")),
        at=(1, 2),
        graphs=3,
        limits={"dynamic": False},
    ),
    "floating number, then dynamic": lambda: Case(
        times,
        with_each(1.5, 2.5, 3.5),
        (("n", "1.5", "2.5", "automatic_dynamic"),),
        at=(1,),
        graphs=2,
    ),
    "string": lambda: Case(
        named,
        with_each("sine", "cosine", "sine"),
        (("way", "'sine'", "'cosine'", "value"),),
        at=(1,),
        graphs=2,
    ),
    "length of a list": lambda: Case(
        total,
        [([torch.ones(2)] * 2,), ([torch.ones(2)] * 3,)],
        (("len(tensors)", "2", "3", "value"),),
        at=(1,),
        graphs=2,
    ),
    "length of a dict": lambda: Case(
        lambda named_tensors: total(named_tensors.values()),
        [({"a": torch.ones(2)},), ({"a": torch.ones(2), "b": torch.ones(2)},)],
        (("len(named_tensors)", "1", "", "value"),),
        at=(1,),
        graphs=2,
    ),
    "dtype": lambda: Case(
        plain,
        [(torch.ones(4),), (torch.ones(4, dtype=torch.float64),)],
        (("x.dtype", "Float", "Double", "dtype"),),
        at=(1,),
        graphs=2,
    ),
    "stride": lambda: Case(
        plain,
        [(torch.ones(4, 4),), (torch.ones(4, 4).t(),)],
        (("x.stride(0)", "4", "1", "stride"),),
        at=(1,),
        graphs=2,
    ),
    "requires_grad": lambda: Case(
        plain,
        [(torch.ones(4),), (torch.ones(4, requires_grad=True),)],
        (("x.requires_grad", "False", "True", "requires_grad"),),
        at=(1,),
        graphs=2,
    ),
    "grad mode": lambda: Case(
        plain,
        [(torch.ones(4, requires_grad=True),)] * 2,
        (("grad_mode", "", "", "grad_mode"),),
        at=(1,),
        graphs=2,
        around=no_grad_later,
    ),
    "autocast": lambda: Case(
        plain,
        sizes(4, 4),
        ((AUTOCAST, "", "", "other"),),
        at=(1,),
        graphs=2,
        around=autocast_later,
    ),
    "train and eval": dropout,
    "two closures of one factory": lambda: Case(
        call,
        with_each(factory(2), factory(3)),
        (("function.__closure__[0].cell_contents", "2", "3", "automatic_dynamic"),),
        at=(1,),
        graphs=2,
    ),
    "two instances with another attribute": lambda: Case(
        call,
        with_each(break_functions.Scaled(2), break_functions.Scaled(3)),
        (("function.factor", "2", "3", "value"),),
        at=(1,),
        graphs=2,
    ),
    "two equal instances": lambda: Case(
        call, with_each(break_functions.Scaled(2), break_functions.Scaled(2))
    ),
}


def read(seen: Checked) -> tuple[Expected, ...]:
    recompiles = seen.facts.recompiles
    return tuple((r.subject, r.before, r.after, r.kind) for r in recompiles)


@pytest.mark.parametrize("name", CASES)
def test_call_sequence(name: str) -> None:
    case = CASES[name]()
    seen = check(case.target, *case.calls, before=case.before, around=case.around, **case.limits)

    assert read(seen) == case.recompiles
    assert tuple(r.call for r in seen.facts.recompiles) == case.at
    assert seen.facts.graphs == case.graphs
    assert not seen.facts.unreliable
    assert not seen.facts.fallbacks
    assert seen.verdict.outcome == "passed"


def test_type_of_a_tensor() -> None:
    (found,) = read(check(plain, (torch.ones(4),), (nn.Parameter(torch.ones(4)),)))
    assert (found[0], found[2:]) == ("type of x", ("torch.nn.parameter.Parameter", "other"))


@pytest.mark.parametrize("backend", ("eager", "aot_eager"))
def test_learning_rate_of_an_optimizer(backend: str) -> None:
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    def schedule(index: int) -> None:
        optimizer.param_groups[0]["lr"] = 0.01 * (index + 1)

    seen = check(step, *sizes(4, 4, 4, 4), before=schedule, backend=backend, max_recompiles=0)

    assert "lr=torch.tensor(...)" in seen.told
    assert "allow_unspec_int_on_nn_module" not in seen.told
    assert {r.frame for r in seen.facts.recompiles} == {"step"}
    # The number becomes an input, but compilers behind AOTAutograd, inductor too, ask for it back.
    assert len(seen.facts.recompiles) == (1 if backend == "eager" else 3)


@pytest.mark.parametrize(
    ("name", "values"), (("weight_decay", (0.1, 0.2, 0.3)), ("betas", ((0.9, 0.99), (0.8, 0.99))))
)
def test_other_values_of_an_optimizer(name: str, values: Sequence[Any]) -> None:
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([weight], lr=torch.tensor(0.1))

    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    def assign(index: int) -> None:
        optimizer.param_groups[0][name] = values[index]

    seen = check(step, *sizes(*[4] * len(values)), before=assign, max_recompiles=0)

    assert f"keep {name} for all steps" in seen.told
    assert "allow_unspec_int_on_nn_module" not in seen.told


def test_learning_rate_in_a_tensor_that_a_scheduler_changes() -> None:
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=torch.tensor(0.1))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    def schedule(index: int) -> None:
        if index:
            scheduler.step()

    seen = check(step, *sizes(4, 4, 4), before=schedule, backend="aot_eager")

    assert not seen.facts.recompiles
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.025)


def test_state_that_an_optimizer_makes_in_its_first_step() -> None:
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([weight], lr=torch.tensor(0.1))

    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    assert not check(step, *sizes(4, 4, 4)).facts.recompiles


def test_recompile_limit_refuses_one() -> None:
    with torch._dynamo.config.patch(recompile_limit=2):
        seen = check(plain, *sizes(4, 5, 6, 7, 8), dynamic=False, max_recompiles=9)

    assert [(r.call, r.refused) for r in seen.facts.recompiles] == [(1, False), (2, True)]
    assert seen.facts.graphs == 2
    assert seen.facts.limit_hit
    assert seen.verdict.outcome == "failed"


def test_recompile_limit_with_a_full_graph_is_an_error() -> None:
    with torch._dynamo.config.patch(recompile_limit=2):
        seen = check(plain, *sizes(4, 5, 6), dynamic=False, fullgraph=True)

    assert [(r.call, r.refused) for r in seen.facts.recompiles] == [(1, False), (2, True)]
    assert seen.facts.limit_hit
    assert "FailOnRecompileLimitHit" in seen.told


def test_closures_guarded_one_by_one_recompile_nothing() -> None:
    for factor in (2, 3):
        seen = check(factory(factor), *sizes(4, 4))
        assert (seen.facts.graphs, seen.facts.recompiles) == (1, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    (
        # As torch 2.9 to 2.12 word it, with the scope of the name.
        ("tensor 'L['x']' size mismatch at index 1. expected 3, actual 4",
         ("x.size(1)", "3", "4", "size")),
        ("G['SCALE'] == 2", ("SCALE", "2", "", "value")),
        ("L['n'] is None", ("n", "None", "", "presence")),
        ("n != 0  # return n  # m.py:3 in f", ("n", "!= 0", "", "value")),
        ("name == 'a # b'  # return 1", ("name", "'a # b'", "", "value")),
        ("not hasattr(o, 'z')", ("", "", "", "other")),
        ("a guard of tomorrow", ("", "", "", "other")),
    ),
)  # fmt: skip
def test_wording_of_a_guard(text: str, expected: Expected) -> None:
    read = read_guard(text)
    assert (read.subject, read.before, read.after, read.kind) == expected


def test_what_is_new_is_told_not_a_state_met_before() -> None:
    """The newest code was made without gradients, the call after it is in grad mode again."""
    x = torch.ones(4)
    modes = [contextlib.nullcontext, torch.no_grad, contextlib.nullcontext]
    seen = check(plain, (x,), (x,), (x.double(),), around=lambda call: modes[call]())

    assert [recompile.kind for recompile in seen.facts.recompiles] == ["grad_mode", "dtype"]
