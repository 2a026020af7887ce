"""What checks of tests that are marked to fail failed on: the mark takes every failure alike."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_compileguard.finding import Verdict
from pytest_compileguard.report.labels import (
    crowded_tests,
    finding_label,
    status_label,
    test_name,
)
from pytest_compileguard.report.plain_text import plain_line

_MOST_IN_LINE = 240


def expected_failure_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Make one line for each check that failed as expected: ``xfailed: test_a: graph breaks``."""
    crowded = crowded_tests(verdicts)
    tests = {verdict.nodeid for verdict in verdicts}
    names = [test_name(nodeid) for nodeid in tests]
    lines = []
    for verdict in verdicts:
        if verdict.fails and verdict.expected:
            short = test_name(verdict.nodeid)
            name = short if names.count(short) == 1 else verdict.nodeid
            check = f" ({verdict.name})" if verdict.nodeid in crowded else ""
            lines.append(f"xfailed: {name}{check}: {', '.join(_failed_on(verdict))}")
    return [plain_line(line, _MOST_IN_LINE) for line in lines]


def _failed_on(verdict: Verdict) -> list[str]:
    """Name the findings by which it fails; of those that only a strict run counts, say how."""
    return [
        finding_label(finding)
        if finding.status == "failed"
        else f"{finding_label(finding)} ({status_label(finding.status)})"
        for finding in verdict.findings
        if finding.fails(strict=verdict.strict)
    ]
