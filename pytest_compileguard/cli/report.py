"""``compileguard report``: shows a JSON report in another form, as a run would."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pytest_compileguard.cli.output import FINE, Output, Table
from pytest_compileguard.report import shown
from pytest_compileguard.report.contract import CheckReport, read_report
from pytest_compileguard.report.markdown import markdown
from pytest_compileguard.report.page import page
from pytest_compileguard.report.plain_text import plain_line
from pytest_compileguard.report.saved_files import SavedFiles

HELP = "show a report that --compileguard-json wrote, as text, Markdown or a page"
_MOST = 400
_COLUMNS = ("check", "graph breaks", "recompiles", "parity", "speedup", "verdict")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="the JSON report")
    parser.add_argument("--html", type=Path, metavar="PATH", help="also write it as a page")


def run(arguments: argparse.Namespace) -> Output:
    report = read_report(arguments.path.read_bytes(), origin=str(arguments.path))
    if arguments.html is not None:
        # What was saved may lie where it did in the run; nothing that a report names is read.
        files = SavedFiles(base=arguments.html.parent, rootpath=Path.cwd())
        arguments.html.write_text(page(report, files), encoding="utf-8")
    rows = tuple(map(_row, shown.by_urgency(report.checks)))
    return Output(
        code=FINE,
        lines=(*_lines(report.checks), shown.totals(report.checks)),
        data=msgspec.to_builtins(report),
        tables=(Table(title=shown.headline(report.checks), columns=_COLUMNS, rows=rows),),
        markdown=markdown(report),
    )


def _row(check: CheckReport) -> tuple[str, ...]:
    return (
        check.nodeid,
        shown.number(check, "graph_breaks"),
        shown.number(check, "recompiles"),
        shown.parity(check),
        shown.speedup(check),
        shown.verdict_word(check),
    )


def _lines(checks: Sequence[CheckReport]) -> Iterator[str]:
    """Say what the table does not: why checks fail, and why something was not judged."""
    for check in shown.by_urgency(checks):
        lines = shown.finding_lines(shown.blamed(check))
        yield from (
            plain_line(line, _MOST) for line in ([check.nodeid, *lines, ""] if lines else ())
        )
    for status, where, text in shown.reasons(checks):
        yield plain_line(f"{status} {where}: {text}", _MOST)
