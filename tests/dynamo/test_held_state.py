"""State that functions, class attributes and arguments hold: it is put back and compared."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.compiler import is_compiling

from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.observation import NotObserved
from pytest_compileguard.options import Options
from pytest_compileguard.report.failure import failure_text
from pytest_compileguard.verdict import judge
from tests.dynamo.checked import BY_EAGER, check
from tests.dynamo.torch_versions import BEFORE_2_11, TRACES_CLASS_METHODS

pytestmark = pytest.mark.usefixtures("compiler_loaded")

X = torch.ones(3)
Target = Callable[..., Any]


def more() -> int:
    """Return 1; 2 where the fault is planted."""
    return 2 if is_compiling() else 1


def in_a_closure() -> tuple[Target, ...]:
    hits, held = np.zeros(3), bytearray(3)

    def target(x: torch.Tensor) -> torch.Tensor:
        hits[0] += more()
        return x * 2

    def other(x: torch.Tensor) -> torch.Tensor:
        held[0] = more()
        return x * 2

    return target, other


RNG = np.random.default_rng(0)


def by_default(x: torch.Tensor, rng: np.random.Generator = RNG) -> Any:
    for _ in range(more()):
        rng.random()
    return x * 2


def of_array(held: Any, x: torch.Tensor) -> torch.Tensor:
    held[0] = more()
    return x * 2


def recorder() -> Callable[[], None]:
    log: list[int] = []
    return lambda: log.append(more())


def with_callback(x: torch.Tensor, callback: Callable[[], object]) -> torch.Tensor:
    callback()
    return x * 2


def with_callbacks(x: torch.Tensor, callbacks: list[Callable[[], object]]) -> torch.Tensor:
    for callback in callbacks:
        callback()
    return x * 2


def passes_on(callback: Callable[[], object]) -> Callable[[], object]:
    return lambda: callback()  # noqa: PLW0108  # one within another


class Least:
    """Keeps what was used last at the end."""

    def __init__(self) -> None:
        self.cache = {"a": 1, "b": 2}

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if is_compiling():
            self.cache["a"] = self.cache.pop("a")
        return x * 2


PLANTED: dict[str, tuple[Target, tuple[Any, ...]]] = {
    "array in a closure": (in_a_closure()[0], (X,)),
    "bytes in a closure": (in_a_closure()[1], (X,)),
    "generator by default": (by_default, (X,)),
    "array in a partial": (functools.partial(of_array, np.zeros(3)), (X,)),
    "bytes in a partial": (functools.partial(of_array, bytearray(3)), (X,)),
    "callback": (with_callback, (X, recorder())),
    "callbacks": (with_callbacks, (X, [recorder()])),
    "callback in a callback": (with_callback, (X, passes_on(recorder()))),
    "partial": (with_callback, (X, functools.partial(lambda log: log.append(more()), []))),
    "order": (Least(), (X,)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_compiled_code_leaves_wrongly_there_is_found(name: str) -> None:
    target, arguments = PLANTED[name]

    assert "parity" in check(target, arguments, locates=False).told


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def moves(held: dict[str, int], times: int) -> None:
    if times > 1:
        held["one"] = held.pop("one")


def orders(x: torch.Tensor, held: dict[str, dict[str, int]]) -> torch.Tensor:
    y = x * 2
    moves(held["in"], more())
    return y + 1


def test_a_dictionary_whose_order_differs_is_named() -> None:
    told = check(orders, (X, {"in": {"one": 1, "other": 2}}), locates=False).told

    assert "held['in']: another order of its parts: compiled has held['in']['other']" in told


def counter(log: list[int]) -> Callable[[], None]:
    return lambda: log.append(1)


LOG: list[int] = []


class Registry:
    hooks: ClassVar[dict[str, Callable[[], None]]] = {"a": counter(LOG)}
    wrong: ClassVar[list[Callable[[], None]]] = [recorder()]
    seen: ClassVar[list[int]] = []

    @classmethod
    def add(cls) -> None:
        cls.seen.append(1)

    @classmethod
    def add_wrongly(cls) -> None:
        cls.seen.append(more())


class Calls(nn.Module):
    def __init__(self, hook: Callable[[], None]) -> None:
        super().__init__()
        self.hook = hook

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hook()
        return x * 2


def by_registry(x: torch.Tensor) -> torch.Tensor:
    for hook in Registry.hooks.values():
        hook()
    return x * 2


def by_wrong_registry(x: torch.Tensor) -> torch.Tensor:
    for hook in Registry.wrong:
        hook()
    return x * 2


def test_functions_in_a_class_attribute_leave_what_one_call_leaves() -> None:
    LOG.clear()

    assert check(by_registry, *[(X,)] * 2).verdict.outcome == "passed"
    assert LOG == [1, 1]
    assert "parity" in check(by_wrong_registry, (X,), locates=False).told


@pytest.mark.skipif(not TRACES_CLASS_METHODS, reason="torch gives the frame up")
def test_a_class_method_that_a_module_holds_leaves_what_one_call_leaves() -> None:
    Registry.seen.clear()

    checked = check(Calls(Registry.add), *[(X,)] * 2)

    assert checked.verdict.outcome == "passed", checked.told
    assert Registry.seen == [1, 1]
    assert "Registry.seen" in check(Calls(Registry.add_wrongly), (X,), locates=False).told


WEIGHT = nn.Parameter(torch.ones(3))
SCHEDULER = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([WEIGHT], lr=1.0), 1)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def schedule(steps: int) -> None:
    for _ in range(steps):
        SCHEDULER.step()


class Scheduled(nn.Module):
    def __init__(self, *, wrong: bool) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        schedule(more() if self.wrong else 1)
        return y + 1


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_a_scheduler_in_a_global_steps_once_a_call() -> None:
    before = SCHEDULER.last_epoch

    assert check(Scheduled(wrong=False), *[(X,)] * 2).verdict.outcome == "passed"
    assert SCHEDULER.last_epoch == before + 2
    assert SCHEDULER.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 ** (before + 2))
    assert "SCHEDULER" in check(Scheduled(wrong=True), (X,), locates=False).told


def raises_later(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    torch._dynamo.graph_break()
    raise ValueError(str(y))


def test_calls_that_all_raise_show_nothing_of_compiled_code() -> None:
    guard = CompileGuard(nodeid="t.py::t", spec=BY_EAGER, options=Options(no_timing=True))
    guarded = guard(raises_later)
    try:
        with pytest.raises(ValueError, match="tensor"):
            guarded(X)
        ((made, observation),) = guard.finish()
    finally:
        guard.close()
    verdict = judge(made.plan, observation, None, NotObserved(reason="none"))
    told = failure_text([verdict], rootpath=None)

    assert "each call raised ValueError on both sides" in told
    assert "add a call that returns" in told


class Keeps(nn.Module):
    """Keeps what torch marks, enters or rebuilds: no fault of compiled code."""

    def __init__(self) -> None:
        super().__init__()
        self.cast = torch.autocast("cpu", enabled=False)
        self.thread = threading.Thread(target=print)

    def forward(self, x: torch.Tensor) -> Any:
        self.context = torch.no_grad()
        self.getter = operator.itemgetter(0)
        self.iterator = iter([1, 2])
        self.pairs = zip([1], [2], strict=True)
        self.limits = torch.finfo(torch.float32)
        with self.cast:
            y = x * 2
        self.greatest = torch.max(y[None], 1)
        return y


CURRENT: dict[str, object] = {}


class Current(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        CURRENT["module"] = self
        return x * 2


KEPT = pytest.param(
    Keeps(), id="kept", marks=pytest.mark.skipif(BEFORE_2_11, reason="torch can't compile it")
)


@pytest.mark.parametrize("target", (KEPT, pytest.param(Current(), id="marked")))
def test_what_torch_marks_enters_or_rebuilds_is_no_fault(target: nn.Module) -> None:
    checked = check(target, *[(torch.rand(3),)] * 3)

    assert checked.verdict.outcome == "passed", checked.told
