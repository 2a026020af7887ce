"""Names in a class that hold state, and those of the members of an enumeration."""

from __future__ import annotations

import enum
import functools
import types

import torch

from pytest_compileguard.isolation.contents import ATOMS
from pytest_compileguard.isolation.objects import is_compiler_mark
from pytest_compileguard.isolation.snapshot import Place

_CLASS_PARTS = (staticmethod, classmethod, property, types.FunctionType, functools.cached_property)


def places_of_class(kind: type, called: str) -> list[Place]:
    """Where state is bound in a class; ``called`` is its name in what is said."""
    found = [
        Place(kind, name, f"{called}.{name}")
        for name, value in list(vars(kind).items())
        if not is_special(name) and not isinstance(value, (*_CLASS_PARTS, type))
        if not hasattr(type(value), "__get__") or isinstance(value, torch.Tensor)
        if not (issubclass(kind, enum.Enum) and _is_of_enum(name))
    ]
    for member in members(kind):
        found += [
            Place(member, name, f"{called}.{member.name}.{name.strip('_')}")
            for name, value in vars(member).items()
            if not _is_of_enum(name) or (name == "_value_" and not isinstance(value, ATOMS))
        ]
    return found


def members(kind: type) -> list[enum.Enum]:
    """The members of an enumeration; of any other class, none."""
    return list(kind.__members__.values()) if issubclass(kind, enum.Enum) else []


def _is_of_enum(name: str) -> bool:
    """Whether an attribute of an enumeration is what Python keeps there, as values met so far."""
    return name.startswith("_") and name.endswith("_")


def is_special(name: str) -> bool:
    """Whether a name in a class is Python's own, or the compiler's."""
    dunder = name.startswith("__") and name.endswith("__")
    return dunder or name == "_abc_impl" or is_compiler_mark(name)
