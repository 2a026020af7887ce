"""What stands in marks, and what is refused before any test runs: marks, damaged baselines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

import pytest
from msgspec import UNSET

from pytest_compileguard.baseline.store import Store
from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.spec import MARKER, NAMES, CompileCheck, spec_from_marks

FIXTURE = "compileguard"
_NEAR = 0.85
"""From which similarity on a mark is a misspelt one: ``compile_chek``, not ``compile_cache``."""


def refusals(items: Iterable[pytest.Item], store: Store | None) -> list[str]:
    """One line for each thing that is wrong, each of them once.

    Args:
        items: The tests that were selected.
        store: Where their baselines are; ``None`` if nothing will be compared with them.
    """
    return list(dict.fromkeys(_refusals(items, store)))


def stable_nodeid(item: pytest.Item) -> str:
    """Name a test by its file and its place within it, as baselines outlive a session.

    Drops the group that pytest-xdist appends with ``--dist=loadgroup``. Of a file outside the
    root folder, pytest's node id depends on the arguments and may be that of another file too.
    """
    nodeid = item.nodeid
    if item.parent is not None:
        plain = f"{item.parent.nodeid}::{item.name}"
        nodeid = plain if item.nodeid.startswith(f"{plain}@") else item.nodeid
    module, separator, inside = nodeid.partition("::")
    return f"{_module(module, item.path, item.config.rootpath)}{separator}{inside}"


@lru_cache(maxsize=4096)
def _module(named: str, path: Path, rootpath: Path) -> str:
    """Give the path of a test file, from the root folder; as named, where that is it."""
    if rootpath / named == path or path.is_relative_to(rootpath):
        return named
    try:
        if (rootpath / named).samefile(path):
            return named
    except OSError:
        pass
    try:
        return Path(os.path.relpath(path, rootpath)).as_posix()
    except ValueError:  # on another drive
        return path.as_posix()


def spec_of(item: pytest.Item) -> CompileCheck:
    """Merge the marks of a test.

    Raises:
        SpecError: A mark has positional arguments, or limits that are not allowed.
    """
    return spec_from_marks(_marks(item), nodeid=stable_nodeid(item))


def own_limits(item: pytest.Item) -> tuple[str, ...]:
    """Name what the marks on a test itself ask for; those around it may be meant for others."""
    on_function = getattr(getattr(item, "obj", None), "pytestmark", ())
    on_parameter = getattr(getattr(item, "callspec", None), "marks", ())
    own = {id(mark) for mark in (*on_function, *on_parameter)}
    marks = [mark for mark in _marks(item) if id(mark) in own]
    spec = spec_from_marks(marks, nodeid=stable_nodeid(item))
    return tuple(name for name in NAMES if getattr(spec, name) not in (None, UNSET))


def modes_of(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    """Give the modes for each of which a test is to run; a mark that can't be kept gives none."""
    if FIXTURE not in metafunc.fixturenames:
        return ()
    try:
        return tuple(spec_of(metafunc.definition).modes or ())
    except CompileGuardError:  # told by `refusals`, once for each test
        return ()


def _marks(item: pytest.Item) -> list[pytest.Mark]:
    """Give the nearest first. Pytest lists those of a parameter after those of its function."""
    of_parameter = [id(mark) for mark in getattr(getattr(item, "callspec", None), "marks", ())]
    return sorted(item.iter_markers(MARKER), key=lambda mark: id(mark) not in of_parameter)


def _has_mode(item: pytest.Item) -> bool:
    return FIXTURE in getattr(getattr(item, "callspec", None), "params", {})


def _refusals(items: Iterable[pytest.Item], store: Store | None) -> Iterator[str]:
    modules = set()
    known: frozenset[str] | None = None
    by_nodeid: dict[str, str] = {}
    for item in items:
        known = known if known is not None else _known_marks(item.config)
        yield from _misspelt(item, known)
        guarded = FIXTURE in getattr(item, "fixturenames", ())
        stable = stable_nodeid(item)
        module = stable.partition("::")[0]
        if guarded and by_nodeid.setdefault(item.nodeid, stable) != stable:
            yield _same_name(item, by_nodeid[item.nodeid])
        try:
            spec = spec_of(item)
            if guarded and spec.modes and not _has_mode(item):
                yield (
                    f"{stable_nodeid(item)}: {MARKER}: modes={spec.modes!r} can't expand this "
                    "test: put it on a function, class or module of pytest, not on a parameter "
                    "or a method of unittest.TestCase"
                )
            if guarded and store is not None and module not in modules:
                modules.add(module)
                store.verify(stable)
        except CompileGuardError as error:
            yield str(error)
        if not guarded and item.get_closest_marker(MARKER):
            yield (
                f"{stable_nodeid(item)}: is marked {MARKER} but does not use the fixture "
                f"{FIXTURE}, so nothing would be checked; request {FIXTURE} and guard a target, "
                "or move the mark"
            )


def _known_marks(config: pytest.Config) -> frozenset[str]:
    """Give the names of all marks that somebody declared: pytest, a plugin or the project."""
    declared: list[str] = config.getini("markers")
    return frozenset(re.split(r"[:(]", line, maxsplit=1)[0].strip() for line in declared)


def _misspelt(item: pytest.Item, known: frozenset[str]) -> Iterator[str]:
    """Find marks that pytest takes as they are, and that nobody would ever read."""
    for name in sorted({mark.name for mark in item.iter_markers()} - known):
        if _is_near(name):
            yield (
                f"{stable_nodeid(item)}: is marked {name!r}, which nothing knows; did you mean "
                f"{MARKER}? If it is a mark of your own, declare it under markers in the ini file"
            )


@lru_cache(maxsize=1024)
def _is_near(name: str) -> bool:
    """Whether a mark was likely meant to be ours; the fixture's name is none."""
    bare = re.sub(r"[\W_]", "", name.casefold())
    return bool(get_close_matches(bare, (MARKER.replace("_", ""), FIXTURE), 1, _NEAR))


def _same_name(item: pytest.Item, other: str) -> str:
    return (
        f"{item.nodeid}: pytest gives this name to both {other} and {stable_nodeid(item)}, which "
        f"lie outside the root folder {item.config.rootpath}, so that their results can't be told "
        "apart; run them apart, or choose a root folder above both with --rootdir"
    )
