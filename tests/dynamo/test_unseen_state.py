"""What a call changes outside of its result is compared too, wherever it is kept."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.dynamo.checked import Checked, check
from tests.dynamo.torch_versions import MISCOMPILED

pytestmark = pytest.mark.usefixtures("compiler_loaded")

CACHE: dict[str, Any] = {}
SCALE = nn.Parameter(torch.ones(3))
TABLE = torch.arange(3.0)


def wrong() -> int:
    """Something else where it is compiled."""
    return int(torch.compiler.is_compiling())


class Slotted:
    __slots__ = ("__hidden", "kept", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.__hidden = 0

    def step(self, x: torch.Tensor, off: int) -> torch.Tensor:
        self.steps += 1
        self.__hidden = off
        self.kept = x.sum() + off
        return x + 1


class SlottedModule(nn.Module):
    __slots__ = ("steps",)

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, x: torch.Tensor, off: int) -> torch.Tensor:
        self.steps += 1 + off
        return x.sin()


class Attribute(nn.Module):
    """Runs a body given with it, so that each case is one line."""

    def __init__(self, body: Callable[..., Any], **state: Any) -> None:
        super().__init__()
        self.body = body
        for name, value in state.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(self, x)


class Counting(nn.Module):
    calls = 0
    seen: list[int] = []  # noqa: RUF012  # what is under test

    def forward(self, x: torch.Tensor, off: int) -> torch.Tensor:
        type(self).calls += 1 + off
        self.seen.append(off)
        return x * 2


class Caching(nn.Module):
    def forward(self, x: torch.Tensor, off: int) -> torch.Tensor:
        if "mask" not in CACHE:
            CACHE["mask"] = torch.ones(3) + off
        return x * 2


class Scaling(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * SCALE


@dataclasses.dataclass
class Pair:
    one: torch.Tensor
    two: Any = None


def keeps(value: Callable[[torch.Tensor, int], Any]) -> Callable[..., Any]:
    """A body that keeps what is made of its argument."""

    def body(module: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        module.kept = value(y, wrong())
        return y

    return body


def aliases(*, cut: bool) -> Callable[..., Any]:
    def body(module: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        module.kept = y.clone() if cut and wrong() else y
        module.other = x[1:].clone() if not cut and wrong() else x[1:]
        return y

    return body


def appends(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.queue.append(1 + wrong())
    return x.sin()


def adds(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.names.add("b" if wrong() else "a")
    return x.sin()


def counts(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.table[0] += 1 + wrong()
    return x.sin()


@pytest.fixture(autouse=True)
def _as_new() -> Iterator[None]:
    yield
    CACHE.clear()
    Counting.calls, Counting.seen = 0, []
    Accumulating.loud = 0


class Accumulating(nn.Module):
    loud = 0

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        scale = 1 + wrong() * self.loud
        # The value is the same, the gradient is not.
        return (x * self.weight * scale).sum() - (x * self.weight).sum().detach() * (scale - 1)


class Step:
    """Differentiates inside of the call, as a training step without its optimizer does."""

    def __init__(self) -> None:
        self.module = Accumulating()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        loss = self.module.loss(x)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


def x(*, grad: bool = False) -> torch.Tensor:
    return torch.arange(1.0, 4.0).requires_grad_(grad)


# Whether it is sound -> target and calls. A wrong one differs in what is kept, nowhere else.
Made = tuple[Callable[..., Any], list[tuple[Any, ...]]]


def off(planted: bool) -> int:  # noqa: FBT001
    return 1 if planted else 0


def slotted(planted: bool) -> Made:  # noqa: FBT001
    owner = Slotted()
    return (lambda v: owner.step(v, wrong() * off(planted))), [(x(),)] * 3


def slotted_argument(planted: bool) -> Made:  # noqa: FBT001
    owner = Slotted()
    return (lambda v, o: o.step(v, wrong() * off(planted))), [(x(), owner)] * 3


def slotted_module(planted: bool) -> Made:  # noqa: FBT001
    module = SlottedModule()
    return (lambda v: module(v, wrong() * off(planted))), [(x(),)] * 3


def class_attribute(planted: bool) -> Made:  # noqa: FBT001
    module = Counting()
    return (lambda v: module(v, wrong() * off(planted))), [(x(),)] * 3


def module_cache(planted: bool) -> Made:  # noqa: FBT001
    module = Caching()
    return (lambda v: module(v, wrong() * off(planted))), [(x(),)] * 3


def helper_cache(planted: bool) -> Made:  # noqa: FBT001
    # torch.compile remembers modules by name.
    name = f"helpers_of_a_test_{off(planted)}"
    helpers = types.ModuleType(name)
    helpers.__file__ = f"/a/{name}.py"
    source = (
        "import torch\nSTORE = {}\n"
        "def cached(x, off):\n"
        "    if 'a' not in STORE:\n        STORE['a'] = x.sum() + off\n"
        "    return x * 2\n"
    )
    exec(compile(source, helpers.__file__, "exec"), vars(helpers))  # noqa: S102
    sys.modules[name] = helpers
    return (lambda v: helpers.cached(v, wrong() * off(planted))), [(x(),)] * 3


def gradients_inside(planted: bool) -> Made:  # noqa: FBT001
    Accumulating.loud = off(planted)
    return Step(), [(x(),)] * 3


def gradient_of_an_input(planted: bool) -> Made:  # noqa: FBT001
    def target(v: torch.Tensor) -> torch.Tensor:
        scale = 1 + wrong() * off(planted)
        loss = (v * scale).sum() - v.sum().detach() * (scale - 1)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    return target, [(x(grad=True),) for _ in range(2)]


def body(sound: Callable[..., Any], planted_body: Callable[..., Any], **state: Any) -> Any:
    def make(planted: bool) -> Made:  # noqa: FBT001
        return Attribute(planted_body if planted else sound, **state), [(x(),)] * 2

    return make


CASES: dict[str, Callable[[bool], Made]] = {
    "slots of an object": slotted,
    "slots of an argument": slotted_argument,
    "slots of a module": slotted_module,
    "class attributes": class_attribute,
    "a cache in globals that a method fills": module_cache,
    "a cache of another file": helper_cache,
    "gradients of a backward inside": gradients_inside,
    "gradient of an input": gradient_of_an_input,
    "a new object": body(keeps(lambda y, _: Pair(y)), keeps(Pair)),
    "a new array": body(
        keeps(lambda y, _: y.detach().numpy() * 1), keeps(lambda y, w: y.detach().numpy() + w)
    ),
    "an attribute that shares memory with the output": body(
        keeps(lambda y, _: y), aliases(cut=True)
    ),
    "an attribute that shares memory with an argument": body(
        keeps(lambda y, _: y), aliases(cut=False)
    ),
}
STATEFUL: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "a deque": (appends, {"queue": collections.deque([0])}),
    "a set": (adds, {"names": {"z"}}),
    "an array": (counts, {"table": np.zeros(2)}),
}


def told(made: Made) -> Checked:
    target, calls = made
    return check(target, *calls, backend="eager")


@pytest.mark.parametrize("name", CASES)
def test_sound_code_passes(name: str) -> None:
    seen = told(CASES[name](False))
    expected = "failed" if name in MISCOMPILED else "passed"
    assert seen.verdict.outcome == expected, seen.told or seen.verdict


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_wrongly_is_found(name: str) -> None:
    seen = told(CASES[name](True))
    assert seen.verdict.outcome == "failed", seen.verdict
    assert "compiled differs from eager" in seen.told, seen.told


@pytest.mark.parametrize("name", STATEFUL)
def test_state_in_containers_of_all_kinds_is_compared(name: str) -> None:
    run, state = STATEFUL[name]
    seen = told((Attribute(run, **state), [(x(),)]))
    assert seen.verdict.outcome == "failed", seen.verdict


def test_a_parameter_in_a_global_that_compiled_code_writes_to_is_seen() -> None:
    def overwrites(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            found = graph(*args)
            SCALE.data.mul_(2)
            return found

        return run

    try:
        seen = check(Scaling(), (x(),), backend=overwrites)
    finally:
        SCALE.data.fill_(1)
    assert "the compiled code writes to tests.dynamo.test_unseen_state.SCALE" in seen.told


def test_class_attributes_and_caches_are_left_as_one_call_leaves_them() -> None:
    for module in (Counting(), Caching()):
        told((module, [(x(), 0)] * 3))
    assert (Counting.calls, Counting.seen) == (3, [0, 0, 0])
    assert list(CACHE) == ["mask"]


def counter() -> Any:
    class Counter:
        last = 0

    return Counter


def test_classes_of_one_name_are_compared_each_by_itself() -> None:
    first, second, third = counter(), counter(), counter()

    def target(x: torch.Tensor) -> torch.Tensor:
        first.last = wrong()
        second.last = 1
        third.last = 2
        return x + 1

    told = check(target, (torch.ones(3),)).told
    assert "Counter.last after the call: compiled 1, eager 0" in told
    assert told.count("Counter.last after") == 1


@pytest.mark.parametrize("place", ("attribute", "container", "default", "argument"))
def test_a_class_is_compared_wherever_it_is_held(place: str) -> None:
    kind = counter()

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kind = kind
            self.kinds = {"one": [kind]}

        def forward(self, x: torch.Tensor, given: Any = None, default: Any = kind) -> torch.Tensor:
            held = {
                "attribute": self.kind,
                "container": self.kinds["one"][0],
                "default": default,
                "argument": given,
            }
            held[place].last = wrong()
            return x + 1

    told = check(Holder(), (torch.ones(3), kind)).told
    assert "Counter.last after the call: compiled 1, eager 0" in told


def test_gradients_are_left_as_one_call_leaves_them() -> None:
    step = Step()
    told((step, [(x(),)] * 3))
    assert step.module.weight.grad is not None
    assert step.module.weight.grad.tolist() == [3, 6, 9]


def test_a_patched_compiler_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda target, **_: real(target, backend="eager"))
    seen = check(torch.sin, (x(),), backend="aot_eager")
    assert seen.verdict.outcome == "failed"
    assert "torch.compile is patched" in seen.told


@torch.library.custom_op("compileguard_tests::divide", mutates_args=())
def divide(v: torch.Tensor, by: int) -> torch.Tensor:
    return v / (1 // by)


@divide.register_fake
def _fake(v: torch.Tensor, by: int) -> torch.Tensor:
    if by == 0:
        raise ZeroDivisionError("by zero")
    if by == 1:
        raise KeyError("another kind")
    return v * 1


def raising(by: int) -> Callable[..., Any]:
    def target(v: torch.Tensor, loud: torch.Tensor) -> torch.Tensor:
        if by == 1 and not torch.compiler.is_compiling():
            raise ZeroDivisionError
        return divide(v, by) + loud  # type: ignore[no-any-return]

    return target


@pytest.mark.parametrize(("by", "expected"), ((0, "passed"), (1, "failed")))
def test_an_error_that_torch_wraps_is_known_by_its_own_type(by: int, expected: str) -> None:
    target = raising(by)

    def counted(v: torch.Tensor) -> torch.Tensor:
        return target(v, v) if v.shape[0] == 3 else v * 2

    seen = check(counted, (torch.ones(2),), (x(),), around=_expecting)
    assert seen.verdict.outcome == expected, seen.told


def _expecting(index: int) -> Any:
    return pytest.raises(ZeroDivisionError) if index else contextlib.nullcontext()


class Rebinding(nn.Module):
    """Binds what it holds to something new, though not while it is compiled."""

    held: torch.Tensor

    def __init__(self, place: str) -> None:
        super().__init__()
        self.attribute = torch.ones(3)
        self.register_buffer("buffer", torch.ones(3))
        self.items, self.named = [torch.ones(3)], {"a": torch.ones(3)}
        self.place = place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        new = x.sum() + torch.zeros(3)
        if torch.compiler.is_compiling():
            return x * 2
        if self.place == "items":
            self.items[0] = self.items[0] + new
        elif self.place == "named":
            self.named["a"] = self.named["a"] + new
        else:
            setattr(self, self.place, getattr(self, self.place) + new)
        return x * 2


@pytest.mark.parametrize("place", ("attribute", "buffer", "items", "named"))
def test_a_name_that_compiled_code_leaves_as_it_was_is_told(place: str) -> None:
    """What the name held before agrees with float64, but it is not what the name holds now."""
    checked = check(Rebinding(place), (torch.randn(4),), backend="aot_eager")
    assert checked.verdict.outcome == "failed"


def test_a_variable_that_compiled_code_leaves_as_it_was_is_told() -> None:
    held = torch.ones(3)

    def rebinds(x: torch.Tensor) -> torch.Tensor:
        nonlocal held
        if not torch.compiler.is_compiling():
            held = held + x.sum()
        return x * 2

    assert check(rebinds, (torch.randn(4),), backend="aot_eager").verdict.outcome == "failed"


def test_an_argument_is_not_taken_for_a_variable_of_its_name() -> None:
    x = torch.ones(4)

    def outer() -> torch.Tensor:
        return x

    def target(x: torch.Tensor) -> torch.Tensor:
        own = outer()
        with torch.no_grad():
            own.copy_(x) if torch.compiler.is_compiling() else own.add_(x)
        return x * 2

    assert check(target, (torch.zeros(4) + 3,), backend="aot_eager").verdict.outcome == "failed"
