"""Tells whether a call may change gradients of parameters.

Those are shared with the test, lest they be held thrice, and copied only for code that may add to
them, clip or drop them. What code names is looked through: helpers, modules, tables, classes and
objects of the user's, and what decorators and partials hold.
"""

from __future__ import annotations

import collections
import functools
import operator
import types
from collections.abc import Iterable, Iterator
from typing import Any

from pytest_compileguard.answers import (
    answer,
    attribute,
    file_in,
    is_module,
    space_of,
    unwrapped,
)
from pytest_compileguard.isolation.functions import (
    attribute_names,
    finds_modules,
    global_names,
    imported_module,
    strings_in,
    takes_globals,
    values_read,
)
from pytest_compileguard.isolation.objects import attributes_of
from pytest_compileguard.isolation.ownership import file_of, functions_of, is_users
from pytest_compileguard.target import every_function, is_torch, is_torch_module

_NAMES = frozenset(
    {"backward", "grad", "zero_grad"}
    | {"clip_grad_norm_", "clip_grad_norm", "clip_grads_with_norm_", "clip_grad_value_"}
)
_MOST_VALUES = 50_000
"""Those that are looked through: it takes a quarter of a second, once a check."""
_BY_ANY_NAME = frozenset({"getattr", "vars", "__dict__"})
"""By what code takes parts of a module whose names are computed."""
_PLAIN = frozenset({int, float, bool, complex, str, bytes, type(None)})
_CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque)
_EXACT = frozenset({*_CONTAINERS, collections.OrderedDict})
_CALLERS = (operator.attrgetter, operator.methodcaller)
"""What takes an attribute by a name that it doesn't tell."""
_WRAPPERS = (
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
    type(functools.cache(int)),
)

_FOLLOWED = (*_CONTAINERS, *_CALLERS, *_WRAPPERS)


def names_gradients(target: Any) -> bool:
    """Whether a target's code names gradients, or can't be followed to its end.

    Copying gradients that nothing changes costs memory; sharing those that the call changes would
    let the shadow change them.
    """
    left = collections.deque[_Met]((value, None) for value in (target, *every_function(target)))
    seen: dict[tuple[int, frozenset[str] | None], Any] = {}
    for _ in range(_MOST_VALUES):
        if not left:
            return False
        value, names = left.popleft()
        key = id(value), names if is_module(value) else None
        if key in seen or not answer(_is_followed, value, default=True):
            continue
        seen[key] = value
        inner = None if _may_change(value) else answer(_inner, value, names, default=None)
        if inner is None:
            return True
        left += inner
    return True


_Met = tuple[Any, frozenset[str] | None]
"""A value, and the names under which the code that reads it may take parts out of it."""


def _is_followed(value: Any) -> bool:
    kind = type(value)
    if issubclass(kind, types.FunctionType):
        return not is_torch(value) or unwrapped(value) is not value
    if issubclass(kind, type):
        return is_users(file_of(value))
    if is_module(value):
        return is_users(file_in(space_of(value)))
    if issubclass(kind, _FOLLOWED) or is_torch_module(value):
        return True
    return is_users(file_of(kind))


def _may_change(value: Any) -> bool:
    if type(value) is not types.FunctionType:
        return type(value) in _CALLERS
    return not is_torch(value) and (_names_them(value.__code__) or _hides_names(value.__code__))


def _names_them(code: types.CodeType) -> bool:
    inner = (part for part in code.co_consts if isinstance(part, types.CodeType))
    named = not _NAMES.isdisjoint(code.co_names) or not _NAMES.isdisjoint(strings_in(code))
    return named or any(map(_names_them, inner))


def _hides_names(code: types.CodeType) -> bool:
    """Whether code of the user's may run what it doesn't name."""
    if not is_users(code.co_filename):
        return False
    return "eval" in global_names(code)[0] or takes_globals(code) or finds_modules(code)


def _inner(value: Any, names: frozenset[str] | None) -> list[_Met]:
    """What a value leads to."""
    if is_module(value):
        return list(_parts_of_module(space_of(value), names or frozenset()))
    if type(value) is types.FunctionType:
        return list(_parts_of_function(value))
    return [(part, None) for part in _held(value) if not _holds_nothing(part)]


def _holds_nothing(value: Any) -> bool:
    """Whether a value is a number or a tensor, say: models and vocabularies have very many."""
    kind = type(value)
    if issubclass(kind, type):
        return is_torch(value)
    empty = kind in _EXACT and not value
    return kind in _PLAIN or empty or (is_torch(kind) and not is_torch_module(value))


def _parts_of_module(space: dict[str, Any], names: frozenset[str]) -> Iterator[_Met]:
    for name in names & space.keys():
        yield space[name], names
    if not _BY_ANY_NAME.isdisjoint(names):
        yield from ((part, None) for part in list(space.values()) if not is_module(part))


def _parts_of_function(function: types.FunctionType) -> Iterator[_Met]:
    yield unwrapped(function), None
    if is_torch(function):
        return
    code, space = function.__code__, function.__globals__
    read = values_read(function)
    if not is_users(code.co_filename):
        yield from ((value, None) for value in read if type(value) is types.FunctionType)
        return
    parts = attribute_names(code)
    for name, level in parts.imported:
        yield imported_module(name, level, space), parts.named
        yield imported_module(name.partition(".")[0], level, space), parts.named
    yield from ((value, parts.named) for value in read)
    defaults = (function.__defaults__ or (), function.__kwdefaults__ or {}, vars(function))
    yield from ((value, parts.named) for value in defaults)


def _held(value: Any) -> Iterable[Any]:
    """What an object, a class or a container holds."""
    kind = type(value)
    if issubclass(kind, type):
        parts = [
            part for base in value.__mro__ if _is_followed(base) for part in vars(base).values()
        ]
        return [*parts, *(function for part in parts for function in functions_of(part)), kind]
    found: list[Any] = [kind, *attributes_of(value).values()]
    if issubclass(kind, dict):
        found += dict.values(value)
    elif issubclass(kind, _CONTAINERS):
        found += value
    elif issubclass(kind, functools.partial):
        found += (value.func, *value.args, *value.keywords.values())
    elif issubclass(kind, _WRAPPERS):
        found += (attribute(value, name) for name in ("__self__", "__func__", "__wrapped__"))
    return found
