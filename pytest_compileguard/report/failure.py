"""The message of a failing test: one sentence, then evidence, then what to change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from pytest_compileguard.finding import Finding, Status, Verdict
from pytest_compileguard.findings.baseline_advice import UPDATE
from pytest_compileguard.findings.speed import interval_text, speed_digits
from pytest_compileguard.findings.wording import counted, factor_digits, factor_text, seconds_text
from pytest_compileguard.report.artifact_text import artifact_lines
from pytest_compileguard.report.labels import (
    crowded_tests,
    finding_label,
    metric_label,
    shown_findings,
    status_label,
    test_name,
)
from pytest_compileguard.report.plain_text import clipped, plain, plain_line, relative
from pytest_compileguard.report.told_once import told_once

_LABEL_WIDTH = 15
_GAP = 4
_INDENT_OF_EVIDENCE = 4
_MOST = 240
_MOST_IN_ALL = 1200
_MOST_IN_ROW = 320
_MOST_IN_ENTRY = 320
_MOST_IN_DETAIL = 700
"""Advice of torch and of this package: what to do stands at its end."""
_MOST_IN_NAME = 120
_MOST_IN_CAUSE = 60
_WHERE = re.compile(r"^call \d+: | in \d+ of \d+ calls?.*$")
_SPEAKING = ("compiled", "parity")
"""Metrics whose messages need no label."""
_UNBLAMED: tuple[Status, ...] = ("passed", "inconclusive", "not_checked")


def failure_text(verdicts: Sequence[Verdict], *, rootpath: Path | None) -> str:
    """Say why a test fails, all its failing checks in turn; empty if none fails.

    Args:
        verdicts: All verdicts of one test, also those that do not fail.
        rootpath: Paths below it are shown relative to it.
    """
    crowded = crowded_tests(verdicts)
    blocks = [
        _block(verdict, named=verdict.nodeid in crowded) for verdict in verdicts if verdict.fails
    ]
    return "\n\n".join("\n".join(_finished(block, rootpath)) for block in blocks)


def _finished(lines: Sequence[str], rootpath: Path | None) -> list[str]:
    """Make lines safe and short; those at the margin list entries that are short already."""
    return [plain_line(relative(line, rootpath), _most(line)) for line in lines]


def _most(line: str) -> int:
    """A line of evidence may be cut, advice hardly; a command that is to be copied may not."""
    if not line.startswith(" ") or f" {UPDATE}" in line:
        return _MOST_IN_ALL
    indent = len(line) - len(line.lstrip(" "))
    if indent < _INDENT_OF_EVIDENCE:
        return _MOST_IN_ROW
    return _MOST if indent == _INDENT_OF_EVIDENCE else _MOST_IN_DETAIL


def _block(verdict: Verdict, *, named: bool) -> list[str]:
    findings = shown_findings(verdict)
    blamed = [finding for finding in findings if finding.fails(strict=verdict.strict)]
    others = [finding for finding in findings if not finding.fails(strict=verdict.strict)]
    lines = [_sentence(verdict, findings, blamed, named=named)]
    for row, told in zip(_rows(blamed, verdict), told_once(blamed), strict=True):
        lines.append(f"  {row}")
        lines += [f"    {line}" for line in told.evidence]
        lines += [f"      {line}" for line in told.remedy]
    at_fault = {metric_label(finding.metric) for finding in blamed}
    rest = [f for f in others if f.status != "passed" or metric_label(f.metric) not in at_fault]
    return [*lines, *_rest(rest), *artifact_lines(verdict.artifacts)]


def _sentence(
    verdict: Verdict, findings: Sequence[Finding], blamed: Sequence[Finding], *, named: bool
) -> str:
    """Name the first cause ahead of the numbers: pytest's summary shows little more than that."""
    name = plain_line(test_name(verdict.nodeid), _MOST_IN_NAME)
    if named:
        name = f"{name} ({plain_line(verdict.name, _MOST_IN_NAME)})"
    total = counted(len(findings), "check")
    failed = sum(finding.status == "failed" for finding in findings)
    parts = [f"{failed} of {total} failed"] if failed else []
    for status in ("inconclusive", "not_checked") if verdict.strict else ():
        if count := sum(f.status == status and not f.declined for f in findings):
            of_all = "" if parts else f" of {total}"
            parts.append(f"{count}{of_all} {status_label(status)}")
    counts = ", ".join(parts) or "nothing was checked"
    strict = verdict.outcome != "failed"
    if not blamed:
        return f"{name}: {counts}{' (strict)' if strict else ''}"
    return f"{name}: {_cause(blamed[0], verdict)} ({counts}{', strict' if strict else ''})"


