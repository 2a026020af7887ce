"""What a target binds anew in each call ends with the next one, as it does without a check."""

from __future__ import annotations

import collections
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.compiler import is_compiling

from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.options import Options
from pytest_compileguard.spec import CompileCheck
from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

WRONG: list[None] = []


class Result:
    """An object of the target's."""

    def __init__(self, parts: Any) -> None:
        self.parts = parts


class Slots:
    """One that nothing can refer to weakly."""

    __slots__ = ("part",)

    def __init__(self, part: Any) -> None:
        self.part = part


class Keeping(nn.Module):
    """Keeps what it computed last, in some form."""

    def __init__(self, form: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.form = form
        self.last: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factor = 2.0 if is_compiling() and WRONG else 1.0
        self.last = self.form(self.weight.detach() * x * factor)
        return x + 1


class Accumulating(Keeping):
    """Keeps its gradient, which is another tensor in each call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.grad = None
        (self.weight * x * (2.0 if is_compiling() and WRONG else 1.0)).sum().backward()  # type: ignore[no-untyped-call]
        self.last = self.form(self.weight.grad)  # type: ignore[arg-type]
        return x + 1


FORMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda t: t,
    "view": lambda t: t[:2],
    "view before its base": lambda t: [t[:2], t],
    "list": lambda t: [t],
    "lists": lambda t: [[t], [[t]]],
    "dict": lambda t: {"a": {"b": t}},
    "tuple": lambda t: (t, [t]),
    "deque": lambda t: collections.deque([t]),
    "set": lambda t: {Result(t)},  # objects in it are compared by nothing
    "object": lambda t: Result([Result({"a": t})]),
    "slots": lambda t: Slots([Slots(t)]),
    "parameter": lambda t: [t.clone().requires_grad_()],
    "array": lambda t: t.numpy(),
}


def living() -> int:
    gc.collect()
    return sum(issubclass(type(found), torch.Tensor) for found in gc.get_objects())


def counted(target: Callable[..., Any], *arguments: Any) -> tuple[int, int]:
    """Tensors that live after five calls, and after twenty."""
    counts, spec = [], CompileCheck(backend="eager")
    guard = CompileGuard(nodeid="t.py::t", spec=spec, options=Options(no_timing=True))
    try:
        guarded = guard(target)
        for number in range(1, 21):
            guarded(*arguments, torch.full((3,), float(number)))
            if number in (5, 20):
                counts.append(living())
        guard.finish()
    finally:
        guard.close()
    return counts[0], counts[1]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("kind", (Keeping, Accumulating))
def test_what_a_module_binds_anew_is_not_kept(kind: type[Keeping], form: Any) -> None:
    after_five, after_twenty = counted(kind(form))
    assert after_twenty <= after_five


def test_what_a_passed_object_is_given_anew_is_not_kept() -> None:
    def target(result: Result, x: torch.Tensor) -> torch.Tensor:
        result.parts = [x * 2]
        return x + 1

    after_five, after_twenty = counted(target, Result(None))
    assert after_twenty <= after_five


@pytest.mark.parametrize("form", [form for name, form in FORMS.items() if name != "set"])
@pytest.mark.parametrize("wrong", (False, True), ids=("sound", "wrong"))
def test_it_is_still_compared(form: Any, wrong: bool) -> None:  # noqa: FBT001  # a parameter
    WRONG[:] = [None] * wrong
    try:
        calls = [(torch.full((3,), float(n)),) for n in range(1, 6)]
        seen = check(Keeping(form), *calls, locates=False)
    finally:
        WRONG.clear()
    assert "can't be isolated" not in seen.told
    assert ("\n  parity" in seen.told) == wrong, seen.told


def test_what_takes_turns_keeps_its_copies() -> None:
    turns = [[torch.zeros(3)], [torch.ones(3)]]

    class Alternating(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.state = turns[0]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.state[0].add_(x)
            return self.state[0] * 2

    module = Alternating()

    def swap(number: int) -> None:
        module.state = turns[number % 2]

    seen = check(module, *[(torch.ones(3),)] * 6, before=swap, max_recompiles=0)
    assert seen.verdict.outcome == "passed", seen.told
    assert [state[0].tolist() for state in turns] == [[3.0] * 3, [4.0] * 3]
