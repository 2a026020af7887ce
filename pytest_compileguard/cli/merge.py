"""``compileguard merge``: fragments into one tree; and files that git left with conflicts.

Merged entry by entry against what both sides started from, so that neither order nor
neighbourhood in the text matters. Only an entry that two sides changed to different results
is a conflict; then nothing is written, unless it is said which side is preferred.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_compileguard.baseline.entries import NO_FACTS, NO_TIMINGS, FactsFile, printable
from pytest_compileguard.baseline.entry_text import DamagedError, decode
from pytest_compileguard.baseline.git import Merge, merge_of
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.cli.conflict import Sides, has_markers, sides_of
from pytest_compileguard.cli.entry_merge import Merged, merged
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

HELP = "merge fragments of other jobs into a tree, and mend files with conflict markers of git"

_RESTORE = "restore it from version control, or delete it and record again"
_NO_SIDES = f"no merge of git left it like this, so it has no sides to merge; {_RESTORE}"
_OUT_OF_ORDER = (
    "the conflict markers are not as git writes them (<<<<<<<, =======, >>>>>>>, in turn), so they "
    f"show no sides to merge; {_RESTORE}"
)

_LEFT_OUT = (
    "these digests differ between sides that are as fast, and either would mislead a later run: "
    "a run that records stores them again; or choose with --prefer"
)

_DECIDE = (
    "decide with --prefer=ours (left of each arrow) or --prefer=theirs (right of it); "
    "where neither is right, record these checks again after that"
)


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
    mended, conflicts, damaged, left_out = _mend(root, arguments.prefer)
    written: list[str] = []
    if arguments.fragments and not conflicts and not damaged:
        written, conflicts, more = _merge(root, arguments.fragments, arguments.prefer)
        left_out += more
    lines = [f"mended: {path}" for path in mended] + [f"written: {path}" for path in written]
    lines += [f"can't be mended: {text}" for text in damaged]
    lines += [f"conflict: {text}" for text in conflicts]
    lines += [f"left out: {text}" for text in left_out]
    lines += [_LEFT_OUT] if left_out else []
    lines += [_DECIDE] if conflicts else []
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
            "left_out": left_out,
        },
    )


def _merge(
    root: Path, fragments: Sequence[str], prefer: str | None
) -> tuple[list[str], tuple[str, ...], list[str]]:
    target, trees = read_tree(str(root)), [read_tree(name) for name in fragments]
    target.refuse_problems()
    for tree in trees:
        tree.refuse_problems()
        tree.refuse_empty()
    sides: dict[str, list[StoredFile]] = {}
    conflicts: list[str] = []
    left_out: list[str] = []
    for path in sorted({path for tree in trees for path in tree.files}):
        sides[path] = [tree.files[path] for tree in trees if path in tree.files]
        base = target.files.get(path) or _empty(sides[path][0])
        if any(type(side) is not type(base) for side in sides[path]):
            raise BaselineError(f"{printable(path)}: facts in one tree and timings in another")
        one = merged(base, sides[path], whole=False, prefer=prefer)
        conflicts += [f"{path}: {text}" for text in one.conflicts]
        left_out += [f"{path}: {text}" for text in one.left_out]
    if conflicts:
        return [], tuple(conflicts), []
    written = [path for path, some in sides.items() if _write(root, path, some, prefer)]
    return written, (), left_out


def _write(root: Path, path: str, sides: Sequence[StoredFile], prefer: str | None) -> bool:
    """Merge into what stands there when the lock is held: another job may have written."""
    place, empty = place_of(root, path), _empty(sides[0])
    place.home.parent.mkdir(parents=True, exist_ok=True)

    def change(current: Any) -> Any:
        return merged(current, sides, whole=False, prefer=prefer).file

    before, after = Store(root).update(place, empty, change)
    return bool(before != after)


def _mend(
    root: Path, prefer: str | None
) -> tuple[list[str], tuple[str, ...], list[str], list[str]]:
    """Mend what git left; files that hold a true conflict, or no sides, stay as they are."""
    mended: list[str] = []
    conflicts: list[str] = []
    damaged: list[str] = []
    left_out: list[str] = []
    for path, file in paths_below(root).items():
        data = bytes_of_file(file)
        flaw = data if isinstance(data, str) else _flaw(data, kind_of(path, data))
        if not flaw:
            continue
        result = _NO_SIDES if isinstance(data, str) else _mended(file, data, prefer)
        if isinstance(result, str) or isinstance(data, str):
            damaged.append(f"{printable(path)}: {flaw}; {result}")
        elif result.conflicts:
            conflicts += [f"{path}: {text}" for text in result.conflicts]
        else:
            where = root if root.is_dir() else root.parent
            Store(where).mend(place_of(where, path), data, result.file)
            mended.append(path)
            left_out += [f"{path}: {text}" for text in result.left_out]
    return mended, tuple(conflicts), damaged, left_out


def _mended(path: Path, data: bytes, prefer: str | None) -> Merged | str:
    """Merge the sides of a file that can't be read; or say why there are none."""
    kind = kind_of(path.as_posix(), data)
    exact, marked = merge_of(path.resolve(), data), sides_of(data)
    sides: Merge | Sides | None = exact or marked
    if sides is None:
        return _OUT_OF_ORDER if has_markers(data) else _NO_SIDES
    try:
        ours, theirs = decode(sides.ours, kind), decode(sides.theirs, kind)
        base = _base(sides.base, kind, exact=exact is not None)
    except DamagedError as error:
        if exact is None:
            said = "git knows of no merge of it, and between its markers a side is damaged itself"
            return f"{said}: {error}; {_RESTORE}"
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
