"""Annotations of GitHub Actions: one for each cause, at the line that is to be changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pytest_compileguard.finding import Finding
from pytest_compileguard.findings.breaks import advice
from pytest_compileguard.findings.recompile_text import recompile_phrase
from pytest_compileguard.findings.wording import and_more, edited_places, first_of, frame_text
from pytest_compileguard.observation import BreakSite, Record
from pytest_compileguard.report.contract import CheckReport, Report
from pytest_compileguard.report.escape import command_property, command_value
from pytest_compileguard.report.labels import finding_label, test_name
from pytest_compileguard.report.plain_text import clipped, plain_line
from pytest_compileguard.report.shown import blamed, finding_lines

MOST = 10
"""GitHub shows no more errors of one step."""
_MOST_CHARACTERS = 1500
_MOST_IN_LINE = 700
_BREAKS = ("graph_breaks", "baseline.graph_breaks", "baseline.break_events")
_RECOMPILES = ("recompiles", "baseline.recompiles")


class _Cause(Record, frozen=True):
    """One thing to change, and the tests that fail by it."""

    file: str
    line: int
    title: str
    message: str
    at_test: bool = False
    """Whether no place is known but that of the test."""


def annotation_commands(
    report: Report, *, rootpath: Path, workspace: Path | None, at_tests: bool = True
) -> list[str]:
    """Make the workflow commands, each cause once, no more than GitHub shows.

    Args:
        report: Of a run or from a file.
        rootpath: What the files of the report are relative to.
        workspace: Root of the repository; only what lies in it can be annotated.
        at_tests: Whether to point at a test where no better place is known; another plugin
            may do that already.
    """
    causes: dict[tuple[str, int, str], _Cause] = {}
    tests: dict[tuple[str, int, str], dict[str, None]] = {}
    for check in report.checks:
        for cause in _causes(check, rootpath, workspace):
            # What another plugin says already is not said again.
            if at_tests or not cause.at_test:
                key = (cause.file, cause.line, cause.title)
                causes.setdefault(key, cause)
                tests.setdefault(key, {})[test_name(check.nodeid)] = None
    commands = [_command(cause, tuple(tests[key])) for key, cause in causes.items()]
    if len(commands) <= MOST:
        return commands
    more = f"{len(commands) - MOST + 1} more causes: see the summary of this job"
    return [*commands[: MOST - 1], f"::error title=compileguard::{command_value(more)}"]


def _command(cause: _Cause, tests: tuple[str, ...]) -> str:
    message = f"{cause.message}\nin {and_more(plain_line(tests[0], 120), len(tests))}"
    place = f"file={command_property(cause.file)},line={cause.line}"
    title = command_property(f"compileguard: {cause.title}")
    return f"::error {place},title={title}::{command_value(message)}"


def _causes(check: CheckReport, rootpath: Path, workspace: Path | None) -> Iterator[_Cause]:
    for finding in () if check.expected else blamed(check):
        found = [_inside(cause, rootpath, workspace) for cause in _placed(check, finding)]
        known = [cause for cause in found if cause.file]
        if known:
            yield from known
            continue
        at_test = _Cause(
            file=check.file,
            line=check.line or 1,
            title=finding_label(finding),
            message=_text(finding_lines([finding])),
            at_test=True,
        )
        if (moved := _inside(at_test, rootpath, workspace)).file:
            yield moved


def _placed(check: CheckReport, finding: Finding) -> Iterator[_Cause]:
    """Find the places that a finding is about."""
    title = finding_label(finding).removeprefix("baseline ")
    if finding.metric in _BREAKS:
        yield from (
            _of_break(site, place)
            for site in check.graph_breaks
            if not site.allowed
            for place in edited_places(site)
        )
    elif finding.metric in _RECOMPILES:
        yield from _of_recompiles(check, finding)
    elif finding.file:
        title = finding_label(finding)
        message = _text(finding_lines([finding]))
        yield _Cause(file=finding.file, line=finding.line, title=title, message=message)


def _of_break(site: BreakSite, place: tuple[str, int]) -> _Cause:
    why = f"{site.reason} ({site.id})" if site.id else site.reason
    file, line = place
    source = site.source
    if site.called_from:  # the annotation stands at that line, so the other one is to be named
        source = f"{frame_text(site.file, site.line, site.function)}    {source}"
    message = _text([source, f"{why}: {advice(site)}" if site.hint else why])
    return _Cause(file=file, line=line, title="graph break", message=message)


def _of_recompiles(check: CheckReport, finding: Finding) -> Iterator[_Cause]:
    """Point at each function that was compiled again, once."""
    phrases: dict[tuple[str, int], list[str]] = {}
    for recompile in check.recompiles:
        if not recompile.refused:
            (place,) = edited_places(recompile)
            phrases.setdefault(place, []).append(recompile_phrase(recompile))
    for (file, line), said in phrases.items():
        message = _text([*first_of(said, 3), *finding.remedy.splitlines()])
        yield _Cause(file=file, line=line, title="recompile", message=message)


def _text(lines: list[str]) -> str:
    shown = [plain_line(line, _MOST_IN_LINE) for line in lines if line.strip()]
    return clipped("\n".join(shown), _MOST_CHARACTERS)


def _inside(cause: _Cause, rootpath: Path, workspace: Path | None) -> _Cause:
    """Name the file as GitHub does, relative to the repository; empty if it lies elsewhere."""
    named = ""
    if cause.file and cause.file != "?" and workspace is not None:
        try:
            real, root = os.path.realpath(rootpath / cause.file), os.path.realpath(workspace)
        except (OSError, ValueError):  # no path at all
            return msgspec.structs.replace(cause, file="")
        if Path(real).is_relative_to(root):
            named = Path(real).relative_to(root).as_posix()
    return msgspec.structs.replace(cause, file=named)
