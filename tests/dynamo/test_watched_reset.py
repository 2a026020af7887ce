"""A watched block in which torch is reset: what was compiled before that is told all the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
import torch._dynamo.utils

from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.observation import CompileObservation
from pytest_compileguard.options import Options
from pytest_compileguard.spec import CompileCheck

pytestmark = pytest.mark.usefixtures("compiler_loaded")

X, LONGER = torch.ones(3), torch.ones(4)


def plain(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def other(x: torch.Tensor) -> torch.Tensor:
    return x.cos()


def tries(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() + 1
    try:
        print(end="")  # noqa: T201  # a graph break
    except ValueError:
        y = y.tan()
    return y.cos()


def tries_too(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() + 2
    try:
        print(end="")  # noqa: T201  # a graph break
    except ValueError:
        y = y.tan()
    return y.cos()


def given_up(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = x + 1
        with contextlib.suppress(KeyError):
            print(end="")  # noqa: T201  # a break in a loop and a with
    return x


def compiled(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    made: Callable[..., torch.Tensor] = torch.compile(function, backend="eager", dynamic=False)
    return made


def seen_in(block: Callable[[], object], before: Callable[[], object]) -> CompileObservation:
    torch.compiler.reset()
    before()
    guard = CompileGuard(nodeid="t.py::t", spec=CompileCheck(), options=Options())
    try:
        with guard.watch():
            block()
        ((_, observation),) = guard.finish()
    finally:
        guard.close()
    facts = observation.compile
    assert isinstance(facts, CompileObservation), facts
    assert facts.unreliable == ()
    return facts


def test_the_rest_of_a_function_is_told_that_ran_eager_before_the_reset_and_after_it() -> None:
    def block() -> None:
        compiled(tries)(X)
        torch.compiler.reset()
        compiled(tries_too)(X)

    facts = seen_in(block, lambda: None)
    assert [line.function for line in facts.left] == ["tries", "tries_too"]


def test_torchs_list_may_be_as_long_after_the_reset_as_before_the_block() -> None:
    def resets_first() -> None:
        torch.compiler.reset()
        compiled(tries_too)(X)

    facts = seen_in(resets_first, lambda: compiled(tries)(X))
    assert [line.function for line in facts.left] == ["tries_too"]


def test_code_of_one_compile_id_counts_before_the_reset_and_after_it() -> None:
    def block() -> None:
        first = compiled(plain)
        first(X)
        first(LONGER)
        torch.compiler.reset()
        second = compiled(other)
        second(X)
        second(LONGER)

    facts = seen_in(block, lambda: None)

    assert facts.graph_ops == (2, 2, 1, 1)
    assert facts.graphs_per_call == (4,)
    assert [(r.frame, r.compile_id) for r in facts.recompiles] == [
        ("plain", "0/1"),
        ("other", "0/1"),
    ]
    assert facts.fallbacks == ()


@pytest.mark.parametrize("order", ((given_up, plain), (plain, given_up)))
def test_a_frame_given_up_does_not_hide_a_graph_of_its_compile_id(
    order: tuple[Callable[[torch.Tensor], torch.Tensor], ...],
) -> None:
    def block() -> None:
        for function in order:
            torch.compiler.reset()
            compiled(function)(X)

    facts = seen_in(block, lambda: None)

    assert facts.graphs == 1
    assert [(f.kind, f.frame) for f in facts.fallbacks] == [("frame_skipped", "given_up")]


def test_watching_leaves_nothing_in_torchs_tables() -> None:
    torch.compiler.reset()
    guard = CompileGuard(nodeid="t.py::t", spec=CompileCheck(), options=Options())
    with guard.watch():
        torch.compiler.reset()
        compiled(plain)(X)

    assert not [k for k in torch._dynamo.utils.guard_failures if not hasattr(k, "co_name")]
    guard.close()


@pytest.mark.parametrize("within", (True, False))
def test_target_that_a_watched_block_compiled_is_compiled_anew_where_it_is_guarded(
    within: bool,  # noqa: FBT001
) -> None:
    torch.compiler.reset()
    guard = CompileGuard(
        nodeid="t.py::t", spec=CompileCheck(backend="eager"), options=Options(no_timing=True)
    )
    guarded = guard(plain)
    try:
        with guard.watch():
            torch.compile(plain, backend="eager")(X)  # as the guard does, so that it fits
            if within:
                guarded(X)
        guarded(X)
        seen = [observation.compile for _, observation in guard.finish()]
    finally:
        guard.close()
    facts = [one for one in seen if isinstance(one, CompileObservation)]
    assert [one.graphs for one in facts] == [1, 2 if within else 1]
    assert [one.fallbacks for one in facts] == [(), ()]
