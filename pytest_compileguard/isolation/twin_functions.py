"""Copies functions: with cells of their own where they hold state in them, and with globals.

Dynamo takes the globals of what it inlines from the module that they belong to, unless they are
those of the target. So either the target has copied ones, and what else is of its file has the
same, or none has. Functions that share their code, as those behind one decorator do, must have the
same globals too: what Dynamo leaves of one of them stands in those.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_compileguard.answers import attribute, unwrapped
from pytest_compileguard.isolation.functions import (
    Cells,
    attributes_of_function,
    content_of,
    global_names,
    rebuild,
    stateful_names,
    takes_globals,
)
from pytest_compileguard.isolation.ownership import functions_of

if TYPE_CHECKING:
    from pytest_compileguard.isolation.mirror import Mirror


@dataclass(kw_only=True)
class FunctionTwins:
    """What a mirror knows of the functions that it copies."""

    root_space: dict[str, Any] | None = None
    """Globals of the target, if it is a function: twins of functions there have copies. Of no
    function, if nothing in those of the target needs one."""
    copied: bool = False
    """Whether any function has such a copy."""
    made: list[types.FunctionType] = field(default_factory=list)
    """Twins of this call, in the order in which they were finished."""
    open: set[int] = field(default_factory=set)
    """Functions that are being copied: one that they call may call them."""
    _met_open: set[int] = field(default_factory=set)
    """Those of them that something else holds."""
    _late: bool = False
    """Whether one of these got its first twin, so that what holds it holds another function."""
    _shared: set[types.CodeType] = field(default_factory=set)
    """Code of which all functions need a twin, as one of them has."""
    _spaces: dict[int, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)

    def space(self, real: dict[str, Any]) -> dict[str, Any]:
        """The globals of twin functions whose originals have the given ones."""
        if id(real) not in self._spaces:
            self._spaces[id(real)] = (real, dict(real))
        return self._spaces[id(real)][1]

    def reaches_open(self, real: types.FunctionType, named: list[Any]) -> bool:
        """Whether a function holds one that calls it, so that it needs a twin if that has one."""
        held = [*named, *(content_of(cell) for cell in real.__closure__ or ())]
        return any(id(value) in self.open for value in held if value is not real)

    def met(self, value: Any) -> None:
        """Note that something holds a value that was met before."""
        if id(value) in self.open:
            self._met_open.add(id(value))

    def shares_code(self, real: types.FunctionType) -> bool:
        """Whether another function of this code needs a twin."""
        return real.__code__ in self._shared

    def are_unfinished(self, met: Iterable[tuple[Any, Any]]) -> bool:
        """Whether all that was met, with its twins, must be copied once more.

        What holds a function that had no twin yet took it for its own twin, and tuples can't be
        mended. Now it has one.
        """
        late, self._late = self._late, False
        apart: dict[bool, set[types.CodeType]] = {True: set(), False: set()}
        for real, twin in met:
            if type(real) is types.FunctionType and real.__globals__ is self.root_space:
                apart[twin.__globals__ is real.__globals__].add(real.__code__)
        odd = (apart[True] & apart[False]) - self._shared
        self._shared |= odd
        return late or bool(odd)

    def finish(
        self, real: types.FunctionType, twin: types.FunctionType, since: int, *, known: bool
    ) -> None:
        """Let what was made since the copying began call the twin, which did not exist yet."""
        self.open.discard(id(real))
        if twin is real:
            return
        if id(real) in self._met_open:
            self._met_open.discard(id(real))
            self._late |= not known
        self.made.append(twin)
        users, space = self.made[since:], twin.__globals__
        for user in users:
            for cell in user.__closure__ or ():
                if content_of(cell) is real:
                    cell.cell_contents = twin
        if space is not real.__globals__ and any(user.__globals__ is space for user in users):
            named = [name for name, value in space.items() if value is real]
            space.update(dict.fromkeys(named, twin))


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """A function that is being copied: those that it names come first."""

    real: types.FunctionType
    path: str
    known: Any
    since: int
    root: bool
    named: dict[str, Any]
    """Globals of which its twin has its own."""
    inner: Iterator[tuple[str, Any]]
    """What may be functions to be copied before it, by name."""


_LAST: tuple[str, Any] = ("", None)


def reflect_function(mirror: Mirror, real: types.FunctionType, path: str) -> Any:
    """Make, or bring up to date, the twin of a function.

    Those that it names come before it, from a list: a file may have more in a row than Python may
    recurse.
    """
    if _is_of_torch(real):
        return real
    begun = [_begin(mirror, real, path)]
    while True:
        name, value = next(begun[-1].inner, _LAST)
        if not name:
            twin = _end(mirror, begun.pop())
            if not begun:
                return twin
        elif _comes_first(mirror, value):
            begun.append(_begin(mirror, value, name))


def _is_of_torch(function: types.FunctionType) -> bool:
    """Whether a function is torch's, which knows its own by identity."""
    scheduled = hasattr(function, "_wrapped_by_lr_sched")  # holds the optimizer that it steps
    return (function.__module__ or "").partition(".")[0] == "torch" and not scheduled


