"""What arrays and scalars of numpy hold, those of subclasses too."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from pytest_compileguard.isolation.arrays import is_array
from pytest_compileguard.isolation.objects import attributes_of


def is_of_numpy(value: Any) -> bool:
    """Whether a value is an array, or a scalar, of numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray | numpy.generic)


def items_of(value: Any) -> Any:
    """The items as a plain array; of a masked one without what lies below the mask."""
    if not is_array(value):
        return value
    numpy: Any = sys.modules["numpy"]
    if isinstance(value, numpy.ma.MaskedArray):
        with contextlib.suppress(TypeError, ValueError):
            return value.filled()
    return value.view(numpy.ndarray)


def in_native_order(array: Any) -> Any:
    """A copy in the order of bytes that this machine, and so torch, has."""
    return array.astype(array.dtype.newbyteorder("="))


def parts_of_array(value: Any) -> dict[str, Any]:
    """Items and attributes of an array, each by how its path ends."""
    numpy: Any = sys.modules["numpy"]
    if isinstance(value, numpy.ma.MaskedArray):
        return {" (items)": items_of(value), " (mask)": numpy.ma.getmaskarray(value)}
    attributes = {f".{name}": part for name, part in attributes_of(value).items()}
    return {" (items)": items_of(value)} | attributes


def is_of_subclass(value: Any) -> bool:
    """Whether it is an array that may hold more than its items."""
    return is_array(value) and type(value) is not sys.modules["numpy"].ndarray
