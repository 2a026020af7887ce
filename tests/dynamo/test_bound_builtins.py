"""Methods of Python's own containers, as ``log.append``, write to what they are bound to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

LOG: list[int] = []
NOTE = LOG.append


def count(*, wrong: bool) -> int:
    return 2 if wrong and torch.compiler.is_compiling() else 1


def calls(x: Tensor, note: Callable[[int], None], wrong: bool) -> Tensor:  # noqa: FBT001
    note(count(wrong=wrong))
    return x * 2


def calls_all(x: Tensor, notes: Iterable[Callable[[int], None]], wrong: bool) -> Tensor:  # noqa: FBT001
    for note in notes:
        note(count(wrong=wrong))
    return x * 2


def calls_global(x: Tensor, wrong: bool) -> Tensor:  # noqa: FBT001
    NOTE(count(wrong=wrong))
    return x * 2


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.note = self.seen.append

    def forward(self, x: Tensor, wrong: bool) -> Tensor:  # noqa: FBT001
        self.note(count(wrong=wrong))
        return x * len(self.seen)


class Noting(nn.Module):
    def forward(self, x: Tensor, wrong: bool) -> Tensor:  # noqa: FBT001
        NOTE(count(wrong=wrong))
        return x * 2


def held(kind: str) -> tuple[list[int], Callable[..., Any], tuple[Any, ...]]:
    """The list that is written to, the target, and what it is called with beside a tensor."""
    log, module = list[int](), Encoder()
    note = log.append
    LOG.clear()
    made: dict[str, tuple[list[int], Callable[..., Any], tuple[Any, ...]]] = {
        "argument": (log, calls, (note,)),
        "in a list": (log, lambda x, notes, wrong: calls(x, notes[0], wrong), ([note],)),
        "in a dictionary": (log, lambda x, n, wrong: calls(x, n["a"], wrong), ({"a": note},)),
        "partial": (
            *(log, lambda x, made, wrong: calls(x, made.func, wrong), (functools.partial(note),)),
        ),
        "in a frozen set": (log, calls_all, (frozenset([note]),)),
        "in a set": (log, calls_all, ({functools.partial(note)},)),
        "closure": (log, lambda x, wrong: calls(x, note, wrong), ()),
        "attribute": (module.seen, module, ()),
        "global": (LOG, calls_global, ()),
        "global of a method": (LOG, Noting(), ()),
    }
    return made[kind]


KINDS = (
    *("argument", "in a list", "in a dictionary", "partial", "in a frozen set", "in a set"),
    *("closure", "attribute", "global", "global of a method"),
)


@pytest.mark.parametrize("kind", ("argument", "closure", "attribute", "global of a method"))
def test_list_whose_method_is_called_holds_what_one_call_leaves(kind: str) -> None:
    log, target, beside = held(kind)
    seen = check(target, *[(torch.ones(3), *beside, False)] * 2)
    assert seen.verdict.outcome == "passed", seen.told
    assert log == [1, 1]
    # Dynamo compiles for the length of the list, and not for our copy of the method.
    assert all("obj_id" not in recompile.guard for recompile in seen.facts.recompiles)


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_write_through_a_method_of_a_list_is_found(kind: str) -> None:
    log, target, beside = held(kind)
    seen = check(target, (torch.ones(3), *beside, True), locates=False)
    assert seen.verdict.outcome == "failed"
    assert "compiled 2, eager 1" in seen.told
    assert log == [1]
