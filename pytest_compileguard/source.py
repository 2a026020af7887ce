"""Looks at the source of the code under test."""

from __future__ import annotations

import linecache
import re


def source_line(file: str, line: int) -> str:
    """Read the text of a line, stripped; empty if the file can't be read."""
    return linecache.getline(file, line).strip()


def decorator_like(file: str, function: str, word: str) -> str:
    """Find the decorator of a function whose name has a word in it, as it is spelt there.

    Empty if the file defines no such function, or several that differ in it.
    """
    lines = [text.strip() for text in linecache.getlines(file)]
    starts = [
        n
        for n, text in enumerate(lines)
        if re.match(rf"(async )?def {re.escape(function)}\b", text)
    ]
    found = set()
    for start in starts:
        above = start - 1
        while above >= 0 and lines[above].startswith("@"):
            name = re.split(r"[( #]", lines[above], maxsplit=1)[0]
            found |= {name} if word in name else set()
            above -= 1
    return found.pop() if len(found) == 1 else ""
