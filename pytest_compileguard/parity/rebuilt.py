"""What values mean in place of which compiled code leaves others that do the same.

Dynamo leaves a function where eager has a getter of ``operator``, one class that sets gradient mode
in place of all, and iterators over tuples. They are compared by what they are made of.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from pytest_compileguard import dynamo
from pytest_compileguard.isolation.containers import ATOMIC
from pytest_compileguard.parity.iterators import is_of_python, items_left, parts_made_of


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What such a value is, and what it is made of."""

    kind: str
    parts: dict[str, Any]
    """Each by how its path ends."""


def rebuilt(value: Any) -> Any:
    """Take apart a value of such a kind; any other is itself."""
    written = dynamo.as_written(value)
    read = _KINDS.get(type(written), _iterator if is_of_python(written) else None)
    return value if read is None else read(written) or value


def kind_name(value: Any) -> str:
    """What is told of the kind of a value."""
    return value.kind if isinstance(value, Rebuilt) else type(value).__qualname__


def are_flat(values: Iterable[Rebuilt]) -> bool:
    """Whether all that they are made of are items that hold nothing: there may be very many."""
    items = [value.parts.get("") for value in values]
    return all(
        isinstance(found, tuple) and all(isinstance(item, ATOMIC) for item in found)
        for found in items
    )


def _getter(value: Any) -> Rebuilt:
    maker, args = value.__reduce__()[:2]
    keywords: dict[str, Any] = {}
    if isinstance(maker, functools.partial):  # a method is called with keywords
        args, keywords = (*maker.args, *args), maker.keywords
    named = {f".{name}": part for name, part in keywords.items()}
    return Rebuilt(type(value).__qualname__, {" (made of)": args} | named)


def _mode(value: Any) -> Rebuilt:
    on = isinstance(value, torch.enable_grad) or getattr(value, "mode", False)
    return Rebuilt("gradient mode", {" (on)": bool(on)})


def _iterator(value: Any) -> Rebuilt | None:
    if (items := items_left(value)) is not None:
        return Rebuilt("iterator", {"": items})
    if (made := parts_made_of(value)) is None:
        return None
    return Rebuilt(type(value).__qualname__, {" (made of)": made[1], " (state)": made[2:]})


_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
_MODES = (torch.no_grad, torch.enable_grad, torch.set_grad_enabled)
_KINDS: dict[type, Callable[[Any], Rebuilt | None]] = dict.fromkeys(_GETTERS, _getter)
_KINDS |= dict.fromkeys(_MODES, _mode)
