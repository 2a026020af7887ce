"""Objects whose own code raises or leads on for ever when it is asked, and very long chains."""

from __future__ import annotations

import functools
import itertools
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Target = Callable[..., Any]
HERE = Path(__file__).parent


def passes(target: Target) -> None:
    seen = check(target, (torch.ones(3),), (torch.full((3,), 2.0),), locates=False)
    assert seen.verdict.outcome == "passed", seen.told


class AskedError(RuntimeError):
    """Raised by whatever is asked."""


class Raising:
    def __getattr__(self, name: str) -> Any:
        raise AskedError(name)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class RaisingKind(type):
    def __getattr__(cls, name: str) -> Any:
        raise AskedError(name)


class Registry(metaclass=RaisingKind):
    scale = 2


class Strict(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__wrapped__", "__module__"):
            raise AskedError(name)
        return super().__getattribute__(name)


class Sealed(metaclass=Strict):
    pass


class Proxy:
    """Stands for another object, as lazy ones do; that has no dictionary."""

    __slots__ = ("__weakref__", "_real")

    def __init__(self, real: Any) -> None:
        object.__setattr__(self, "_real", real)

    def __getattr__(self, name: str) -> Any:
        if name == "__dict__":
            raise AttributeError(name)
        return getattr(object.__getattribute__(self, "_real"), name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(object.__getattribute__(self, "_real"))

    def __call__(self, x: torch.Tensor) -> Any:
        return self._real(x)


class Unbound:
    """A proxy that is bound to nothing yet."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise AskedError

    def __getattr__(self, name: str) -> Any:
        raise AskedError(name)


class LazyModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        raise AskedError(name)


class SealedModule(types.ModuleType):
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise AskedError


def module(kind: type[types.ModuleType] = types.ModuleType, file: Any = None) -> types.ModuleType:
    made = kind("made")
    made.__file__ = str(HERE / "made.py") if file is None else file
    made.scale = 2  # type: ignore[attr-defined]
    return made


def circle() -> Target:
    def helper(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @functools.wraps(helper)
    def wrapper(x: torch.Tensor) -> torch.Tensor:
        return helper(x)

    helper.__wrapped__ = wrapper  # type: ignore[attr-defined]
    return wrapper


def to_itself() -> Target:
    def target(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    target.__wrapped__ = target  # type: ignore[attr-defined]
    return target


class Listed:
    modules = ("encoder", "decoder")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


TARGETS: dict[str, Callable[[], Target]] = {
    "wrapped in a circle": circle,
    "wraps itself": to_itself,
    "names its parts modules": Listed,
}


@pytest.mark.parametrize("make", TARGETS.values(), ids=TARGETS)
def test_any_object_can_be_a_target(make: Callable[[], Target]) -> None:
    passes(make())


def test_a_proxy_of_a_function_is_compared() -> None:
    """Torch 2.14 runs it eager, since an exception leaves a part of it, and that is told."""
    told = check(Proxy(circle()), (torch.ones(3),), locates=False)
    assert "isolated" not in told.told
    parity = next(f for f in told.verdict.findings if f.metric == "parity")
    assert parity.status == "passed", told.told


def test_what_torch_refuses_is_told() -> None:
    told = check(Raising(), (torch.ones(3),), locates=False).told
    assert "call 1: AskedError: _" in told  # a name that torch asks for first


HELD: dict[str, Callable[[], Any]] = {
    "circle": circle,
    "proxy of a circle": lambda: Proxy(circle()),
    "proxy of a module": lambda: Proxy(module()),
    "proxy bound to nothing": Unbound,
    "raising object": Raising,
    "class of a raising kind": lambda: Registry,
    "class that tells nothing": lambda: Sealed,
    "object that tells nothing": Sealed,
    "makes all anew": lambda: mock.call,
    "lazy module": lambda: module(LazyModule),
    "module without names": lambda: module(SealedModule),
    "module of a path": lambda: module(file=HERE / "made.py"),
}
SOURCE = """
def target(x, use=False):
    if use:
        held.scale
    return x * 2

class Kind:
    def __call__(self, x, use=False):
        return target(x, use)
"""


def written(source: str, file: Any = str(HERE / "made.py"), **named: Any) -> dict[str, Any]:
    """The names of a module of this text, which can be imported."""
    made = sys.modules["made"] = types.ModuleType("made")
    space = vars(made)
    space.update(named, __file__=file)
    exec(compile(source, str(file), "exec"), space)  # noqa: S102
    return space


@pytest.fixture(autouse=True)
def _imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "made", types.ModuleType("made"))


@pytest.mark.parametrize("make", HELD.values(), ids=HELD)
@pytest.mark.parametrize("by", (lambda s: s["target"], lambda s: s["Kind"]()), ids=("", "method"))
def test_code_may_name_any_object(
    make: Callable[[], Any], by: Callable[[dict[str, Any]], Target]
) -> None:
    passes(by(written(SOURCE, held=make())))


@pytest.mark.parametrize("make", HELD.values(), ids=HELD)
def test_so_may_a_closure(make: Callable[[], Any]) -> None:
    held = make()

    def target(x: torch.Tensor, *, use: bool = False) -> torch.Tensor:
        return held.scale if use else x * 2

    told = check(target, (torch.ones(3),), locates=False).told
    assert (
        not told or "held" in told or "isolated" in told
    )  # Dynamo's own refusals, or that it has no copy


LONG = 1000
SHORT_PARTS = "\n".join(
    ["def f0(x):\n    return x * scale[0]"]
    + [f"def f{n}(x):\n    return f{n - 1}(x) if deep else x * 2" for n in range(1, LONG)]
)


@pytest.mark.parametrize(
    "end", ("", "f0.__globals__['f0'] = lambda x: f999(x)"), ids=["", "circle"]
)
@pytest.mark.parametrize("scale", (2, [2]), ids=["", "with state"])
def test_a_file_may_have_a_long_chain_of_functions(scale: Any, end: str) -> None:
    space = written(f"{SHORT_PARTS}\n{end}", deep=False, scale=scale)
    passes(space[f"f{LONG - 1}"])


def test_so_may_closures() -> None:
    def around(inner: Target) -> Target:
        return lambda x: inner(x) if x is None else x * 2

    target: Target = torch.neg
    for _ in range(LONG):
        target = around(target)
    passes(target)


def test_modules_may_lead_to_each_other_in_a_long_chain() -> None:
    modules = [module() for _ in range(1500)]
    for one, following in itertools.pairwise(modules):
        one.following = following  # type: ignore[attr-defined]
    source = "def target(x, use=False):\n    return held.following.scale if use else x * 2"
    passes(written(source, held=modules[0])["target"])


def test_the_file_of_code_may_be_a_path() -> None:
    passes(written(SOURCE, file=HERE / "made.py", held=2)["target"])
