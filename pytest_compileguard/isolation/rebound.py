"""Names of modules that are bound anew while a call runs, by whatever way code sets them.

Names may be handed to helpers, computed, or set through ``vars(module)``, so that no code tells
which they are. What is bound to a name is read off the module in place of it.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from pytest_compileguard.isolation.snapshot import MISSING, Place

_OF_COMPILER = (types.FunctionType, types.BuiltinFunctionType, type)
"""What Dynamo leaves in globals under new names; imports bind modules."""


class Rebound:
    """Modules, with what was bound to all of their names."""

    def __init__(self, free: Callable[[str], str]) -> None:
        self._free = free
        """Gives a path that no other place has."""
        self._watched: dict[int, tuple[str, dict[str, Any], dict[str, Any]]] = {}
        self._places: dict[tuple[int, str], Place] = {}
        self._named: set[str] | None = None

    def watch(self, space: dict[str, Any], called: str) -> None:
        """Note what the names of a module are bound to now."""
        if id(space) not in self._watched:
            self._watched[id(space)] = (called, space, dict(space))

    def settle(self, named: set[str]) -> None:
        """From now on, take no name for the call's that it did not bind so far, but for ``named``.

        What is bound while the call is compiled, by a backend of the test for instance, is not.
        """
        self._named = named

    def places(self) -> list[Place]:
        """Those that were bound anew since, at any time."""
        for key, (called, space, earlier) in self._watched.items():
            for name in [n for n in earlier.keys() | space.keys() if (key, n) not in self._places]:
                before, now = earlier.get(name, MISSING), space.get(name, MISSING)
                foreign = self._named is not None and name not in self._named
                if before is not now and not foreign and not _is_of_compiler(name, before, now):
                    self._places[key, name] = Place(space, name, self._free(f"{called}.{name}"))
        return list(self._places.values())

    def earlier(self, place: Place) -> Any:
        """What was bound to a place at first."""
        _, _, earlier = self._watched.get(id(place.owner), ("", {}, {}))
        return earlier.get(place.name, MISSING)


def _is_of_compiler(name: str, before: Any, now: Any) -> bool:
    new = before is MISSING and isinstance(now, _OF_COMPILER)
    return name.startswith("__") or new or isinstance(now, types.ModuleType)
