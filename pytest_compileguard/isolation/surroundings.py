"""State that belongs to no copy: attributes of classes, and what methods and helpers reach.

Classes, the globals of their methods and what helpers keep (in closures, defaults, attributes)
can't be copied without becoming other ones. So they are read before a call and put back for each
side; what each side leaves in them is compared.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import itertools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from pytest_compileguard import dynamo
from pytest_compileguard.answers import file_in, is_module, space_of
from pytest_compileguard.isolation.class_places import is_special, members, places_of_class
from pytest_compileguard.isolation.compilers_own import CompilersOwn, Spaces
from pytest_compileguard.isolation.contents import content, parts_of
from pytest_compileguard.isolation.functions import (
    Attributes,
    assigned_cells,
    attribute_names,
    attributes_of_function,
    finds_modules,
    global_names,
    imported_module,
    stateful_names,
    takes_globals,
)
from pytest_compileguard.isolation.ownership import (
    file_of,
    functions_of,
    is_of_python,
    is_users,
    is_users_module,
    users_modules,
)
from pytest_compileguard.isolation.rebound import Rebound
from pytest_compileguard.isolation.snapshot import MISSING, MOST_PARTS, Place, Snapshot

_DEFAULTS = ("__defaults__", "__kwdefaults__")
_CACHED = type(functools.lru_cache(int))


class Surroundings:
    """All places that a target and what it holds may write to without the mirrors' knowledge."""

    def __init__(
        self,
        objects: Iterable[Any],
        root_space: dict[str, Any] | None = None,
        not_copied: Iterable[Any] = (),
    ) -> None:
        self._root_space = root_space
        self._noted: dict[tuple[int, str], Place] = {}
        self._classes: dict[type, str] = {}
        """With the name of each in what is said, which no other has."""
        self._functions: dict[types.FunctionType, str] = {}
        """Those whose attributes count."""
        self._taken: set[str] = set()
        """What all of these are called."""
        self._seen: set[tuple[int, object]] = set()
        self._modules: list[types.ModuleType] = []
        """Those that something holds: what is taken out of them may stand in any function."""
        self._rebound = Rebound(self._free)
        self._named: set[str] = set()
        """What all functions may take out of them."""
        self._assigned: set[str] = set()
        self._open: collections.deque[Any] = collections.deque()
        self.truncated = False
        """Whether there was more than could be followed."""
        for value in objects:
            kind = type(value)  # a proxy may say that it is something else
            if kind is types.FunctionType:
                self._function(value, own=True)
            elif kind is types.MethodType:
                self._class(_class_of(value.__self__))
            elif is_module(value):
                self._modules.append(value)
            else:
                self._class(_class_of(value))
        self._open += not_copied
        self._follow()
        self._compilers_own = CompilersOwn(self._spaces)

    def read(self) -> Snapshot:
        own = frozenset(p.path for p in self._all_places() if self._compilers_own.holds(p))
        bound = [(place, place.read()) for place in self._places()]
        return Snapshot(bound, own, {p.path: self._rebound.earlier(p) for p, _ in bound})

    def values(self) -> dict[str, Any]:
        """What stands in all places now, by path."""
        found = {place.path: place.read() for place in self._places()}
        return {path: value for path, value in found.items() if value is not MISSING}

    def settle(self) -> None:
        """Note what the eager side bound: what the compiler alone binds from now on is its own."""
        self._compilers_own.settle()

    def while_compiling(self) -> contextlib.AbstractContextManager[None]:
        """Tell what the compiler binds from what the call does."""
        return dynamo.while_compiling(self._compilers_own.begins, self._compilers_own.ends)

    def put_back(self, snapshot: Snapshot) -> None:
        """Bring all places to what a snapshot holds; what was bound since then goes."""
        known = {(id(place.owner), place.name) for place, _ in snapshot.bound}
        for place in self._places():
            if (id(place.owner), place.name) not in known:
                place.write(self._rebound.earlier(place))
        snapshot.put_back(but_for=self._compilers_own.holds)

    def _places(self) -> list[Place]:
        return [p for p in self._all_places() if not self._compilers_own.holds(p)]

    def _all_places(self) -> list[Place]:
        found = list(self._noted.values())
        for kind, called in self._classes.items():
            found += places_of_class(kind, called)
        for function, called in self._functions.items():
            names = attributes_of_function(function)
            found += [Place(function, name, f"{called}.{name}") for name in names]
        rebound = self._rebound.places()
        return found + [p for p in rebound if (id(p.owner), p.name) not in self._noted]

    def _spaces(self) -> Spaces:
        """The globals of all modules in which something is noted or watched."""
        owners = [place.owner for place in self._noted.values()]
        noted = [owner for owner in owners if isinstance(owner, dict)]
        return {id(space): space for space in (*noted, *self._rebound.spaces)}

    def _class(self, kind: type) -> None:
        if not self._is_new(kind, Place):
            return
        self._class(type(kind))  # what a metaclass keeps is found through its classes
        for base in kind.__mro__:
            if base in self._classes or not is_users(file_of(base)):
                continue
            names = base.__name__, f"{base.__module__}.{base.__qualname__}"
            self._classes[base] = self._free(*names)
            for name, value in list(vars(base).items()):
                for function in functions_of(value):
                    self._function(function, own=False)
                if not is_special(name):  # a container may hold functions, for instance
                    self._open.append(value)
            for member in members(base):
                self._open += vars(member).values()

    def _function(self, function: types.FunctionType, *, own: bool) -> None:
        """Note what a function reaches; of one that is ``own``, only what has no copy."""
        if not self._is_new(function, own):
            return
        if not is_users(function.__code__.co_filename):
            if not own:
                self._wrapper(function)
            return
        name = function.__qualname__.replace("<locals>.", "")
        called = self._functions[function] = self._free(name, f"{function.__module__}.{name}")
        self._open += attributes_of_function(function).values()
        copied = own and function.__globals__ is self._root_space
        self._globals(function, frozenset(stateful_names(function) if copied else ()))
        self._cells(function, called, own=own)
        for name in () if own else _DEFAULTS:
            value = getattr(function, name)
            if value:
                self._note(Place(function, name, f"a default of {called}"), value, assigned=False)

    def _wrapper(self, function: types.FunctionType) -> None:
        """Follow what a decorator of others wraps; state is noted where it is Python's own."""
        noted = is_of_python(function.__code__.co_filename)
        if noted:
            self._cells(function, function.__qualname__.replace("<locals>.", ""), own=False)
        for value in [*vars(function).values(), *_contents(function)]:
            if isinstance(value, types.FunctionType | types.MethodType | functools.partial):
                self._open.append(value)

    def _globals(self, function: types.FunctionType, copied: frozenset[str]) -> None:
        code, space = function.__code__, function.__globals__
        read, assigned = global_names(code)
        parts = attribute_names(code)
        self._named |= parts.named
        self._assigned |= parts.assigned
        users = is_users(file_in(space))
        own = space.get("__name__", "")
        if users and takes_globals(code):
            self._rebound.watch(space, own)
        if users and finds_modules(code) and self._is_new(users_modules, None):
            for module in users_modules():
                self._rebound.watch(vars(module), module.__name__)
        for name in read:
            value = space.get(name, MISSING)
            self._module(value, parts)
            if name not in copied:
                place = Place(space, name, f"{own}.{name}")
                self._value(place, value, assigned=name in assigned, users=users)
        named = {(own, 0)} if "__name__" in read else set()  # as in sys.modules[__name__]
        for name, level in parts.imported | named:
            self._module(imported_module(name, level, space), parts)

    def _cells(self, function: types.FunctionType, called: str, *, own: bool) -> None:
        code = function.__code__
        assigned = assigned_cells(code)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            place = Place(cell, "cell_contents", f"{called}.{name}")
            value = place.read()
            self._module(value, attribute_names(code))
            if own:
                self._open += [value] if isinstance(value, type) else []
            elif value is not MISSING or name in assigned:
                self._note(place, value, assigned=name in assigned)

    def _module(self, module: Any, parts: Attributes) -> None:
        """Note what a function takes out of a module that it uses by name."""
        left = [module]  # which may lead to more in a row than Python may recurse
        while left:
            module = left.pop()
            if not is_module(module) or not is_users_module(module):
                continue
            if not self._is_new(module, parts):
                continue
            space = space_of(module)
            own = str(space.get("__name__", ""))
            self._rebound.watch(space, own)
            for name in parts.named & space.keys():
                left.append(space[name])
                place = Place(space, name, f"{own}.{name}")
                self._value(place, space[name], assigned=name in parts.assigned, users=True)

    def _value(self, place: Place, value: Any, *, assigned: bool, users: bool) -> None:
        if users:
            self._note(place, value, assigned=assigned)
        elif isinstance(value, types.FunctionType | types.MethodType | type):
            self._open.append(value)

    def _note(self, place: Place, value: Any, *, assigned: bool) -> None:
        if assigned or content(value) is not None or issubclass(type(value), Iterator):
            key = id(place.owner), place.name
            if key not in self._noted:
                self._noted[key] = place._replace(path=self._free(place.path))
        if not is_module(value):  # that has a name, which was followed
            self._open.append(value)

    def _follow(self) -> None:
        """Go on to all that is reached through what was noted."""
        self._follow_open()
        while self._modules:
            parts = Attributes(frozenset(self._named), frozenset(self._assigned), frozenset())
            for module in self._modules:
                self._module(module, parts)
            if not self._open:
                return
            self._follow_open()

    def _follow_open(self) -> None:
        while self._open:
            value = self._open.popleft()
            kind = type(value)  # a proxy may say that it is something else
            if kind is types.FunctionType:
                self._function(value, own=False)
            elif issubclass(kind, type):
                self._class(value)
            elif is_module(value):
                self._modules.append(value)
            elif issubclass(kind, enum.Enum):
                self._class(kind)
            elif kind is _CACHED:
                self._open.append(value.__wrapped__)
            elif (held := content(value)) is not None and self._is_new(value, None):
                self._class(kind)
                if len(self._seen) < MOST_PARTS:
                    self._open += parts_of(held)
                else:
                    self.truncated = True

    def _free(self, *names: str) -> str:
        """The first name that is not taken: things of equal name would hide each other."""
        numbered = (f"{names[-1]} ({number})" for number in itertools.count(2))
        found = next(n for n in itertools.chain(names, numbered) if n not in self._taken)
        self._taken.add(found)
        return found

    def _is_new(self, value: Any, how: object) -> bool:
        key = id(value), how
        new = key not in self._seen
        self._seen.add(key)
        return new


def _class_of(value: Any) -> type:
    """A class itself, or that of an object."""
    return value if issubclass(type(value), type) else type(value)


def _contents(function: types.FunctionType) -> list[Any]:
    cells = function.__closure__ or ()
    return [Place(cell, "cell_contents", "").read() for cell in cells]
