"""``compileguard merge``: fragments into one tree; and files that git left with conflicts.

Merged entry by entry against what both sides started from, so that neither order nor
neighbourhood in the text matters. Only an entry that two sides changed to different results
is a conflict; then nothing is written, unless it is said which side is preferred.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_compileguard.baseline.change import Entry, difference, is_code_news, is_equal
from pytest_compileguard.baseline.entries import NO_FACTS, NO_TIMINGS, FactsFile, printable
from pytest_compileguard.baseline.entry_text import DamagedError, decode
from pytest_compileguard.baseline.git import Merge, merge_of
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.cli.conflict import Sides, sides_of
from pytest_compileguard.cli.output import DIFFERENT, ERROR, FINE, Output
from pytest_compileguard.cli.tree import (
    StoredFile,
    bytes_of_file,
    kind_of,
    paths_below,
    place_of,
    read_tree,
)
from pytest_compileguard.errors import BaselineError
from pytest_compileguard.findings.wording import counted
from pytest_compileguard.metrics import NOISE_THRESHOLD
from pytest_compileguard.observation import Record

HELP = "merge fragments of other jobs into a tree, and mend files with conflict markers of git"

_NO_SIDES = (
    "no merge of git left it like this, so it has no sides to merge; restore it from version "
    "control, or delete it and record again"
)

_DECIDE = (
    "decide with --prefer=ours (left of each arrow) or --prefer=theirs (right of it); "
    "where neither is right, record these checks again after that"
)

_Columns = Mapping[str, Entry]


class _Merged(Record):
    file: StoredFile
    conflicts: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fragments", nargs="*", help="folders with baselines of other jobs")
    parser.add_argument("--into", default=".", help="the tree to merge into (default: .)")
    parser.add_argument(
        "--prefer",
        choices=("ours", "theirs"),
        help="which side wins where two changed one entry; of fragments, the first or the last",
    )


def run(arguments: argparse.Namespace) -> Output:
    root = Path(arguments.into)
    if not root.exists():
        raise BaselineError(f"--into: {printable(str(root))!r}: no such folder")
    if not arguments.fragments:
        read_tree(str(root)).refuse_empty()
    mended, conflicts, damaged = _mend(root, arguments.prefer)
    written: list[str] = []
    if arguments.fragments and not conflicts and not damaged:
        written, conflicts = _merge(root, arguments.fragments, arguments.prefer)
    lines = [f"mended: {path}" for path in mended] + [f"written: {path}" for path in written]
    lines += [f"can't be mended: {text}" for text in damaged]
    lines += [f"conflict: {text}" for text in conflicts]
    if conflicts:
        lines.append(_DECIDE)
    files = counted(len({*mended, *written}), "file")
    return Output(
        code=ERROR if damaged else DIFFERENT if conflicts else FINE,
        lines=(*lines, f"{files} changed, {counted(len(conflicts), 'conflict')}"),
        data={
            "schema": 1,
            "mended": mended,
            "written": written,
            "damaged": damaged,
            "conflicts": list(conflicts),
        },
    )


def merged(
    base: StoredFile, sides: Sequence[StoredFile], *, whole: bool, prefer: str | None
) -> _Merged:
    """Merge entry by entry.

    Args:
        base: What all sides started from.
        sides: What became of it.
        whole: Whether a side that lacks an entry removed it; a fragment has only its own.
        prefer: ``ours``: the first side wins a conflict; ``theirs``: the last.
    """
    entries: dict[str, dict[str, Any]] = {}
    conflicts: list[str] = []
    for key in sorted({key for file in (base, *sides) for key in file.entries}):
        rows = [file.entries.get(key, {}) for file in (base, *sides)]
        for column in sorted({column for row in rows for column in row}):
            old, *news = (row.get(column) for row in rows)
            kept, clash = _entry(old, news, whole=whole, prefer=prefer)
            if clash:
                conflicts.append(f"{printable(key)}, {column}: {clash}")
            if kept is not None:
                entries.setdefault(key, {})[column] = kept
    file = msgspec.structs.replace(base, entries=entries)
    return _Merged(file=file, conflicts=tuple(conflicts))


def _entry(
    old: Entry | None, news: Sequence[Entry | None], *, whole: bool, prefer: str | None
) -> tuple[Entry | None, str]:
    """Merge one entry; the text says why two sides can't be."""
    changed: list[Entry] = []
    for new in news:
        if new is None or (old is not None and _says_nothing_new(old, new)):
            continue
        twin = next((o for o in changed if is_equal(o, new, NOISE_THRESHOLD)), None)
        if twin is None:
            changed.append(new)
        elif is_code_news(twin, new) and not is_code_news(new, twin):
            changed[changed.index(twin)] = new  # as fast, and more is known of its code
    if not changed:
        removed = whole and old is not None and None in news
        return (None if removed else old or next((n for n in news if n), None)), ""
    if len(changed) == 1 or prefer:
        return changed[-1 if prefer == "theirs" else 0], ""
    return changed[0], difference(changed[0], changed[1])


