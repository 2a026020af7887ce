"""What values mean in place of which compiled code leaves others that do the same.

Dynamo leaves a function where eager has a getter of ``operator``, and one class that sets gradient
mode in place of all. Both are compared by what they are made of.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pytest_compileguard import dynamo


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What such a value is, and what it is made of."""

    kind: str
    parts: dict[str, Any]
    """Each by how its path ends."""


def rebuilt(value: Any) -> Any:
    """Take apart a value of such a kind; any other is itself."""
    written = dynamo.as_written(value)
    read = _KINDS.get(type(written))
    return value if read is None else read(written)


def kind_name(value: Any) -> str:
    """What is told of the kind of a value."""
    return value.kind if isinstance(value, Rebuilt) else type(value).__qualname__


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


_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
_MODES = (torch.no_grad, torch.enable_grad, torch.set_grad_enabled)
_KINDS: dict[type, Callable[[Any], Rebuilt]] = dict.fromkeys(_GETTERS, _getter)
_KINDS |= dict.fromkeys(_MODES, _mode)
