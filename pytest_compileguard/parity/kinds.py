"""What values of Python's and torch's own kinds mean: by what two agree that were made apart.

Each side of a call makes functions, partials, slices and the like anew. Two of them are the same
if what they are made of is; two generators are if they stand in one state.
"""

from __future__ import annotations

import contextlib
import functools
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from pytest_compileguard import dynamo
from pytest_compileguard.errors import UnsupportedTorchError
from pytest_compileguard.isolation.containers import ATOMIC
from pytest_compileguard.isolation.functions import Cells, attributes_of_function, content_of
from pytest_compileguard.isolation.inner_state import inner_state
from pytest_compileguard.isolation.objects import attributes_of, is_compiler_mark
from pytest_compileguard.isolation.ownership import file_of, is_users
from pytest_compileguard.parity.arrays import is_of_subclass, parts_of_array
from pytest_compileguard.parity.rebuilt import Rebuilt

_BOUND_BUILTIN = (types.BuiltinMethodType, types.MethodWrapperType)
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_OF_TORCH = ("_dynamo", "_torch", "_is_", "persistent")
_SHOWN_BY_TORCH = frozenset({"_modules", "_parameters", "_buffers"})


def state_within(value: Any) -> dict[str, Any]:
    """Where a random generator stands, or what an array holds; nothing of other objects."""
    found = inner_state(value)
    return {} if found is None else {" (state)": found.shown}


def tensor_attributes(value: Any) -> dict[str, Any]:
    """What users set on a tensor, but not what subclasses and the compiler keep there."""
    if not isinstance(value, torch.Tensor) or type(value) not in _PLAIN_TENSORS:
        return {}
    return {name: v for name, v in vars(value).items() if not name.startswith(_OF_TORCH)}


def plain(value: Any) -> Any:
    """What is compiled by itself, without its wrapper: eager's copy has none."""
    if isinstance(value, torch.Tensor) or not callable(value):
        return value
    form: Any = None
    with contextlib.suppress(UnsupportedTorchError):
        form = dynamo.compiled_form(value)
    return value if form is None else form.plain


def parts_that_hold(value: Any) -> dict[str, Any] | None:
    """Parts of a kind that only holds others: what is in it, the call may have put there."""
    if isinstance(value, Rebuilt):
        return value.parts
    if isinstance(value, functools.partial):
        named = {f".keywords[{name!r}]": part for name, part in value.keywords.items()}
        return {".func": value.func, ".args": value.args} | named
    if isinstance(value, torch.nn.Module):
        return _parts_of_module(value)
    return None


def parts_of_kind(value: Any) -> dict[str, Any] | None:
    """Parts by which two values of one kind agree; ``None``: it is not of such a kind."""
    if (held := parts_that_hold(value)) is not None:
        return held
    for kinds, parts in _KINDS:
        if isinstance(value, kinds):
            return parts(value)
    if is_of_subclass(value):
        return parts_of_array(value)
    if state := state_within(value):
        return state
    if callable(value) and not isinstance(value, type) and is_users(file_of(type(value))):
        return _named(attributes_of(value))
    return _as_made_anew(value) if _is_opaque(value) else None


def _named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {f".{name}": v for name, v in attributes.items() if not is_compiler_mark(name)}


def _parts_of_module(module: torch.nn.Module) -> dict[str, Any]:
    """What a module holds, without what torch keeps in every module."""
    own = vars(module)
    usual = vars(torch.nn.Module()).keys() - {"training"}
    found = {name: part for name, part in own.items() if name not in usual}
    for name in _SHOWN_BY_TORCH & own.keys():
        found |= own[name]
    return {" (class)": type(module), **_named(found)}


def _parts_of_function(function: types.FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    contents = {f".{name}": content_of(cell) for name, cell in cells}
    return {
        " (code)": function.__code__,
        " (defaults)": function.__defaults__,
        **{f" (default of {name})": v for name, v in (function.__kwdefaults__ or {}).items()},
        **{name: None if v is Cells.EMPTY else v for name, v in contents.items()},
        **_named(attributes_of_function(function)),
    }


_KINDS: tuple[tuple[Any, Callable[[Any], dict[str, Any]]], ...] = (
    (types.FunctionType, _parts_of_function),
    (types.MethodType, lambda m: {" (function)": m.__func__, ".__self__": m.__self__}),
    (_BOUND_BUILTIN, lambda b: {" (name)": b.__name__, ".__self__": b.__self__}),
    (slice, lambda s: {".start": s.start, ".stop": s.stop, ".step": s.step}),
)


def defines_equality(kind: type) -> bool:
    """Whether objects of a class are equal by anything but their identity."""
    return any("__eq__" in vars(base) for base in kind.__mro__ if base is not object)


def _is_opaque(value: Any) -> bool:
    """Whether neither attributes nor equality tell what an object of another's class is."""
    kind = type(value)
    if isinstance(value, (*ATOMIC, torch.Tensor)) or callable(value) or attributes_of(value):
        return False
    return not is_users(file_of(kind)) and not defines_equality(kind)


def _as_made_anew(value: Any) -> dict[str, Any] | None:
    """What an object would be made of, were it copied: how far an iterator came, for instance."""
    made: Any = None
    # Any class may refuse in its own way; itertools' own warn that they will.
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        made = value.__reduce_ex__(4)
    if not isinstance(made, tuple) or getattr(made[0], "__name__", "") == "__newobj__":
        return None  # it holds nothing, and is known by its identity
    names = (" (maker)", " (made of)", " (state)")
    return dict(zip(names, made, strict=False))
