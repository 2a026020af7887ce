"""Finds stored files whose test module is gone: no run would ever meet their entries again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pytest_compileguard.baseline.entries import printable
from pytest_compileguard.baseline.places import FOLDER, module_path


def gone_modules(rootpath: Path, nodeids: Iterable[str]) -> tuple[str, ...]:
    """Look beside the modules of these tests, and tell of each such file what to do.

    Baselines in a folder that the user chose may be those of another tree of tests, so only
    those that stand beside their tests are looked at.
    """
    folders = sorted({module_path(nodeid).parent.as_posix() for nodeid in nodeids})
    return tuple(
        f"{printable(path.relative_to(rootpath).as_posix())}: its test module is gone; if that was "
        "renamed, rename the file too, else compileguard prune drops it"
        for folder in folders
        for path in sorted((rootpath / folder / FOLDER).glob("*.json"))
        if not has_module(rootpath / folder, path.stem)
    )


def has_module(folder: Path, name: str) -> bool:
    """Whether a test module still stands below a folder, named with its suffix or without."""
    # Of a name with a dot in it, nothing tells whether ``.py`` was cut off.
    return (folder / f"{name}.py").exists() or (folder / name).exists()
