"""Names of modules that code sets by strings, wherever those stand, and by computed ones."""

from __future__ import annotations

import importlib
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.compiler import is_compiling

from tests.dynamo import named_settings
from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Way = Callable[[Any], object]
OWN: Any = 0
SUFFIXES = ("A",)
PARTS = ("tests", "dynamo", "named_settings")
PUT = named_settings.put


def put(module: Any, name: str, value: Any) -> None:
    setattr(module, name, value)


def in_a_tuple(v: Any) -> None:
    for name in ("A", "B"):
        setattr(named_settings, name, v)


def in_an_inner_function(v: Any) -> None:
    def inner(name: str) -> None:
        setattr(named_settings, name, v)

    inner("A")


def deleted(_v: Any) -> None:
    if hasattr(named_settings, "A"):
        delattr(named_settings, "A")


def in_a_copy_of_its_space(v: Any) -> None:
    space = vars(named_settings)
    for suffix in SUFFIXES:
        space[suffix] = v


def nothing(_v: Any) -> None:
    pass


def new(v: Any) -> None:
    named_settings.NEW = v  # type: ignore[attr-defined]


def executed(v: Any) -> None:
    exec(f"global OWN; OWN = {v}")  # noqa: S102  # under test


WAYS: dict[str, tuple[str, Way]] = {
    "in a tuple": ("named_settings.A", in_a_tuple),
    "handed to a helper": ("named_settings.A", lambda v: put(named_settings, "A", v)),
    "handed to a helper of the module": (
        "named_settings.A",
        lambda v: named_settings.put(named_settings, "A", v),
    ),
    "handed to an inner function": ("named_settings.A", in_an_inner_function),
    "deleted": ("named_settings.A", deleted),
    "by __setattr__": ("named_settings.A", lambda v: named_settings.__setattr__("A", v)),
    "by the class": (
        "named_settings.A",
        lambda v: types.ModuleType.__setattr__(named_settings, "A", v),
    ),
    "by a keyword": ("named_settings.A", lambda v: vars(named_settings).update(A=v)),
    "by setitem": (
        "named_settings.B",
        lambda v: operator.setitem(named_settings.__dict__, "B", v),
    ),
    "computed": (
        "named_settings.A",
        lambda v: setattr(named_settings, "".join(SUFFIXES), v),
    ),
    "by a name elsewhere": ("named_settings.A", in_a_copy_of_its_space),
    "that is new": ("named_settings.NEW", new),
    "that is new and computed": (
        "named_settings.NEW_A",
        lambda v: setattr(named_settings, f"NEW_{SUFFIXES[0]}", v),
    ),
    "by the name of the module": (
        "named_settings.A",
        lambda v: setattr(sys.modules["tests.dynamo.named_settings"], "A", v),
    ),
    "of an imported module": (
        "named_settings.A",
        lambda v: setattr(importlib.import_module("tests.dynamo.named_settings"), "A", v),
    ),
    "of a module by a computed name": (
        "named_settings.A",
        lambda v: setattr(sys.modules[".".join(PARTS)], "A", v),
    ),
    "of a module imported by a computed name": (
        "named_settings.A",
        lambda v: setattr(importlib.import_module(".".join(PARTS)), "A", v),
    ),
    "in globals of a function": (
        "named_settings.A",
        lambda v: operator.setitem(PUT.__globals__, "A", v),
    ),
    "of its own module": (".OWN", lambda v: setattr(sys.modules[__name__], "OWN", v)),
    "in globals": (".OWN", lambda v: operator.setitem(globals(), "OWN", v)),
    "in globals by a computed name": (".OWN", lambda v: globals().update({f"O{'WN'}": v})),
    "executed": (".OWN", executed),
}


@pytest.fixture(autouse=True)
def _as_new() -> Any:
    yield
    reset()


def reset() -> None:
    vars(named_settings).update(A=0, B=[0])
    for name in ("NEW", "NEW_A"):
        vars(named_settings).pop(name, None)
    globals()["OWN"] = 0


def bound() -> dict[str, Any]:
    names = ("A", "B", "NEW", "NEW_A")
    return {n: vars(named_settings).get(n, "missing") for n in names} | {"OWN": OWN}


def setting(way: Way, *, departs: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    compiled = nothing if way is deleted else way

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # Dynamo refuses some of them
    def sets(compiling: bool) -> None:  # noqa: FBT001
        if compiling:
            compiled(8)
        else:
            way(7)

    def target(x: torch.Tensor) -> torch.Tensor:
        sets(departs and is_compiling())
        return x * 2

    return target


@pytest.mark.parametrize("name", WAYS)
def test_they_are_left_as_the_call_leaves_them(name: str) -> None:
    _, way = WAYS[name]
    before = bound()
    way(7)
    expected = bound()
    reset()
    assert expected != before == bound()

    seen = check(setting(way, departs=False), *[(torch.ones(3),)] * 2)

    assert seen.verdict.outcome == "passed", seen.told
    assert bound() == expected


@pytest.mark.parametrize("name", WAYS)
def test_they_are_compared_and_put_back(name: str) -> None:
    path, way = WAYS[name]
    told = check(setting(way, departs=True), (torch.ones(3),), locates=False).told
    assert "compiled differs from eager" in told, told
    assert f"{path} " in told, told
    assert 8 not in bound().values()


@torch.compiler.disable  # type: ignore[untyped-decorator]  # Dynamo reads the earlier value
def count() -> None:
    globals()["OWN"] = OWN + 1


def counts(x: torch.Tensor) -> Any:
    count()
    return x * OWN


def test_globals_that_the_call_reads_too() -> None:
    seen = check(counts, *[(torch.ones(3),)] * 3)
    assert seen.verdict.outcome == "passed", seen.told
    assert OWN == 3


def keeps_its_graph(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
    global LAST_GRAPH  # noqa: PLW0603  # as backends of tests do
    LAST_GRAPH = graph
    return graph.forward


LAST_GRAPH: Any = None


def test_what_a_backend_of_the_test_binds_is_its_own() -> None:
    seen = check(lambda x: this_module().doubled(x), (torch.ones(3),), backend=keeps_its_graph)
    assert seen.verdict.outcome == "passed", seen.told
    assert LAST_GRAPH is not None


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def this_module() -> Any:
    return sys.modules[__name__]
