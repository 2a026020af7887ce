"""Reads the pages of the documentation: their blocks, and what is to be done with each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / ".github" / "docs").glob("*.md")))
_BLOCK = re.compile(
    r"(?P<mark><!-- (?P<reason>[^>]*) -->\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_NAMED = re.compile(r"(?:#|//) (?P<name>[\w./-]+\.(?:py|yml)|Jenkinsfile)\n")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    kind: str
    text: str
    start: int
    """Where its text begins in the page."""
    reason: str | None
    """Why it is not run, if a comment above it says so."""

    @property
    def name(self) -> str | None:
        """The file that it is, by its first line."""
        found = _NAMED.match(self.text)
        return found["name"] if found else None


def blocks(page: Path) -> Iterator[Block]:
    """Give the blocks of a page, in order."""
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield Block(found["kind"], found["text"], found.start("text"), found["reason"])


def replaced(page: Path, block: Block, text: str) -> None:
    """Write another text into a block."""
    whole = page.read_text(encoding="utf-8")
    end = block.start + len(block.text)
    page.write_text(whole[: block.start] + text + whole[end:], encoding="utf-8")
