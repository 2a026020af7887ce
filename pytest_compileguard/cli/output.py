"""What a subcommand has to say, and how it is printed: text, Markdown or JSON."""

from __future__ import annotations

import json
from typing import Any

from pytest_compileguard.observation import Record
from pytest_compileguard.report.plain_text import plain, shortened

FINE, DIFFERENT, ERROR = 0, 1, 2
FORMATS = ("text", "markdown", "json")

_WIDEST = 100
_GAP = "  "
# What Markdown or HTML would act on, and what notifies people; as characters they only show.
_SPECIAL = {ord(c): f"&#{ord(c)};" for c in r"\`*_{}[]<>()#+!|~&@$"}


class Table(Record):
    """Rows of text under headings."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Output(Record):
    """What a subcommand found."""

    code: int
    lines: tuple[str, ...]
    """Sentences, after the tables."""
    data: Any
    """The same for programs."""
    tables: tuple[Table, ...] = ()
    markdown: str | None = None
    """Markdown that is made already; ``None``: of the tables and lines."""


def rendered(output: Output, form: str) -> str:
    """Print in one of ``FORMATS``."""
    if form == "json":
        return json.dumps(output.data, indent=2, sort_keys=True, allow_nan=False) + "\n"
    if form == "markdown" and output.markdown is not None:
        return output.markdown
    if form == "markdown":
        blocks = [_markdown(table) for table in output.tables if table.rows]
        blocks += ["\n".join(f"- {escaped(line)}" for line in output.lines)]
    else:
        blocks = [_text(table) for table in output.tables if table.rows]
        blocks += ["\n".join(plain(line) for line in output.lines)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def escaped(text: str) -> str:
    """Make text of unknown origin show in Markdown as the characters that it has."""
    return plain(text).translate(_SPECIAL)


def _markdown(table: Table) -> str:
    head = [f"### {escaped(table.title)}", "", _row(table.columns)]
    return "\n".join([*head, _row(("---",) * len(table.columns)), *map(_cells, table.rows)])


def _cells(cells: tuple[str, ...]) -> str:
    return _row(tuple(map(escaped, cells)))


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(table: Table) -> str:
    rows = [tuple(shortened(plain(cell), _WIDEST) for cell in row) for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.columns, *rows, strict=True)]
    lines = [_GAP.join(map(str.ljust, row, widths)).rstrip() for row in (table.columns, *rows)]
    return "\n".join([f"{table.title}:", *lines])
