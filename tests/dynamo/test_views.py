"""Arguments that are views, and are written to: the copies do as the arguments themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pytest_compileguard.spec import CompileCheck
from tests.dynamo.checked import check
from tests.dynamo.random_programs import Program
from tests.dynamo.test_parity_random import outcome
from tests.dynamo.torch_alone import deviation

pytestmark = [
    pytest.mark.usefixtures("compiler_loaded"),
    # What torch says of writes to expanded tensors.
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

LEAF = "torch.randn(3, 3, requires_grad=True)"
ORIGINS = {"leaf": LEAF, "non-leaf": f"({LEAF} * 1)"}
VIEWS = {
    "expanded": ".expand(2, 3, 3)",
    "transposed": ".t()",
    "sliced": "[1:]",
    "overlapping": ".as_strided((2, 2), (1, 1))",
}
WRITES = (
    "x0.zero_()",
    "x0.add_(1)",
    "x0.copy_(torch.ones(x0.shape))",
    "x0.index_put_((torch.tensor([0]),), torch.tensor(2.0))",
    "x0.masked_fill_(x0 > 0, 2)",
)
GRAD, NO_GRAD = "contextlib.nullcontext()", "torch.no_grad()"


def programs(view: str, origin: str) -> Iterator[Program]:
    """All writes where places are written to more than once; elsewhere some in turn."""
    turn = list(VIEWS).index(view)
    step = 1 if origin == "non-leaf" and view in ("expanded", "overlapping") else 3
    modes = [(write, GRAD) for write in WRITES[turn % step :: step]]
    modes += [(write, NO_GRAD) for write in WRITES[(turn + 1) % 4 :: 4]]
    for write, mode in modes:
        yield Program(
            inputs=(ORIGINS[origin] + VIEWS[view],),
            statements=(write, "v0 = x0 * 2"),
            result="v0",
            mode=mode,
            sizes=(3,),
        )


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("view", VIEWS)
def test_writes_are_refused_just_where_torch_alone_differs(view: str, origin: str) -> None:
    for program in programs(view, origin):
        refused, alone = outcome(program).refused, deviation(program)
        assert (refused is None) == (alone is None), f"{program!r}\n{refused}\n{alone}"


def test_view_that_eager_may_not_detach() -> None:
    """A view can't be detached in place; a copy that is no view could."""

    def detached(x: torch.Tensor) -> torch.Tensor:
        return x.detach_() * 2

    view = torch.randn(3, 3, requires_grad=True).mul(1)[1:]
    guarded: list[Exception] = []

    def call(x: torch.Tensor) -> torch.Tensor | None:
        try:
            return detached(x)
        except RuntimeError as error:
            guarded.append(error)
            return None

    checked = check(call, (view,))
    assert guarded
    assert "isolated" not in checked.told


def test_marks_of_an_argument_that_is_no_leaf_stay() -> None:
    """Its first dimension may be any, so another size does not compile again."""
    calls = []
    for size in (4, 6):
        x = torch.randn(size, 3, requires_grad=True) * 1
        torch._dynamo.mark_dynamic(x, 0)
        calls.append((x,))
    checked = check(lambda x: x.sin(), *calls, max_recompiles=0)
    assert checked.verdict.outcome == "passed", checked.told


def stale(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """A backend whose inputs don't share memory: a write to one does not reach the others."""
    del inputs

    def run(*given: Any) -> Any:
        copies = [t.clone() if isinstance(t, torch.Tensor) else t for t in given]
        result = graph(*copies)
        given[0].copy_(copies[0])
        return result

    return run


def write_first(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    return b * 2


@pytest.mark.parametrize("gradient", (False, True))
def test_float64_reference_shares_memory_as_the_arguments_do(*, gradient: bool) -> None:
    x = torch.randn(4, 3, requires_grad=gradient) * 1
    with torch.no_grad():
        checked = check(write_first, (x, x[1:]), backend=stale)
    assert checked.verdict.outcome == "failed"
    assert "output: greatest difference" in checked.told


def test_float64_reference_reads_real_and_complex_numbers_in_one_memory() -> None:
    x = torch.randn(4, dtype=torch.complex64)
    checked = check(write_first, (torch.view_as_real(x), x), backend=stale)
    assert checked.verdict.outcome == "failed"
    assert "no float64 reference" not in checked.told


def test_float64_reference_of_unlike_numbers_side_by_side_in_one_storage() -> None:
    """As loaders lay out what they read from one file."""
    file = torch.zeros(64, dtype=torch.uint8)
    halves, counts = file[:32].view(torch.float16), file[32:].view(torch.int64)

    def off(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        del inputs
        return lambda *args: [out + 1 for out in graph(*args)]

    checked = check(lambda a, b: a.float().sum() + b.sum(), (halves, counts), backend=off)
    assert checked.verdict.outcome == "failed"
    assert "no float64 reference" not in checked.told


def test_no_float64_reference_for_memory_that_is_read_as_two_kinds_of_numbers() -> None:
    x = torch.randn(4)
    checked = check(write_first, (x, x.view(torch.float16)), backend=stale)
    assert "memory that is read as two kinds of numbers can't be widened" in checked.told


def test_view_whose_history_torch_forbids_to_look_at() -> None:
    def write_to_view(x: torch.Tensor) -> torch.Tensor:
        view = x.view(-1)
        view.add_(1)
        return view

    with torch.no_grad():
        checked = check(write_to_view, (torch.randn(2, 3, requires_grad=True),))
    assert checked.verdict.outcome == "passed", checked.told


class Buffered(torch.nn.Module):
    """Holds a buffer or a view of it, and writes to it or to its argument."""

    b: torch.Tensor

    def __init__(self, holds: str) -> None:
        super().__init__()
        self.whole = torch.arange(6.0).view(2, 3).clone()
        self.register_buffer("b", self.whole if holds == "whole" else self.whole[1:])
        if holds == "view":
            whole, self.whole = self.whole, torch.zeros(1)
            self.given = whole  # only until the calls begin

    def forward(self, x: torch.Tensor, *, argument: bool) -> torch.Tensor:
        if argument:
            x.add_(1)
            return self.b * 2
        self.b.add_(1)
        return x * 2


OF_STATE: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "rows": ("whole", lambda b: b[1:]),
    "a part of a flat view": ("whole", lambda b: b.view(-1)[1:4]),
    "transposed": ("whole", lambda b: b.t()),
    "the buffer": ("whole", lambda b: b),
    "what the buffer is a view of": ("view", lambda b: b),
    "another view": ("view", lambda b: b[:, 1:]),
}


@pytest.mark.parametrize("argument", (False, True))
@pytest.mark.parametrize("name", OF_STATE)
def test_an_argument_that_is_a_view_of_state(name: str, argument: bool) -> None:  # noqa: FBT001
    holds, view = OF_STATE[name]
    module = Buffered(holds)
    whole = module.__dict__.pop("given", module.whole)
    x = view(whole)

    def alone(x: torch.Tensor) -> torch.Tensor:
        return module(x, argument=argument)  # type: ignore[no-any-return]

    spec = CompileCheck(backend="aot_eager")
    seen = check(alone, (x,), (x,), spec=spec)
    assert seen.verdict.outcome == "passed", seen.told
