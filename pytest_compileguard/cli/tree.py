"""A tree of baselines: all files below a folder, or as they stood at a git revision."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from pytest_compileguard.baseline.entries import (
    FactsEntry,
    FactsFile,
    TimingEntry,
    TimingsFile,
    printable,
)
from pytest_compileguard.baseline.entry_text import MAX_BYTES, DamagedError, decode, schema_of
from pytest_compileguard.baseline.git import GitError, Revision, revision
from pytest_compileguard.baseline.places import FOLDER, FOLDERS_RENAMED, LOCK_FOLDER, TIMINGS, Place
from pytest_compileguard.baseline.reading import bytes_of
from pytest_compileguard.errors import BaselineError
from pytest_compileguard.observation import Record

_KIND = re.compile(rb'"kind"\s*:\s*"(facts|timings)"')
_BEGINNING = re.compile(rb'(<{7}.*\n)?\s*\{\s*(<{7}.*\n)?\s*"entries"\s*:')

StoredFile = FactsFile | TimingsFile


class Item(Record):
    """One stored entry, with all that names it."""

    check: str
    """``tests/test_x.py::test_it::target``."""
    column: str
    """For what it holds: ``cpu torch 2.13``, ``NVIDIA H200, torch 2.13``."""
    entry: FactsEntry | TimingEntry


class Tree(Record):
    """The files of a tree by their paths in it, and what could not be read."""

    name: str
    files: Mapping[str, StoredFile]
    problems: tuple[str, ...]
    schemas: Mapping[str, int]
    revision: str | None = None
    """The git revision that it is, where that exists: it may hold nothing yet."""
    emptied: bool = False
    """Whether it held baselines once: it has a folder for them, and nothing in it."""

    def items(self) -> dict[tuple[str, str], Item]:
        """All entries, by check and column."""
        found = {}
        for path, file in self.files.items():
            for key, columns in file.entries.items():
                check = _check(path, key, file)
                for column, entry in columns.items():
                    item = Item(check=check, column=_column(column, entry), entry=entry)
                    found[(item.check, item.column)] = item
        return dict(sorted(found.items()))

    def refuse_problems(self) -> None:
        """Stop at the first file that can't be read.

        Raises:
            BaselineError: There is one.
        """
        if self.problems:
            raise BaselineError(self.problems[0])

    def refuse_empty(self, *, unless_emptied: bool = False) -> None:
        """Stop where nothing is stored: what was named is not what was meant.

        Raises:
            BaselineError: There is no file, not even a damaged one.
        """
        if not self.files and not self.problems and not (unless_emptied and self.emptied):
            raise BaselineError(f"{printable(self.name)}: holds no baselines")


def read_tree(name: str) -> Tree:
    """Read a folder or a file; or a revision, as ``origin/main`` or ``origin/main:folder``.

    Raises:
        CompileGuardError: There is neither.
    """
    path = Path(name)
    if path.exists():
        texts = ((inside, bytes_of_file(file)) for inside, file in paths_below(path).items())
        tree = make_tree(name, texts)
        empty = not tree.files and not tree.problems
        return msgspec.structs.replace(tree, emptied=empty and _was_used(path))
    rev, _, folder = name.partition(":")
    try:
        found = revision(rev, Path.cwd())
    except GitError as error:
        raise BaselineError(
            f"{printable(name)!r}: no such file or folder, nor a git revision ({error})"
        ) from error
    where = Path.cwd() / folder
    tree = make_tree(name, _of_revision(found, where))
    # A folder that the revision does not have is more likely misspelt than new.
    known = not folder or bool(found.files(where))
    return msgspec.structs.replace(tree, revision=found.label) if known else tree


def paths_below(root: Path) -> dict[str, Path]:
    """Find the files of baselines below a folder, by their paths in it; unreadable folders too."""
    if root.is_file():
        return {root.name: root}
    below = {path.relative_to(root).as_posix(): path for path in _json_below(root)}
    inside = FOLDER in root.resolve().parts
    wanted = _wanted(below, lambda name: bytes_of_file(below[name]), inside=inside)
    return {name: below[name] for name in wanted}


def _wanted(
    names: Iterable[str], read: Callable[[str], bytes | str], *, inside: bool
) -> tuple[str, ...]:
    """Choose the files of baselines; a damaged one is one, or nobody would hear of it.

    They stand in folders ``__compileguard__``. Elsewhere, in a folder that the user chose, what
    begins or ends like one counts, and what is empty or can't be read near one that does.
    """
    marked, alike, blank = [], [], []
    for name in names:
        if inside or _is_marked(name):
            marked.append(name)
            continue
        data = read(name)
        if isinstance(data, str) and not name.endswith(".json"):
            marked.append(name)  # a folder
        elif isinstance(data, str) or not data.strip(b"\0 \t\r\n"):
            blank.append(name)
        elif _KIND.search(data) or _BEGINNING.match(data):
            alike.append(name)
    if alike:
        tops = {PurePosixPath(name).parts[0] for name in alike}
        alike += [name for name in blank if not marked or PurePosixPath(name).parts[0] in tops]
    return tuple(sorted([*marked, *alike]))


def make_tree(name: str, texts: Iterable[tuple[str, bytes | str]]) -> Tree:
    """Decode all files; a text in place of bytes says why there are none."""
    files: dict[str, StoredFile] = {}
    problems: list[str] = []
    schemas: dict[str, int] = {}
    for path, data in texts:
        found = _decoded(path, data)
        if isinstance(found, str):
            problems.append(f"{printable(path)}: {found}")
        else:
            files[path], schemas[path] = found
    return Tree(name=name, files=files, problems=tuple(problems), schemas=schemas)


def _decoded(path: str, data: bytes | str) -> tuple[StoredFile, int] | str:
    if isinstance(data, str):
        return data
    try:
        return decode(data, kind_of(path, data)), schema_of(data) or 0
    except DamagedError as error:
        return str(error)


def bytes_of_file(path: Path) -> bytes | str:
    """Read a file, or say why that can't be."""
    try:
        return bytes_of(path)
    except DamagedError as error:
        return str(error)
    except OSError as error:
        return f"can't be read: {error.strerror or error}"


