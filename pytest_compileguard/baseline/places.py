"""Where the files of baselines stand. Pure: names of folders and files."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path, PurePosixPath

from pytest_compileguard.baseline.entries import printable
from pytest_compileguard.errors import BaselineError
from pytest_compileguard.observation import Record

FOLDER = "__compileguard__"
LOCK_FOLDER = ".lock"
TIMINGS = "timings"
FOLDERS_RENAMED = {"__up__": "..", "__timings__": TIMINGS}
"""Folders of tests that have another name in a folder of baselines that the user chose."""


class Place(Record):
    """Where one file stands."""

    anchor: Path
    """The folder that the user chose or made; below it no symbolic link is followed."""
    home: Path
    """The folder of baselines, with the lock of all files in and below it."""
    path: Path


@lru_cache(maxsize=1024)
def place_in(
    rootpath: Path, baseline_dir: Path | None, nodeid: str, names: tuple[str, ...]
) -> Place:
    """Say where a file stands that a test module has."""
    module = module_path(nodeid)
    if baseline_dir is None:
        anchor = rootpath / module.parent
        home = anchor / FOLDER
        return Place(anchor=anchor, home=home, path=home.joinpath(*names))
    folder = baseline_dir.joinpath(*_parts_inside(module.parent))
    return Place(anchor=baseline_dir, home=baseline_dir, path=folder.joinpath(*names))


def module_path(nodeid: str) -> PurePosixPath:
    """Take the path out of a node id; one that is written by hand may have backslashes."""
    module = PurePosixPath(nodeid.partition("::")[0].replace("\\", "/"))
    if not module.name:
        raise without_module(nodeid)
    return module


def without_module(nodeid: str) -> BaselineError:
    """Make the error of a node id that no file can belong to."""
    return BaselineError(
        f"node id {printable(nodeid)!r}: names no test module, so it has no baseline; "
        "a node id reads tests/test_x.py::test_name"
    )


def _parts_inside(folder: PurePosixPath) -> list[str]:
    """Name the folders so that they neither lead out of theirs nor take the one for timings."""
    names = {"..": "__up__", "/": "__root__", "//": "__root__", TIMINGS: "__timings__"}
    # A colon would make a drive, or a hidden stream, on Windows.
    return [names.get(part, part.replace(":", "_")) for part in folder.parts]