def _cause(finding: Finding, verdict: Verdict) -> str:
    """Say the cause in a few words: ``recompiles 1 > 0``."""
    if finding.status != "failed":
        return f"{finding_label(finding)} {status_label(finding.status)}"
    label, observed = metric_label(finding.metric), finding.observed
    against = finding.limit if finding.limit is not None else finding.baseline
    if isinstance(observed, int | float) and isinstance(against, int | float):
        digits = _digits(finding, verdict)
        sign = ">" if observed > against else "<" if observed < against else "="
        shown = [_number(value, finding, digits) for value in (observed, against)]
        return f"{label} {shown[0]} {sign} {shown[1]}"
    said = _WHERE.sub("", plain(finding.message)).partition(": ")[0]
    said = said if finding.metric in _SPEAKING else f"{label} {said}"
    return clipped(said, _MOST_IN_CAUSE)


def _rows(findings: Sequence[Finding], verdict: Verdict) -> list[str]:
    """Make one row for each finding, with its numbers in columns."""
    rows = [_cells(finding, verdict) for finding in findings]
    columns = zip_longest(*(row for row in rows if len(row) > 1), fillvalue="")
    widths = [max(map(len, column)) + _GAP for column in columns]
    return [
        f"{metric_label(finding.metric).ljust(_LABEL_WIDTH - 1)} {_joined(row, widths)}"
        for finding, row in zip(findings, rows, strict=True)
    ]


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    if len(row) == 1:
        return row[0]
    return "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()


def _cells(finding: Finding, verdict: Verdict) -> list[str]:
    """Split a finding in observed, limit or baseline, and the rest; or say its message only."""
    against = finding.limit if finding.limit is not None else finding.baseline
    if finding.status != "failed" or finding.observed is None or against is None:
        status = "" if finding.status == "failed" else f"{status_label(finding.status)}: "
        return [f"{status}{finding.message}"]
    kind = "limit" if finding.limit is not None else "baseline"
    digits = _digits(finding, verdict)
    cells = [
        f"observed {_number(finding.observed, finding, digits)}",
        f"{kind} {_number(against, finding, digits)}",
    ]
    if verdict.speed is not None and finding.metric.endswith("speedup"):
        share = f"{100 * verdict.speed.confidence:g} %"
        interval = interval_text(verdict.speed, _limit(finding))
        cells.append(f"{interval} at {share}, {verdict.speed.clock} clock")
    elif kind == "baseline":
        cells.append(finding.message)
    return cells


def _digits(finding: Finding, verdict: Verdict) -> int:
    return 2 if verdict.speed is None else speed_digits(verdict.speed, _limit(finding))


def _limit(finding: Finding) -> float | None:
    return finding.limit if isinstance(finding.limit, float | int) else None


def _number(value: float | str, finding: Finding, digits: int) -> str:
    if isinstance(value, str):
        return value
    if finding.metric == "compile_time":
        return seconds_text(value)
    if finding.metric == "peak_memory":
        return factor_text(value, factor_digits(_limit(finding), value))
    return factor_text(value, digits) if finding.metric.endswith("speedup") else str(value)


def _rest(findings: Sequence[Finding]) -> list[str]:
    """List what did not fail, a line for each status."""
    lines = []
    for status in _UNBLAMED:
        entries = [_entry(finding) for finding in findings if finding.status == status]
        if entries:
            lines.append(f"{status_label(status)}: {', '.join(entries)}")
    return lines


def _entry(finding: Finding) -> str:
    label = finding_label(finding)
    passed = finding.status == "passed"
    text = f"{label} {finding.message}" if passed else f"{label} ({finding.message})"
    return plain_line(text, _MOST_IN_ENTRY)
