"""Gives a function closure cells and globals of its own, where it keeps state in them."""

from __future__ import annotations

import collections
import dis
import importlib.util
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import torch

from pytest_compileguard.answers import answer, attribute
from pytest_compileguard.isolation.containers import bound_to
from pytest_compileguard.isolation.ownership import is_users

# Globals of other kinds (loggers, classes, imported modules) are used, not owned.
STATE = (
    torch.nn.Module,
    torch.Tensor,
    torch.optim.Optimizer,
    list,
    dict,
    set,
    collections.deque,
    Iterator,
    types.FunctionType,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cells:
    """What a twin function holds in place of what the original holds."""

    EMPTY: ClassVar[Any] = object()
    closure: list[Any]
    names: dict[str, Any]
    defaults: Any
    keyword_defaults: dict[str, Any]
    attributes: dict[str, Any]
    space: dict[str, Any]
    """Globals of the twin: those of the original, or one copy for all functions of a file."""

    def within(self, space: dict[str, Any]) -> Cells:
        """The same with other globals."""
        return replace(self, space=space)


def content_of(cell: types.CellType) -> Any:
    """What a closure cell holds; ``Cells.EMPTY`` if its name is bound later."""
    try:
        return cell.cell_contents
    except ValueError:
        return Cells.EMPTY


def values_read(function: types.FunctionType) -> list[Any]:
    """What a function reads of globals and of the functions around it."""
    space = function.__globals__
    contents = map(content_of, function.__closure__ or ())
    found = [space[name] for name in global_names(function.__code__)[0] if name in space]
    return [*found, *(content for content in contents if content is not Cells.EMPTY)]


def stateful_names(function: types.FunctionType) -> list[str]:
    """Globals that a function reads and that hold state, or that it assigns."""
    read, assigned = global_names(function.__code__)
    space = function.__globals__
    return [
        name
        for name in read
        if name in space
        and (name in assigned or _is_state(space[name]) or _is_own(function, space[name]))
        and not _foreign(function, space[name])
    ]


def rebuild(
    real: types.FunctionType, cells: Cells, known: Any, *, anew: bool
) -> types.FunctionType:
    """Make, or bring up to date, the twin; the function itself if it holds no state.

    ``anew``: Make one in any case.
    """
    if known is None and not anew and _unchanged(real, cells):
        return real
    twin = _bare(real, cells) if known is None else known
    for cell, content in zip(twin.__closure__ or (), cells.closure, strict=True):
        if content is not Cells.EMPTY:
            cell.cell_contents = content
    if twin.__globals__ is not real.__globals__:
        space = real.__globals__
        read = (name for name in global_names(real.__code__)[0] if name in space)
        twin.__globals__.update({name: space[name] for name in read} | cells.names)
    twin.__defaults__ = cells.defaults
    twin.__kwdefaults__ = cells.keyword_defaults or None
    for name in attributes_of_function(twin).keys() - cells.attributes.keys():
        delattr(twin, name)
    vars(twin).update(cells.attributes)
    return twin


def _bare(real: types.FunctionType, cells: Cells) -> types.FunctionType:
    closure = tuple(types.CellType() for _ in real.__closure__ or ())
    twin = types.FunctionType(real.__code__, cells.space, real.__name__, None, closure)
    twin.__dict__.update(real.__dict__)
    twin.__qualname__, twin.__module__ = real.__qualname__, real.__module__
    return twin


def _unchanged(real: types.FunctionType, cells: Cells) -> bool:
    contents = [content_of(cell) for cell in real.__closure__ or ()]
    code, copied = real.__code__, cells.space is not real.__globals__
    assigned = (copied and global_names(code)[1]) or assigned_cells(code)
    return (
        not assigned
        and all(a is b for a, b in zip(contents, cells.closure, strict=True))
        and all(real.__globals__[name] is value for name, value in cells.names.items())
        and cells.defaults is real.__defaults__
        and all((real.__kwdefaults__ or {})[n] is v for n, v in cells.keyword_defaults.items())
    )


def _is_state(value: object) -> bool:
    if type(value) is types.BuiltinFunctionType:
        return bound_to(value) is not None
    return answer(isinstance, value, STATE, default=False)


def _is_own(function: types.FunctionType, value: object) -> bool:
    """Whether a global is an object of a class that the same file defines."""
    kind = type(value)
    own = attribute(kind, "__module__") == function.__module__
    told = attribute(value, "__class__") is not None  # not a proxy that is bound to nothing
    return kind is not type and own and told


def _foreign(function: types.FunctionType, value: object) -> bool:
    """Whether a global is a function of another file: those are not followed."""
    return type(value) is types.FunctionType and value.__globals__ is not function.__globals__


def attributes_of_function(function: Any) -> dict[str, Any]:
    """What the user keeps on a function, without what decorators and the compiler leave there."""
    if type(function) is not types.FunctionType or not vars(function):
        return {}  # or a proxy that says it is one
    if not is_users(function.__code__.co_filename):
        return {}
    return {
        name: value
        for name, value in vars(function).items()
        if not (name.startswith("_torch") or (name.startswith("__") and name.endswith("__")))
    }


def assigned_values(function: types.FunctionType) -> dict[str, Any]:
    """What a twin of a function binds outside of itself, in what it has for itself.

    Globals of modules are no twin's own.
    """
    space, code = function.__globals__, function.__code__
    module = sys.modules.get(space.get("__name__", ""))
    copied = module is None or vars(module) is not space
    found = {name: space[name] for name in global_names(code)[1] if name in space and copied}
    found |= attributes_of_function(function)
    stored = assigned_cells(code)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if name in stored and content_of(cell) is not Cells.EMPTY:
            found[name] = cell.cell_contents
    return found


@lru_cache(maxsize=1024)
def strings_in(code: types.CodeType) -> frozenset[str]:
    """Strings among the constants of a code object, also in tuples and sets of them."""
    found: set[str] = set()
    nested = list(code.co_consts)
    while nested:
        part = nested.pop()
        if isinstance(part, str):
            found.add(part)
        elif isinstance(part, tuple | frozenset):
            nested += part
    return frozenset(found)


_BY_STRING = frozenset({"setattr", "delattr", "vars", "__dict__"})
"""By what code assigns attributes that it names in strings."""


class Attributes(NamedTuple):
    """What a code object, or one nested in it, may take out of modules."""

    named: frozenset[str]
    """Also by a string, as ``getattr`` does."""
    assigned: frozenset[str]
    imported: frozenset[tuple[str, int]]
    """Modules that are imported in the code itself, or may be by a string: name and how relative
    it is."""


@lru_cache(maxsize=1024)
def attribute_names(code: types.CodeType) -> Attributes:
    """Names that a code object, or one nested in it, may mean as parts of a module."""
    inner = [attribute_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    texts = strings_in(code)
    strings = {text for text in texts if text.isidentifier()}
    assigned, imported, level = set(), {(text, 0) for text in texts}, 0
    if not _BY_STRING.isdisjoint(code.co_names):
        assigned |= strings
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("STORE_ATTR", "DELETE_ATTR"):
            assigned.add(instruction.argval)
        elif instruction.opname == "IMPORT_NAME":
            # Of ``import a.b.c``, it is ``a`` that code goes on with.
            parts = instruction.argval.split(".")
            imported |= {(".".join(parts[:end]), level) for end in range(1, len(parts) + 1)}
        # How relative an import is, is loaded just before the names that it imports.
        level = instruction.argval if isinstance(instruction.argval, int) else level
    return Attributes(
        named=frozenset({*code.co_names, *strings}.union(*(part.named for part in inner))),
        assigned=frozenset(assigned.union(*(part.assigned for part in inner))),
        imported=frozenset(imported.union(*(part.imported for part in inner))),
    )


def imported_module(name: str, level: int, space: dict[str, Any]) -> Any:
    """The module that an import in a function gives, if it was imported before."""
    if level:
        try:
            name = importlib.util.resolve_name("." * level + name, space.get("__package__"))
        except ImportError:
            return None
    return sys.modules.get(name)


_SPACES = frozenset({"globals", "__globals__", "exec"})


@lru_cache(maxsize=1024)
def takes_globals(code: types.CodeType) -> bool:
    """Whether a code object, or one nested in it, may set globals without their names."""
    inner = (part for part in code.co_consts if isinstance(part, types.CodeType))
    return not _SPACES.isdisjoint(code.co_names) or any(map(takes_globals, inner))


_FINDING = frozenset({"import_module", "__import__", "getmodule", "__globals__"})


@lru_cache(maxsize=1024)
def finds_modules(code: types.CodeType) -> bool:
    """Whether a code object, or one nested in it, may find modules without their names."""
    names = frozenset(code.co_names)
    inner = (part for part in code.co_consts if isinstance(part, types.CodeType))
    found = not _FINDING.isdisjoint(names) or {"sys", "modules"} <= names
    return found or any(map(finds_modules, inner))


@lru_cache(maxsize=1024)
def assigned_cells(code: types.CodeType) -> frozenset[str]:
    """Variables of outer functions (``nonlocal``) that a code object assigns."""
    stored = {
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("STORE_DEREF", "DELETE_DEREF")
    }
    inner = [assigned_cells(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return frozenset(stored.union(*inner)) & frozenset(code.co_freevars)


@lru_cache(maxsize=1024)
def global_names(code: types.CodeType) -> tuple[tuple[str, ...], frozenset[str]]:
    """Globals that a code object, or one nested in it, reads; and those that it assigns."""
    read: dict[str, None] = {}
    assigned: set[str] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME"):
            read[instruction.argval] = None
            if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                assigned.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner_read, inner_assigned = global_names(constant)
            read |= dict.fromkeys(inner_read)
            assigned |= inner_assigned
    return tuple(read), frozenset(assigned)
