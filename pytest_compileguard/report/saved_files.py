"""Finds saved files for the page: links to them, and the code that it shows."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from pytest_compileguard.observation import Record

_MOST_IN_FILE = 60_000
_MOST_ON_PAGE = 1_000_000
"""Characters; colouring takes seconds for so many."""


class Excerpt(Record):
    """The text of a file, perhaps without its end."""

    text: str
    left_out: int
    """Characters that are not shown."""


class SavedFiles:
    """The files of one report. A report may come from anywhere, so its paths are not trusted."""

    def __init__(self, *, base: Path, rootpath: Path, below: Path | None = None) -> None:
        """Say where things are.

        Args:
            base: Folder of the page.
            rootpath: Folder that paths in the report are relative to.
            below: Folder outside of which nothing is read; ``None``: nothing is read at all.
        """
        self._base = base
        self._rootpath = rootpath
        self._below = below
        self._left = _MOST_ON_PAGE

    def link(self, path: str) -> str | None:
        """Give the address of a file, relative to the page; ``None``: there is no such file."""
        file = self._rootpath / path
        if not path or "\0" in path or not file.exists():
            return None
        try:
            way = os.path.relpath(file, self._base)
        except ValueError:  # on another drive
            return file.absolute().as_uri()
        # Quoted, no name can be taken for a scheme or a host.
        return quote(Path(way).as_posix(), errors="surrogateescape")

    def excerpt(self, path: str) -> Excerpt | None:
        """Read code to show; ``None``: it may not be read, or the page is long enough."""
        if self._below is None or "\0" in path or self._left <= 0:
            return None
        try:
            file = (self._rootpath / path).resolve()
            if not file.is_relative_to(self._below.resolve()) or not file.is_file():
                return None
            text = file.read_bytes().decode("utf-8", "replace")
        except OSError:
            return None
        shown = text[: min(_MOST_IN_FILE, self._left)]
        self._left -= len(shown)
        return Excerpt(text=shown, left_out=len(text) - len(shown))


CURRENT_FOLDER = SavedFiles(base=Path(), rootpath=Path())
"""For a page in the current folder: files below it are linked, and none is read."""
