"""Objects that a target and what surrounds it have in common, and such as are known by identity."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.dynamo import caching
from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")


class Unset:
    __slots__ = ()


class Token:
    pass


UNSET = object()
SLOTLESS = Unset()
TOKEN = Token()
CONF = {"k": 2}
TENSORS = [torch.ones(3)]


class Holder(nn.Module):
    """Runs a body given with it on objects that a global holds too."""

    def __init__(self, body: Callable[..., Any], **state: Any) -> None:
        super().__init__()
        self.body = body
        for name, value in state.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor, *given: Any) -> Any:
        return self.body(self, x, *given)


def maybe(x: torch.Tensor, mask: Any = UNSET) -> Any:
    return x.sin() if mask is UNSET else x.sin() + mask


def maybe_slotless(x: torch.Tensor, mask: Any = SLOTLESS) -> Any:
    return x.sin() if mask is SLOTLESS else x.sin() + mask


def maybe_imported(x: torch.Tensor, mask: Any = caching.NONE) -> Any:
    return x.sin() if mask is caching.NONE else x.sin() + mask


def is_missing(module: Any, x: torch.Tensor) -> Any:
    return x.sin() if module.act is dataclasses.MISSING else module.act(x)


def counts(module: Any, x: torch.Tensor) -> Any:
    module.conf["k"] += 1
    return x * CONF["k"]


def counts_by_argument(_module: Any, x: torch.Tensor, conf: dict[str, int]) -> Any:
    conf["k"] += 1
    return x * CONF["k"]


def counts_in_tensor(module: Any, x: torch.Tensor) -> Any:
    module.tensors[0].add_(1)
    return x * TENSORS[0]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def seen_before(seen: Any) -> int:
    found = int(TOKEN in seen)
    if isinstance(seen, dict):
        seen[TOKEN] = found
    else:
        seen.add(TOKEN)
    return found


def sees(module: Any, x: torch.Tensor) -> Any:
    y = x.sin()
    return y + seen_before(module.seen)


TARGETS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a sentinel as default": (maybe, ()),
    "a sentinel without attributes": (maybe_slotless, ()),
    "a sentinel of another module": (maybe_imported, ()),
    "a sentinel of Python": (Holder(is_missing, act=dataclasses.MISSING), ()),
    "a dictionary": (Holder(counts, conf=CONF), ()),
    "a dictionary as argument": (Holder(counts_by_argument), (CONF,)),
    "a list of tensors": (Holder(counts_in_tensor, tensors=TENSORS), ()),
    "a set that gets a global": (Holder(sees, seen=set()), ()),
    "a dictionary that gets a global": (Holder(sees, seen={}), ()),
    "a weak set that gets a global": (Holder(sees, seen=weakref.WeakSet()), ()),
}


@pytest.mark.parametrize("name", TARGETS)
def test_what_has_two_names_is_one_object_in_copies(name: str) -> None:
    target, given = TARGETS[name]
    CONF["k"] = 2
    seen = check(target, *[(torch.ones(3), *given)] * 3)
    assert seen.verdict.outcome == "passed", seen.told
    assert seen.facts.calls == 3
    if "dictionary" in name and "gets" not in name:
        assert CONF["k"] == 5


def wrong() -> int:
    """Something else where it is compiled."""
    return int(torch.compiler.is_compiling())


def counts_wrongly(module: Any, x: torch.Tensor) -> Any:
    module.conf["k"] += 1 + wrong()
    return x.sin() + 0 * CONF["k"]


def test_what_is_left_in_it_is_compared() -> None:
    CONF["k"] = 2
    told = check(Holder(counts_wrongly, conf=CONF), (torch.ones(3),)).told
    assert "CONF['k'] after the call: compiled 4, eager 3" in told, told


class Registered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        LAYERS.append(self.linear)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * len(LAYERS)  # type: ignore[no-any-return]


LAYERS: list[nn.Module] = []


def test_modules_that_a_global_holds_too_are_copied_as_ever() -> None:
    LAYERS.clear()
    target = Registered()
    seen = check(target, *[(torch.ones(2, 3),)] * 2)
    assert seen.verdict.outcome == "passed", seen.told
    assert target.linear.weight.grad is None


def remembering(step: Callable[[torch.Tensor], Any], *, planted: bool = False) -> Any:
    """Keep what was computed last where the caller may look at it too."""
    state: dict[str, Any] = {"last": None}

    def remembers(x: torch.Tensor) -> Any:
        state["last"] = made = step(x)
        if planted and torch.compiler.is_compiling():
            state["last"] = step(x + 1)
        return made

    remembers.state = state  # type: ignore[attr-defined]
    return remembers


def triples(x: torch.Tensor) -> Any:
    return x * 3


def triples_in_list(x: torch.Tensor) -> Any:
    return [x * 3]


def keeps_in_both(module: Any, x: torch.Tensor, *_: Any) -> Any:
    module.conf["last"] = [x * 3]
    return x * 2 + CONF["k"], module.conf["last"]


@pytest.fixture
def _conf() -> Any:
    yield
    CONF.pop("last", None)


@pytest.mark.usefixtures("_conf")
@pytest.mark.parametrize("calls", (1, 3))
@pytest.mark.parametrize("step", (triples, triples_in_list))
@pytest.mark.parametrize("kind", ("attribute", "global"))
def test_tensors_left_in_what_has_two_names(kind: str, step: Any, calls: int) -> None:
    target: Any = remembering(step) if kind == "attribute" else Holder(keeps_in_both, conf=CONF)
    state: dict[str, Any] = target.state if kind == "attribute" else CONF
    seen = check(target, *[(torch.full((3,), float(n)),) for n in range(calls)])
    assert seen.verdict.outcome == "passed", seen.told
    (last,) = state["last"] if isinstance(state["last"], list) else [state["last"]]
    assert torch.equal(last, torch.full((3,), 3.0 * (calls - 1)))
    if kind == "attribute":
        variables = dict(zip(target.__code__.co_freevars, target.__closure__, strict=True))
        assert variables["state"].cell_contents is target.state is state


@pytest.mark.parametrize("step", (triples, triples_in_list))
def test_other_tensors_left_in_it_are_compared(step: Any) -> None:
    told = check(remembering(step, planted=True), (torch.ones(3),), locates=False).told
    assert "remembers.state['last']" in told
    assert "greatest difference 3" in told, told
