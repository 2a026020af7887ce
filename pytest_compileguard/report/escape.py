"""Makes text of unknown origin harmless in Markdown and in the commands of GitHub Actions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_compileguard.report.plain_text import plain, plain_line

_MEANS_SOMETHING = re.compile(r"[^\w\s./,=\-]|(?<!\w)_|_(?!\w)")
_LEAST_FENCE = 3


def code(text: str, most: int = 240) -> str:
    """Show a text as code within a line, a table cell or a summary.

    A span between backticks would not do: in a table, ``|`` ends the cell in it. Within the
    element GitHub makes no links of mentions and issue numbers; everything else that Markdown
    or HTML could take for its own is a character reference.
    """
    return f"<code>{inert(plain_line(text, most))}</code>" if text.strip() else ""


def inert(text: str) -> str:
    """Write characters that mean something to Markdown or HTML as references."""
    return _MEANS_SOMETHING.sub(lambda found: f"&#{ord(found.group())};", text)


def fenced(lines: Sequence[str]) -> str:
    """Show lines as they are; none of them can close the block."""
    shown = [plain(line) for line in lines]
    runs = (len(run) for line in shown for run in re.findall(r"`+", line))
    fence = "`" * max(_LEAST_FENCE, 1 + max(runs, default=0))
    return "\n".join([f"{fence}text", *shown, fence])


def command_value(text: str) -> str:
    """Escape the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def command_property(text: str) -> str:
    """Escape a property of a workflow command, as ``file`` or ``title``."""
    return command_value(text).replace(":", "%3A").replace(",", "%2C")
