"""Looks at the source of the code under test."""

from __future__ import annotations

import linecache


def source_line(file: str, line: int) -> str:
    """Read the text of a line, stripped; empty if the file can't be read."""
    return linecache.getline(file, line).strip()
