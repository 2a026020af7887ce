"""Tells whether a call may change gradients of parameters.

Those are shared with the test, lest they be held thrice, and copied only for code that may add to
them, clip or drop them.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from pytest_compileguard.answers import file_in, is_module, space_of
from pytest_compileguard.isolation.functions import strings_in
from pytest_compileguard.isolation.ownership import is_users
from pytest_compileguard.target import every_function, named_values

_NAMES = frozenset(
    {"backward", "grad", "zero_grad"}
    | {"clip_grad_norm_", "clip_grad_norm", "clip_grads_with_norm_", "clip_grad_value_"}
)


def names_gradients(target: Any) -> bool:
    """Whether a target's code, as far as it can be followed, names gradients."""
    return any(map(_names_them, _codes(target)))


def _names_them(code: types.CodeType) -> bool:
    inner = (part for part in code.co_consts if isinstance(part, types.CodeType))
    named = not _NAMES.isdisjoint(code.co_names) or not _NAMES.isdisjoint(strings_in(code))
    return named or any(map(_names_them, inner))


def _codes(target: Any) -> Iterator[types.CodeType]:
    """Code of a target and its helpers, also of those that it takes out of the user's modules."""
    seen: set[types.CodeType] = set()
    left = [target]
    while left:
        for function in every_function(left.pop()):
            if function.__code__ not in seen:
                seen.add(function.__code__)
                yield function.__code__
                for value in named_values(function):
                    left += _functions_of(value, function.__code__.co_names)


def _functions_of(found: Any, names: tuple[str, ...]) -> Iterator[types.FunctionType]:
    """Functions that stand under these names in a module, or in one that it leads to."""
    left, seen = [found], set()  # modules may import each other
    while left:
        module = left.pop()
        if id(module) in seen or not is_module(module):
            continue
        seen.add(id(module))
        space = space_of(module)
        if not is_users(file_in(space)):
            continue
        for name in names:
            value = space.get(name)
            if isinstance(value, types.FunctionType):
                yield value
            else:
                left.append(value)
