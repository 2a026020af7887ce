"""What several findings of one check say alike is shown once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pytest_compileguard.finding import Finding
from pytest_compileguard.findings.breaks import NEW


class Told(NamedTuple):
    """What stands below one finding."""

    evidence: tuple[str, ...]
    remedy: tuple[str, ...]


def told_once(findings: Sequence[Finding]) -> list[Told]:
    """Give evidence and remedies, one for each finding.

    Evidence is shown where it comes first: a break fails its limit and its baseline. What several
    advise, one command mostly, stands below the last of them.
    """
    known: set[str] = set()
    told = []
    for number, finding in enumerate(findings, 1):
        lines = [line.removeprefix(NEW) for line in finding.evidence]
        repeated = bool(lines) and known.issuperset(lines)
        known.update(lines)
        later = {line for other in findings[number:] for line in other.remedy.splitlines()}
        remedy = (line for line in finding.remedy.splitlines() if line not in later)
        told.append(Told(("as above",) if repeated else finding.evidence, tuple(remedy)))
    return told
