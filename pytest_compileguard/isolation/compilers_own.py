"""Names of modules that are bound while code is compiled, by a backend of the test or by Dynamo.

Nothing of the call runs then, so they are no difference of its two sides, and stay bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_compileguard.isolation.snapshot import MISSING, Place

Spaces = dict[int, dict[str, Any]]


class CompilersOwn:
    """What was bound within the times in which something was compiled."""

    def __init__(self, spaces: Callable[[], Spaces]) -> None:
        self._spaces = spaces
        """Gives the globals of all modules that count, by identity."""
        self._at_first = _copied(spaces())
        self._by_eager: Spaces = {}
        self._before: Spaces = {}
        self._bound: dict[tuple[int, str], Any] = {}

    def settle(self) -> None:
        """Note what the eager side left: what it bound is the call's, whoever binds it again."""
        self._by_eager = _copied(self._spaces())

    def begins(self) -> None:
        self._before = _copied(self._spaces())

    def ends(self) -> None:
        for key, space in self._spaces().items():
            before = self._before.get(key, space)
            for name in [n for n in before.keys() | space.keys() if not _same(before, space, n)]:
                first = self._at_first.get(key, {})
                if _same(self._by_eager.get(key, first), first, name):
                    self._bound[key, name] = space.get(name, MISSING)

    def holds(self, place: Place) -> bool:
        """Whether what is bound to a name now was bound so."""
        key = id(place.owner), place.name
        return key in self._bound and self._bound[key] is place.read()


def _copied(spaces: Spaces) -> Spaces:
    return {key: dict(space) for key, space in spaces.items()}


def _same(one: dict[str, Any], other: dict[str, Any], name: str) -> bool:
    return one.get(name, MISSING) is other.get(name, MISSING)
