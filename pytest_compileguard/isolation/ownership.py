"""Tells whether code is the user's."""

from __future__ import annotations

import functools
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from pytest_compileguard.answers import attribute, file_in, space_of

_MADE_IN_PYTHON = 1 << 9
"""The flag ``Py_TPFLAGS_HEAPTYPE``: a class without it was made in C and has no functions."""
_INNER = ("__func__", "fget", "fset", "func")
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")


def functions_of(value: Any) -> Iterator[types.FunctionType]:
    """The functions of a part of a class; first those that decorators wrap, then the wrappers."""
    inner = [value, *(attribute(value, name) for name in _INNER)]
    wrapped = [attribute(part, "__wrapped__") for part in inner]
    for function in (*wrapped, *inner):
        if type(function) is types.FunctionType:
            yield function


def file_of(kind: type) -> str:
    """The file that defines a class, as far as its functions tell."""
    # Looking through the hundreds of parts of a tensor's base takes milliseconds.
    parts = list(vars(kind).values()) if kind.__flags__ & _MADE_IN_PYTHON else ()
    files = (f.__code__.co_filename for value in parts for f in functions_of(value))
    # What dataclasses make belongs to no file, or to Python's own.
    first = next((f for f in files if f != "<string>" and not is_of_python(f)), None)
    if first is not None:
        return str(first)
    module = sys.modules.get(str(attribute(kind, "__module__")))
    return str(attribute(module, "__file__") or "")


@functools.lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Whether a file is the user's: not of torch, a third party, Python or this package."""
    parts = PurePath(file).parts
    own = "pytest_compileguard" in parts and "tests" not in parts
    python = (_STANDARD_LIBRARY, "<frozen", "<string")
    return not (_is_installed(file) or own or not file or file.startswith(python))


def is_users_module(module: types.ModuleType) -> bool:
    """Whether a module is the user's, also one that was made by hand."""
    space = space_of(module)
    file = file_in(space)
    if file or space.get("__spec__") is not None:
        return is_users(file)
    # Made by hand, unless it is a part of one that was made in C.
    return (
        type(module) is types.ModuleType
        and str(space.get("__name__")).split(".")[0] not in sys.modules
    )


def users_modules() -> list[types.ModuleType]:
    """All modules of the user that were imported from files."""
    imported = [m for m in list(sys.modules.values()) if type(m) is types.ModuleType]
    return [module for module in imported if is_users(file_in(vars(module)))]


@functools.lru_cache(maxsize=4096)
def is_of_python(file: str) -> bool:
    """Whether a file belongs to Python's standard library."""
    return file.startswith(_STANDARD_LIBRARY) and not _is_installed(file)


def _is_installed(file: str) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(PurePath(file).parts)
