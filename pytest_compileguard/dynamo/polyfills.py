"""Undoes what Dynamo writes in place of Python's own callables that it traced through."""

from __future__ import annotations

import operator
import types
from typing import Any

_OF_OPERATORS = "torch._dynamo.polyfills.operator"


def as_written(value: Any) -> Any:
    """The value as the user wrote it; one that Dynamo did not rebuild is itself."""
    if isinstance(value, types.FunctionType) and value.__module__ == _OF_OPERATORS:
        return _operator(value)
    return value


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


def _held_by(function: types.FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}
