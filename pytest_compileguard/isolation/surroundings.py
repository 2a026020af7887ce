"""State that belongs to no copy: attributes of classes, and globals that methods and helpers use.

Classes and the globals of their methods can't be copied without becoming other ones. So
they are read before a call and put back for each side; what each side leaves in them is
compared.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from pytest_compileguard.isolation.ambient import RandomState, random_state
from pytest_compileguard.isolation.functions import STATE, content_of, global_names
from pytest_compileguard.isolation.objects import is_compiler_mark
from pytest_compileguard.isolation.ownership import file_of, functions_of, is_users
from pytest_compileguard.isolation.snapshot import MISSING, Place, Snapshot

_CLASS_PARTS = (staticmethod, classmethod, property, types.FunctionType, functools.cached_property)


class Surroundings:
    """All places that a target and what it holds may write to without the mirrors' knowledge."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self._globals: dict[tuple[int, str], Place] = {}
        self._classes: dict[type, str] = {}
        """With the name of each in what is said, which no other has."""
        self._seen: set[int] = set()
        for value in objects:
            if isinstance(value, types.FunctionType):
                self._function(value, own=True)
            elif isinstance(value, types.MethodType):
                self._class(type(value.__self__))
            else:
                self._class(value if isinstance(value, type) else type(value))

    def read(self) -> Snapshot:
        return Snapshot([(place, place.read()) for place in self._places()])

    def values(self) -> dict[str, Any]:
        """What stands in all places now, by path."""
        found = {place.path: place.read() for place in self._places()}
        return {path: value for path, value in found.items() if value is not MISSING}

    def put_back(self, snapshot: Snapshot) -> None:
        """Bring all places to what a snapshot holds; what was bound since then goes."""
        known = {(id(place.owner), place.name) for place, _ in snapshot.bound}
        for place in self._places():
            if (id(place.owner), place.name) not in known:
                place.write(MISSING)
        snapshot.put_back()

    def _places(self) -> list[Place]:
        found = list(self._globals.values())
        for kind, called in self._classes.items():
            found += [
                Place(kind, name, f"{called}.{name}")
                for name, value in list(vars(kind).items())
                if not _is_special(name) and not isinstance(value, (*_CLASS_PARTS, type))
                if not hasattr(type(value), "__get__") or isinstance(value, torch.Tensor)
            ]
        return found

    def _class(self, kind: type) -> None:
        for base in kind.__mro__:
            if base in self._classes or not is_users(file_of(base)):
                continue
            self._classes[base] = self._free_name(base)
            for value in list(vars(base).values()):
                for function in functions_of(value):
                    self._function(function, own=False)

    def _free_name(self, kind: type) -> str:
        """Classes of equal name would hide each other."""
        whole = f"{kind.__module__}.{kind.__qualname__}"
        numbered = (f"{whole} ({number})" for number in itertools.count(2))
        taken = set(self._classes.values())
        names = itertools.chain((kind.__name__, whole), numbered)
        return next(name for name in names if name not in taken)

    def _function(self, function: types.FunctionType, *, own: bool) -> None:
        """Note the globals of a function; those of the target's own file are copied instead."""
        if id(function.__code__) in self._seen or not is_users(function.__code__.co_filename):
            return
        self._seen.add(id(function.__code__))
        space = function.__globals__
        names, assigned = global_names(function.__code__)
        for name in names:
            value = space.get(name, MISSING)
            self._value(value, space, name, note=not own, assigned=name in assigned)
            self._module(value, function.__code__.co_names)
        for cell in function.__closure__ or ():
            content = content_of(cell)
            self._module(content, function.__code__.co_names)
            if isinstance(content, types.FunctionType):
                self._function(content, own=own)
            elif isinstance(content, type):
                self._class(content)

    def _module(self, module: Any, names: tuple[str, ...]) -> None:
        """Note what a function takes out of a module that it uses by name."""
        for name in names if isinstance(module, types.ModuleType) else ():
            value = vars(module).get(name, MISSING)
            self._value(value, vars(module), name, note=True, assigned=False)

    def _value(
        self, value: Any, space: dict[str, Any], name: str, *, note: bool, assigned: bool
    ) -> None:
        if isinstance(value, types.FunctionType):
            own = not note and value.__globals__ is space
            self._function(value, own=own)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.ModuleType):
            return
        elif note and is_users(space.get("__file__") or "") and (assigned or _is_state(value)):
            path = f"{space.get('__name__', '')}.{name}"
            self._globals[id(space), name] = Place(space, name, path)
            if not isinstance(value, torch.Tensor):
                self._class(type(value))


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """All that a call starts from besides its target and its arguments."""

    random: RandomState
    surroundings: Surroundings
    snapshot: Snapshot

    def now(self) -> Scene:
        """The same places as they are at this moment."""
        return Scene(
            random=random_state(), surroundings=self.surroundings, snapshot=self.surroundings.read()
        )

    def restore(self) -> None:
        self.random.restore()
        self.surroundings.put_back(self.snapshot)


def _is_state(value: Any) -> bool:
    return isinstance(value, STATE) or (
        value is not MISSING and not callable(value) and is_users(file_of(type(value)))
    )


def _is_special(name: str) -> bool:
    dunder = name.startswith("__") and name.endswith("__")
    return dunder or name == "_abc_impl" or is_compiler_mark(name)


def scene(random: RandomState, met: Iterable[Any]) -> Scene:
    """The scene of a call, whose random state was read already, that meets these objects."""
    surroundings = Surroundings(met)
    return Scene(random=random, surroundings=surroundings, snapshot=surroundings.read())
