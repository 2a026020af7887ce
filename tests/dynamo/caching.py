"""Functions that keep what they computed, imported by those under test."""

from __future__ import annotations

from collections.abc import Callable

KNOWN: dict[int, int] = {}
COUNT = 0


def remembering() -> Callable[[int], int]:
    """A function with a cache of its own, in its closure."""
    known: dict[int, int] = {}

    def get(n: int) -> int:
        if n not in known:
            known[n] = n * 2
        return known[n]

    return get


def get(n: int) -> int:
    if n not in KNOWN:
        KNOWN[n] = n * 2
    return KNOWN[n]


class Nothing:
    """What stands for an argument that was not given."""


NONE = Nothing()
