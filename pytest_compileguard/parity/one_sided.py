"""Words what one side of a call does to a name outside, and the other does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_compileguard.isolation.snapshot import MISSING, Snapshot

_SHOWN = (bool, int, float, complex, str, bytes, type(None))
_LONGEST = 40
"""Characters of a value that is shown."""


def one_sided(eager: Snapshot, compiled: Snapshot) -> Iterator[tuple[str, str]]:
    """Names that one side binds, or deletes, alone; and what is told of each.

    A side that has no such place left the name as it was before the call.
    """
    bound = {"compiled": _bound(compiled), "eager": _bound(eager)}
    for path in dict.fromkeys([*bound["eager"], *bound["compiled"]]):
        earlier = eager.earlier.get(path, compiled.earlier.get(path, MISSING))
        found = {side: values.get(path, earlier) for side, values in bound.items()}
        one_deletes = (found["eager"] is MISSING) != (found["compiled"] is MISSING)
        if all(path in values for values in bound.values()) and not one_deletes:
            continue  # these are compared by what both have
        if not _are_same(*found.values()):
            values = sorted(found.items(), key=lambda pair: _rank(pair[1], earlier))
            yield path, ", ".join(f"{side} {_deed(value, earlier)}" for side, value in values)


def _bound(side: Snapshot) -> dict[str, Any]:
    return {place.path: value for place, value in side.bound} | side.gradients()


def _rank(value: Any, earlier: Any) -> int:
    """Which side is told first: what happened there, before what did not."""
    if earlier is MISSING:
        return int(value is MISSING)
    return 2 if value is earlier else int(value is not MISSING)


def _deed(value: Any, earlier: Any) -> str:
    if earlier is MISSING:
        return "does not" if value is MISSING else "binds it"
    if value is earlier:
        return f"leaves it as it was{_shown(value)}"
    return "deletes it" if value is MISSING else f"binds it anew{_shown(value)}"


def _shown(value: Any) -> str:
    text = repr(value) if type(value) in _SHOWN else ""
    return f" ({text})" if 0 < len(text) <= _LONGEST else ""


def _are_same(one: Any, other: Any) -> bool:
    """Whether they are one object, or equal numbers or texts, which have no identity."""
    equal = type(one) is type(other) and type(one) in _SHOWN and repr(one) == repr(other)
    return one is other or equal
