"""Undoes what Dynamo writes in place of Python's own callables that it traced through."""

from __future__ import annotations

import itertools
import operator
import types
from typing import Any

_OF_OPERATORS = "torch._dynamo.polyfills.operator"
_OF_ITERATORS = "torch._dynamo.polyfills.itertools"
_OF_BUILTINS = "torch._dynamo.polyfills.builtins"


def as_written(value: Any) -> Any:
    """The value as the user wrote it; one that Dynamo did not rebuild is itself."""
    if isinstance(value, types.FunctionType) and value.__module__ == _OF_OPERATORS:
        return _operator(value)
    if isinstance(value, filter):
        return _filter(value)
    return _iterator(value) if type(value).__module__ == _OF_BUILTINS else value


def _operator(function: types.FunctionType) -> Any:
    """Dynamo leaves the inner function of what it has in place of the operator."""
    held = _held_by(function)
    kind = function.__qualname__.partition(".")[0]
    if kind == "itemgetter" and held.keys() & {"item", "items"}:
        return operator.itemgetter(*held.get("items", (held.get("item"),)))
    if kind == "attrgetter" and held.keys() & {"attr", "attrs"}:
        return operator.attrgetter(*held.get("attrs", (held.get("attr"),)))
    if kind == "methodcaller" and held.keys() >= {"name", "args", "kwargs"}:
        return operator.methodcaller(held["name"], *held["args"], **held["kwargs"])
    return function


def _filter(value: filter[Any]) -> Any:
    """Dynamo filters by the opposite in place of ``filterfalse``."""
    made: Any = value.__reduce__()
    function, items = made[1]
    if function is operator.not_:
        return itertools.filterfalse(None, items)
    if isinstance(function, types.FunctionType) and function.__module__ == _OF_ITERATORS:
        held = _held_by(function)
        return itertools.filterfalse(held["function"], items) if "function" in held else value
    return value


def _iterator(value: Any) -> Any:
    """Dynamo writes some iterators in Python; what they hold stands in their attributes."""
    held = vars(value)
    if held.get("exhausted"):
        return iter(())
    if held.keys() >= {"fn", "sentinel"}:
        return iter(held["fn"], held["sentinel"])
    if held.keys() >= {"seq", "index"}:
        return iter(held["seq"][: held["index"] + 1][::-1])
    return value


def _held_by(function: types.FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}
