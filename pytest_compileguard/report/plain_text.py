"""Makes text of unknown origin fit for a terminal and a log.

Source lines, guards, error texts and parameters come from the code under test. In them
may be escape sequences, line breaks and the commands that CI systems read from logs.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

_ENOUGH = 20_000
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)?"  # operating system commands: titles, links
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # control sequences: colours, cursor
    r"|\x1b[ -/]*[0-~]?"
)
_GAP, _NARROW_GAP = " ... ", ".."
_NARROW = 60
_LONGEST_WORD = 40
"""Characters that are given up so as to cut between words."""


def plain(text: str) -> str:
    """Reduce any text to one line that only shows and never acts."""
    bounded = shortened(text, _ENOUGH) if len(text) > _ENOUGH else text
    visible = "".join(_shown(character) for character in _ESCAPES.sub("", bounded))
    return _inert(visible)


def visible(text: str) -> str:
    """Keep the lines of a text, and drop what acts instead of showing: for a page, not a log."""
    lines = _ESCAPES.sub("", text.expandtabs(4)).split("\n")
    return "\n".join("".join(map(_shown, line)).rstrip() for line in lines)


def plain_line(text: str, most: int) -> str:
    """Do as ``plain``, and cut the middle out of what is too long: both ends tell most."""
    return shortened(plain(text).rstrip(), most)


def shortened(text: str, width: int) -> str:
    """Cut the middle out of a text that is longer than ``width``."""
    if len(text) <= width:
        return text
    gap = _NARROW_GAP if width < _NARROW else _GAP
    kept = max(width - len(gap), 2)
    head = (kept + 1) // 2
    start, end = text[:head], text[len(text) - (kept - head) :]
    if width < _NARROW:
        return f"{start}{gap}{end}"
    return f"{clipped(text, head)}{gap}{_from_word(text, end)}"


def clipped(text: str, most: int) -> str:
    """Cut off the end of a text that is longer, after a word if one ends nearby."""
    if len(text) <= most:
        return text
    start = text[:most]
    if text[most].isspace() or start[-1:].isspace():
        return start.rstrip()
    words = start[-_LONGEST_WORD:].rsplit(maxsplit=1)
    return start[: -len(words[1])].rstrip() if len(words) > 1 else start


def _from_word(text: str, end: str) -> str:
    """Begin the end of a text with a word, if one begins nearby."""
    if text[-len(end) - 1].isspace() or end[:1].isspace():
        return end.lstrip()
    words = end[:_LONGEST_WORD].split(maxsplit=1)
    return end[len(words[0]) :].lstrip() if len(words) > 1 else end


def relative(text: str, rootpath: Path | None) -> str:
    """Drop the root folder from all paths in a text that lie below it."""
    if rootpath is None or rootpath == rootpath.parent:
        return text
    root = re.escape(str(rootpath))
    return re.sub(rf"(?<![\w./\\-]){root}[/\\]", "", text)


def _shown(character: str) -> str:
    if character in "\t\n\r\x0b\x0c\x85\u2028\u2029":
        return " "
    # Control, format (direction overrides, zero width), surrogate, private use.
    return "" if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co") else character


def _inert(line: str) -> str:
    """Break the two forms in which CI systems take commands from a log."""
    broken = line.replace("##[", "## [").replace("##vso[", "## vso[")
    if broken.lstrip().startswith("::"):
        broken = broken.replace("::", ": :", 1)
    return broken
