"""Merges stored entries one by one: what became of each on all sides. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pytest_compileguard.baseline.change import (
    Entry,
    code_text,
    difference,
    is_code_news,
    is_equal,
)
from pytest_compileguard.baseline.entries import TimingEntry, printable
from pytest_compileguard.cli.tree import StoredFile
from pytest_compileguard.metrics import NOISE_THRESHOLD
from pytest_compileguard.observation import Record


class Merged(Record):
    """One file of all sides."""

    file: StoredFile
    conflicts: tuple[str, ...]
    """Entries that two sides changed to different results."""
    left_out: tuple[str, ...] = ()
    """Digests of generated code that differ between sides which are as fast."""


class _One(Record):
    """One entry of all sides."""

    kept: Entry | None
    conflict: str = ""
    """What two sides don't agree on."""
    left_out: str = ""


def merged(
    base: StoredFile, sides: Sequence[StoredFile], *, whole: bool, prefer: str | None
) -> Merged:
    """Merge entry by entry.

    Args:
        base: What all sides started from.
        sides: What became of it.
        whole: Whether a side that lacks an entry removed it; a fragment has only its own.
        prefer: ``ours``: the first side wins a conflict; ``theirs``: the last.
    """
    entries: dict[str, dict[str, Any]] = {}
    conflicts: list[str] = []
    left_out: list[str] = []
    for key in sorted({key for file in (base, *sides) for key in file.entries}):
        rows = [file.entries.get(key, {}) for file in (base, *sides)]
        for column in sorted({column for row in rows for column in row}):
            old, *news = (row.get(column) for row in rows)
            one = _entry(old, news, whole=whole, prefer=prefer)
            place = f"{printable(key)}, {column}"
            conflicts += [f"{place}: {one.conflict}"] if one.conflict else []
            left_out += [f"{place}: {one.left_out}"] if one.left_out else []
            if one.kept is not None:
                entries.setdefault(key, {})[column] = one.kept
    file = msgspec.structs.replace(base, entries=entries)
    return Merged(file=file, conflicts=tuple(conflicts), left_out=tuple(left_out))


def _entry(
    old: Entry | None, news: Sequence[Entry | None], *, whole: bool, prefer: str | None
) -> _One:
    """Merge one entry, from what all sides started from."""
    changed: list[list[Entry]] = []
    for new in news:
        if new is None or (old is not None and _says_nothing_new(old, new)):
            continue
        alike = next((some for some in changed if is_equal(some[0], new, NOISE_THRESHOLD)), None)
        if alike is None:
            changed.append([new])
        else:
            alike.append(new)
    if not changed:
        removed = whole and old is not None and None in news
        return _One(kept=None if removed else old or next((n for n in news if n), None))
    if prefer:
        some = changed[-1][::-1] if prefer == "theirs" else changed[0]
        return _One(kept=next((one for one in some if _codes(one)), some[0]))
    if len(changed) > 1:
        return _One(kept=changed[0][0], conflict=difference(changed[0][0], changed[1][0]))
    return _agreed(changed[0])


def _best(alike: Sequence[Entry]) -> Entry:
    """Take the first of results that are alike, or one that knows the code of more graphs.

    It is taken whole, as its digests are those of the versions that it was recorded with.
    """
    return max(alike, key=lambda one: len(_codes(one)))


def _codes(entry: Entry) -> Mapping[str, str]:
    """Give the digests of an entry; facts have none."""
    return (entry.code or {}) if isinstance(entry, TimingEntry) else {}


def _agreed(alike: Sequence[Entry]) -> _One:
    """Leave out digests on which two results disagree: of either, a later run would be misled."""
    best = _best(alike)
    if not isinstance(best, TimingEntry):
        return _One(kept=best)
    codes, known = [_codes(one) for one in alike], _codes(best)
    disputed = [k for k, digest in known.items() if any(c.get(k, digest) != digest for c in codes)]
    code = {key: digest for key, digest in known.items() if key not in disputed}
    kept = msgspec.structs.replace(best, code=code or None)
    return _One(kept=kept, left_out=code_text(disputed))


def _says_nothing_new(old: Entry, new: Entry) -> bool:
    return is_equal(old, new, NOISE_THRESHOLD) and not is_code_news(old, new)