def _comes_first(mirror: Mirror, value: Any) -> bool:
    if type(value) is not types.FunctionType or mirror.has_met(value) or _is_of_torch(value):
        return False
    return not hasattr(value, "_torchdynamo_orig_callable")  # one that compiles itself has a form


def _begin(mirror: Mirror, real: types.FunctionType, path: str) -> _Begun:
    twins, space = mirror.functions, real.__globals__
    known = mirror.known(real)
    if known is not None and known.__globals__ is space and twins.shares_code(real):
        known = None  # a function can't be given other globals
    mirror.remember(real, real if known is None else known, path, keep=False)
    since = len(twins.made)
    twins.open.add(id(real))
    root = not path and twins.root_space is None
    if root:
        shared = methods_assign(real) or any(map(takes_globals, _reached_codes(real)))
        twins.root_space = {} if shared else space
    copies = space is twins.root_space
    named = {name: space[name] for name in (stateful_names(real) if copies else ())}
    contents = map(content_of, real.__closure__ or ())
    inner = [*named.items(), *zip(real.__code__.co_freevars, contents, strict=True)]
    return _Begun(
        real=real, path=path, known=known, since=since, root=root, named=named, inner=iter(inner)
    )


def _end(mirror: Mirror, begun: _Begun) -> Any:
    real, named, twins = begun.real, begun.named, mirror.functions
    cells = _reflect_cells(mirror, real, begun.path, named)
    recursive = twins.reaches_open(real, list(named.values()))
    changed = any(named[name] is not twin for name, twin in cells.names.items())
    own = changed or recursive or twins.shares_code(real) or bool(global_names(real.__code__)[1])
    copies = real.__globals__ is twins.root_space
    if copies and (own or (begun.root and twins.copied)):
        twins.copied = True
        cells = cells.within(twins.space(real.__globals__))
    if begun.root and not twins.copied:
        twins.root_space = {}
    anew = recursive or (copies and twins.shares_code(real))
    twin = rebuild(real, cells, begun.known, anew=anew)
    twins.finish(real, twin, begun.since, known=begun.known is not None)
    mirror.remember(real, twin, begun.path, keep=twin is not real)
    return twin


def _reflect_cells(
    mirror: Mirror, real: types.FunctionType, path: str, named: dict[str, Any]
) -> Cells:
    variables = zip(real.__closure__ or (), real.__code__.co_freevars, strict=True)
    keyword_defaults = real.__kwdefaults__ or {}
    attributes = attributes_of_function(real)
    return Cells(
        names={name: mirror.reflect(value, name) for name, value in named.items()},
        closure=[_reflect_cell(mirror, cell, name) for cell, name in variables],
        defaults=mirror.reflect(real.__defaults__, path),
        keyword_defaults={n: mirror.reflect(value, n) for n, value in keyword_defaults.items()},
        attributes={n: mirror.reflect(value, f"{path}.{n}") for n, value in attributes.items()},
        space=real.__globals__,
    )


def _reflect_cell(mirror: Mirror, cell: types.CellType, path: str) -> Any:
    content = content_of(cell)
    return content if content is Cells.EMPTY else mirror.reflect(content, path)


def methods_assign(function: types.FunctionType) -> bool:
    """Whether methods of its file assign globals that a function, or one that it names, reads.

    Methods have no copies, so what they assign is seen by no function that has a copy.
    """
    space = function.__globals__
    classes = [v for v in list(space.values()) if issubclass(type(v), type) and _is_of(space, v)]
    methods = [f for kind in classes for part in vars(kind).values() for f in functions_of(part)]
    assigned = {name for method in methods for name in global_names(method.__code__)[1]}
    return bool(assigned) and not assigned.isdisjoint(_reached_names(function))


def _is_of(space: dict[str, Any], kind: type) -> bool:
    return bool(attribute(kind, "__module__") == space.get("__name__"))


def _reached_names(function: types.FunctionType) -> set[str]:
    """Globals that a function reads, and those that the functions of its file read among them."""
    return {name for code in _reached_codes(function) for name in global_names(code)[0]}


def _reached_codes(function: types.FunctionType) -> set[types.CodeType]:
    """Code of a function, and of the functions of its file that it names, and so on."""
    found: set[types.CodeType] = set()
    left, space = [function], function.__globals__
    while left:
        code = left.pop().__code__
        if code not in found:
            found.add(code)
            named = [space.get(name) for name in global_names(code)[0]]
            own = map(unwrapped, named)
            left += [f for f in own if type(f) is types.FunctionType and f.__globals__ is space]
    return found


REFLECTIONS = ((types.FunctionType, reflect_function),)
