"""What reports call checks, metrics and statuses."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_compileguard.finding import Finding, Status, Verdict
from pytest_compileguard.metrics import TABLE

_LABELS = {metric.name: metric.label for metric in TABLE}
_PRECONDITIONS = ("compiled", "fallbacks")


def metric_label(metric: str) -> str:
    """Name a metric: ``graph breaks``; those of baselines too."""
    _, _, name = metric.rpartition("baseline.")
    return _LABELS.get(name, name.replace("_", " "))


def finding_label(finding: Finding) -> str:
    """Name a finding where it stands among others: ``baseline graph breaks``."""
    label = metric_label(finding.metric)
    return f"baseline {label}" if finding.metric.startswith("baseline.") else label


def status_label(status: Status) -> str:
    """Name a status in words."""
    return status.replace("_", " ")


def verdict_label(outcome: Status, *, fails: bool, expected: bool) -> str:
    """Say how a check counts: strict ones fail by what is unclear; some are meant to fail."""
    if fails:
        return "xfailed" if expected else "failed"
    return status_label(outcome)


def shown_findings(verdict: Verdict) -> tuple[Finding, ...]:
    """Leave out the preconditions that hold: nobody asked for them, nobody needs to read them."""
    return tuple(
        finding
        for finding in verdict.findings
        if finding.status != "passed" or finding.metric not in _PRECONDITIONS
    )


def is_improvement(finding: Finding) -> bool:
    """Whether a number is better than its baseline, which could be made tighter."""
    compared = finding.metric.startswith("baseline.") and finding.status == "passed"
    return compared and finding.observed != finding.baseline and bool(finding.remedy)


def test_name(nodeid: str) -> str:
    """Take the name of the test, with its parameters, from a node id."""
    _, separator, path = nodeid.partition("::")
    name, bracket, parameters = (path if separator else nodeid).partition("[")
    return f"{name.rpartition('::')[2]}{bracket}{parameters}"


def crowded_tests(verdicts: Iterable[Verdict]) -> frozenset[str]:
    """Find the node ids of tests that have several checks: they need the check's name too."""
    once: set[str] = set()
    crowded: set[str] = set()
    for verdict in verdicts:
        (crowded if verdict.nodeid in once else once).add(verdict.nodeid)
    return frozenset(crowded)
