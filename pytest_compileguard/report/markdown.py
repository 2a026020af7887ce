"""The report as Markdown: for the summary of a job, and for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_compileguard.findings.wording import counted
from pytest_compileguard.report.artifact_text import artifact_lines
from pytest_compileguard.report.contract import CheckReport, Report
from pytest_compileguard.report.escape import code, fenced, inert
from pytest_compileguard.report.labels import test_name
from pytest_compileguard.report.shown import (
    blamed,
    by_urgency,
    environment_line,
    finding_lines,
    headline,
    limit,
    number,
    parity,
    reasons,
    said,
    speedup,
    totals,
    verdict_word,
)

MARK = "<!-- pytest-compileguard -->"
"""Stands first, so that a comment can be found again and be replaced."""
MOST_IN_COMMENT = 60_000
"""Bytes; GitHub takes 65,536 characters in a comment."""
MOST_IN_SUMMARY = 1024 * 1024
"""Bytes; GitHub refuses the whole summary of a step that is larger."""
_FOLDED = ("passed", "xfailed")
_RESERVED = 600
_MOST_FOLDERS = 50
_HEAD = (
    "| check | graph breaks | recompiles | parity | speedup | verdict |\n"
    "| --- | ---: | ---: | --- | --- | --- |"
)


def markdown(
    report: Report, *, most_bytes: int = MOST_IN_COMMENT, run_url: str | None = None
) -> str:
    """Make the report as Markdown that fits: failures first, evidence folded.

    Args:
        report: Of a run or from a file.
        most_bytes: What is beyond is left out, and that is said.
        run_url: Page of the job's run, where artefacts that it uploads are found.
    """
    ordered = by_urgency(report.checks)
    shown = [check for check in ordered if verdict_word(check) not in _FOLDED]
    passed = [check for check in ordered if verdict_word(check) in _FOLDED]
    page = _Page(most_bytes - _RESERVED)
    page.put(_top(report))
    page.put_table(shown)
    page.put_all(_folded(check) for check in shown if verdict_word(check) == "failed")
    page.put_all(_saved(ordered, run_url))
    page.put_all(_reasons(report.checks))
    if passed:
        page.put(f"<details><summary>{totals(passed)}</summary>\n")
        page.put_table(passed)
        page.put("</details>", always=True)
    if page.left_out:
        page.put(_left_out(page.left_out), always=True)
    return "\n".join(page.parts) + "\n"


class _Page:
    """Parts that fit together; counts those that did not."""

    def __init__(self, most_bytes: int) -> None:
        self.parts: list[str] = []
        self.left_out = 0
        self._free = most_bytes

    def put(self, part: str, *, always: bool = False) -> None:
        size = len(part.encode("utf-8", "replace")) + 1
        if always or size <= self._free:
            self.parts.append(part)
            self._free -= size
        else:
            self.left_out += 1

    def put_all(self, parts: Iterable[str]) -> None:
        for part in parts:
            self.put(part)

    def put_table(self, checks: Sequence[CheckReport]) -> None:
        if checks:
            self.put(_HEAD)
            self.put_all(map(_row, checks))
            self.put("", always=True)


def _top(report: Report) -> str:
    lines = [MARK, f"### compileguard: {headline(report.checks)}", ""]
    if report.checks:
        lines += [f"{totals(report.checks)}; {code(environment_line(report.environment))}", ""]
    return "\n".join(lines)


def _row(check: CheckReport) -> str:
    cells = [
        code(check.nodeid),
        _limited(number(check, "graph_breaks"), limit(check, "graph_breaks")),
        _limited(number(check, "recompiles"), limit(check, "recompiles")),
        parity(check),
        _limited(speedup(check), limit(check, "speedup")),
        _strong(verdict_word(check)),
    ]
    return f"| {' | '.join(cells)} |"


def _strong(word: str) -> str:
    return f"**{word}**" if word == "failed" else word


def _limited(text: str, bound: str) -> str:
    return inert(f"{text}, limit {bound}" if bound else text)


def _folded(check: CheckReport) -> str:
    findings = blamed(check)
    summary = f"{code(_name(check))}: {code('; '.join(map(said, findings)))}"
    lines = [*finding_lines(findings), *artifact_lines(check.artifacts)]
    return "\n".join(
        ["<details><summary>" + summary + "</summary>", "", fenced(lines), "", "</details>", ""]
    )


def _name(check: CheckReport) -> str:
    return f"{test_name(check.nodeid)} ({check.name})"


def _saved(checks: Sequence[CheckReport], run_url: str | None) -> list[str]:
    """Say where artefacts stand; files of a runner have no address, those it uploads have."""
    saved = [check.artifacts for check in checks if check.artifacts and check.artifacts.trace]
    if not saved:
        return []
    folders = [f"- {code(one.folder)}" for one in saved]
    most = len(folders) - _MOST_FOLDERS
    more = [f"- {most} more, all named in the JSON report"] if most > 0 else []
    where = f"[artefacts of this run]({run_url}#artifacts)" if run_url else "artefacts of this run"
    said = f"Trace and code of {counted(len(saved), 'check')} were saved"
    first = f"{said}; if the job uploads them, they are among the {where}.\n"
    return [first, "\n".join([*folders[:_MOST_FOLDERS], *more, ""])]


def _reasons(checks: Sequence[CheckReport]) -> list[str]:
    lines = [f"- {status} {where}: {code(text)}" for status, where, text in reasons(checks)]
    return [*lines, ""] if lines else []


def _left_out(count: int) -> str:
    return (
        f"{counted(count, 'part')} of this report had no room here; "
        "the terminal shows all, and so does `--compileguard-json` or `--compileguard-html`."
    )
