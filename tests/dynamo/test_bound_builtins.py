"""Methods of Python's own containers, as ``log.append``, write to what they are bound to."""

from __future__ import annotations

import array
import functools
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
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


def owners() -> dict[str, tuple[Callable[..., Any], Callable[[], object]]]:
    """Methods of objects that are not made of Python code, and what they leave there."""
    filled, generator, items = np.zeros(3), torch.Generator(), array.array("i")
    return {
        "numpy array": (filled.fill, filled.tolist),
        "generator": (generator.manual_seed, generator.initial_seed),
        "array": (items.append, items.tolist),
    }


@pytest.mark.parametrize("kind", ("numpy array", "generator", "array"))
@pytest.mark.parametrize("wrong", (False, True))
def test_other_objects_whose_methods_write(kind: str, *, wrong: bool) -> None:
    method, left = owners()[kind]
    seen = check(calls, (torch.ones(3), method, wrong), locates=False)
    assert seen.verdict.outcome == ("failed" if wrong else "passed"), seen.told
    once, read = owners()[kind]
    once(1)
    assert left() == read()


def test_what_cannot_be_copied_is_told_and_what_is_used_up_refused(tmp_path: Path) -> None:
    seen = check(calls, (torch.ones(3), queue.SimpleQueue[int]().put, False))
    assert "is shared, not copied" in str(seen.verdict.observation.parity)
    (tmp_path / "lines").write_text("a\n" * 9, encoding="utf-8")
    with (tmp_path / "lines").open(encoding="utf-8") as lines:
        told = check(lambda x, read: (x * 2, read()), (torch.ones(3), lines.readline)).told
        assert "is used up by reading and can't be copied" in told
        assert lines.readline() == "a\n"


@pytest.mark.parametrize("method", (sys.stdout.write, threading.Lock().locked, np.random.rand))
def test_methods_that_leave_nothing_to_compare_are_left_alone(method: Callable[..., Any]) -> None:
    given = ("",) if method == sys.stdout.write else ()
    seen = check(lambda x, call: (call(*given), x * 2)[1], (torch.ones(3), method))
    assert seen.verdict.outcome == "passed", seen.told
    assert "shared" not in str(seen.verdict.observation.parity)