def kind_of(path: str, data: bytes) -> type[Any]:
    """Say what kind of file it is, or would be if it were whole."""
    if found := _KIND.search(data, 0, MAX_BYTES):
        return TimingsFile if found[1] == b"timings" else FactsFile
    return TimingsFile if PurePosixPath(path).parent.name == TIMINGS else FactsFile


def place_of(root: Path, inside: str) -> Place:
    """Say where a file stands, and with which lock it is written."""
    path = root / inside
    home = next((p for p in path.parents if p.name == FOLDER), root)
    anchor = home.parent if home.name == FOLDER else root
    return Place(anchor=anchor, home=home, path=path)


def module_of(path: str, key: str, file: StoredFile) -> str:
    """Give the test module that an entry belongs to: ``tests/test_x.py``."""
    parts = [part for part in PurePosixPath(path).parts if part != FOLDER]
    if isinstance(file, TimingsFile):
        name, folder = key.partition("::")[0], parts[:-1]
        return _joined([*(folder[:-1] if folder[-1:] == [TIMINGS] else folder), name])
    name = parts[-1].removesuffix(".json")
    return _joined([*parts[:-1], name if "." in name else f"{name}.py"])


def _joined(parts: Iterable[str]) -> str:
    return "/".join(FOLDERS_RENAMED.get(part, part) for part in parts)


def _check(path: str, key: str, file: StoredFile) -> str:
    inside = key.partition("::")[2] if isinstance(file, TimingsFile) else key
    return f"{module_of(path, key, file)}::{inside}"


def _column(column: str, entry: FactsEntry | TimingEntry) -> str:
    return column if isinstance(entry, FactsEntry) else f"{entry.recorded.device}, {column}"


def _json_below(root: Path) -> Iterator[Path]:
    """Find all JSON files below a folder, and the folders in which none can be looked for."""
    closed: list[Path] = []
    for folder, names in _walked(root, lambda e: closed.append(Path(e.filename))):
        yield from (folder / name for name in sorted(names) if name.endswith(".json"))
    yield from closed


def _was_used(root: Path) -> bool:
    """Whether baselines were ever written below a folder."""
    used = (root / LOCK_FOLDER).is_dir()
    return used or any(folder.name == FOLDER for folder, _ in _walked(root.resolve()))


def _walked(
    root: Path, on_error: Callable[[OSError], None] | None = None
) -> Iterator[tuple[Path, list[str]]]:
    """Give each folder with the names of its files."""
    for folder, folders, names in os.walk(root, onerror=on_error):
        # Neither the lock, nor version control, nor an environment.
        folders[:] = sorted(n for n in folders if n[0] != "." and n != "node_modules")
        yield Path(folder), names


def _is_marked(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return FOLDER in parts and LOCK_FOLDER not in parts


def _of_revision(found: Revision, folder: Path) -> Iterator[tuple[str, bytes | str]]:
    tops = [PurePosixPath(path) for path in found.paths_of(folder)]
    names = [
        name
        for name in found.files(folder)
        if name.endswith(".json") and LOCK_FOLDER not in PurePosixPath(name).parts
    ]
    texts = {name: found.read(name) or b"" for name in names}
    alone = names == [str(tops[0])]
    for name in names if alone else _wanted(names, texts.__getitem__, inside=False):
        inside = PurePosixPath(name)
        top = next(top for top in tops if inside.is_relative_to(top))
        yield inside.name if inside == top else inside.relative_to(top).as_posix(), texts[name]