def _says_nothing_new(old: Entry, new: Entry) -> bool:
    return is_equal(old, new, NOISE_THRESHOLD) and not is_code_news(old, new)


def _merge(
    root: Path, fragments: Sequence[str], prefer: str | None
) -> tuple[list[str], tuple[str, ...]]:
    target, trees = read_tree(str(root)), [read_tree(name) for name in fragments]
    target.refuse_problems()
    for tree in trees:
        tree.refuse_problems()
        tree.refuse_empty()
    sides: dict[str, list[StoredFile]] = {}
    conflicts: list[str] = []
    for path in sorted({path for tree in trees for path in tree.files}):
        sides[path] = [tree.files[path] for tree in trees if path in tree.files]
        base = target.files.get(path) or _empty(sides[path][0])
        if any(type(side) is not type(base) for side in sides[path]):
            raise BaselineError(f"{printable(path)}: facts in one tree and timings in another")
        one = merged(base, sides[path], whole=False, prefer=prefer)
        conflicts += [f"{path}: {text}" for text in one.conflicts]
    if conflicts:
        return [], tuple(conflicts)
    return [path for path, some in sides.items() if _write(root, path, some, prefer)], ()


def _write(root: Path, path: str, sides: Sequence[StoredFile], prefer: str | None) -> bool:
    """Merge into what stands there when the lock is held: another job may have written."""
    place, empty = place_of(root, path), _empty(sides[0])
    place.home.parent.mkdir(parents=True, exist_ok=True)

    def change(current: Any) -> Any:
        return merged(current, sides, whole=False, prefer=prefer).file

    before, after = Store(root).update(place, empty, change)
    return bool(before != after)


def _mend(root: Path, prefer: str | None) -> tuple[list[str], tuple[str, ...], list[str]]:
    """Mend what git left; files that hold a true conflict, or no sides, stay as they are."""
    mended, conflicts, damaged = [], [], []
    for path, file in paths_below(root).items():
        data = bytes_of_file(file)
        flaw = data if isinstance(data, str) else _flaw(data, kind_of(path, data))
        if not flaw:
            continue
        result = None if isinstance(data, str) else _mended(file, data, prefer)
        if result is None or isinstance(data, str):
            damaged.append(f"{printable(path)}: {flaw}; {_NO_SIDES}")
        elif result.conflicts:
            conflicts += [f"{path}: {text}" for text in result.conflicts]
        else:
            where = root if root.is_dir() else root.parent
            Store(where).mend(place_of(where, path), data, result.file)
            mended.append(path)
    return mended, tuple(conflicts), damaged


def _mended(path: Path, data: bytes, prefer: str | None) -> _Merged | None:
    """Merge the sides of a file that can't be read; ``None`` if it has none."""
    kind = kind_of(path.as_posix(), data)
    exact, marked = merge_of(path.resolve(), data), sides_of(data)
    sides: Merge | Sides | None = exact or marked
    if sides is None:
        return None
    try:
        ours, theirs = decode(sides.ours, kind), decode(sides.theirs, kind)
        base = _base(sides.base, kind, exact=exact is not None)
    except DamagedError as error:
        raise BaselineError(
            f"{printable(str(path))}: a side of the merge is damaged itself: {error}"
        ) from error
    # Without a common ancestor nobody can tell what was removed, so nothing is.
    known = base if base is not None else _empty(ours)
    return merged(known, (ours, theirs), whole=base is not None, prefer=prefer)


def _base(data: bytes | None, kind: type[Any], *, exact: bool) -> StoredFile | None:
    """Read what both sides started from, as far as markers show it.

    Git leaves out of it what both sides have alike, so it may be no text of its own.
    """
    try:
        return decode(data, kind) if data else None
    except DamagedError:
        if exact:
            raise
        return None


def _flaw(data: bytes, kind: type[Any]) -> str:
    """Say what is wrong with a file; empty if it is whole."""
    try:
        decode(data, kind)
    except DamagedError as error:
        return str(error)
    return ""


def _empty(file: StoredFile) -> Any:
    return NO_FACTS if isinstance(file, FactsFile) else NO_TIMINGS
