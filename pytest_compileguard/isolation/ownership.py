"""Tells whether code is the user's."""

from __future__ import annotations

import functools
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

_MADE_IN_PYTHON = 1 << 9
"""The flag ``Py_TPFLAGS_HEAPTYPE``: a class without it was made in C and has no functions."""
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")


def functions_of(value: Any) -> Iterator[types.FunctionType]:
    """The functions of a part of a class, without what decorators wrap around them."""
    inner = [value, *(getattr(value, name, None) for name in ("__func__", "fget", "func"))]
    for part in inner:
        function = getattr(part, "__wrapped__", part)
        if isinstance(function, types.FunctionType):
            yield function


def file_of(kind: type) -> str:
    """The file that defines a class, as far as its functions tell."""
    # Looking through the hundreds of parts of a tensor's base takes milliseconds.
    parts = list(vars(kind).values()) if kind.__flags__ & _MADE_IN_PYTHON else ()
    functions = (f for value in parts for f in functions_of(value))
    first = next(functions, None)
    if first is not None:
        return str(first.__code__.co_filename)
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or ""


@functools.lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Whether a file is the user's: not of torch, a third party, Python or this package."""
    parts = PurePath(file).parts
    foreign = "site-packages" in parts or "dist-packages" in parts or not file
    own = "pytest_compileguard" in parts and "tests" not in parts
    return not (foreign or own or file.startswith((_STANDARD_LIBRARY, "<frozen", "<string")))
