"""Names of modules that are bound anew while a call runs, by whatever way code sets them.

Names may be handed to helpers, computed, or set through ``vars(module)``, so that no code tells
which they are. What is bound to a name is read off the module in place of it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from pytest_compileguard.isolation.snapshot import MISSING, Place

_OF_PYTHON = (
    "__annotations__",
    "__builtins__",
    "__cached__",
    "__conditional_annotations__",
    "__loader__",
    "__spec__",
    "__warningregistry__",
)
"""What Python binds as code runs."""
_OF_DYNAMO = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, dict)
"""What Dynamo leaves in globals, under names that begin with two underscores."""


class Rebound:
    """Modules, with what was bound to all of their names."""

    def __init__(self, free: Callable[[str], str]) -> None:
        self._free = free
        """Gives a path that no other place has."""
        self._watched: dict[int, tuple[str, dict[str, Any], dict[str, Any]]] = {}
        self._places: dict[tuple[int, str], Place] = {}

    @property
    def spaces(self) -> list[dict[str, Any]]:
        """The globals of all of these modules."""
        return [space for _, space, _ in self._watched.values()]

    def watch(self, space: dict[str, Any], called: str) -> None:
        """Note what the names of a module are bound to now."""
        if id(space) not in self._watched:
            self._watched[id(space)] = (called, space, dict(space))

    def places(self) -> list[Place]:
        """Those that were bound anew since, at any time."""
        for key, (called, space, earlier) in self._watched.items():
            for name in [n for n in earlier.keys() | space.keys() if (key, n) not in self._places]:
                before, now = earlier.get(name, MISSING), space.get(name, MISSING)
                if before is not now and not _is_of_others(called, name, before, now):
                    self._places[key, name] = Place(space, name, self._free(f"{called}.{name}"))
        return list(self._places.values())

    def earlier(self, place: Place) -> Any:
        """What was bound to a place at first."""
        _, _, earlier = self._watched.get(id(place.owner), ("", {}, {}))
        return earlier.get(place.name, MISSING)


def _is_of_others(called: str, name: str, before: Any, now: Any) -> bool:
    """Whether Python or Dynamo binds a name, whatever code runs; an import binds what it imports.

    Dynamo drops what it bound as soon as its code is dropped, so at any time.
    """
    if name.startswith("__") and not name.endswith("__"):
        return isinstance(now if before is MISSING else before, _OF_DYNAMO)
    imported = before is MISSING and isinstance(now, types.ModuleType)
    return name in _OF_PYTHON or (imported and sys.modules.get(f"{called}.{name}") is now)
