"""What all forms of the report show of a check: its words and numbers, from its record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytest_compileguard.environment import Environment
from pytest_compileguard.finding import Finding, SavedText
from pytest_compileguard.findings.code_change import CHANGED, SAME
from pytest_compileguard.findings.wording import counted, factor_text
from pytest_compileguard.metrics import FACTS
from pytest_compileguard.report.contract import CheckReport
from pytest_compileguard.report.labels import finding_label, status_label, verdict_label
from pytest_compileguard.report.told_once import told_once

NOT_KNOWN = "-"
_COUNTED = frozenset(f"baseline.{metric.name}" for metric in FACTS)
_SELF_EVIDENT = ("compiled", "fallbacks")
VERDICTS = ("failed", "inconclusive", "not checked", "xfailed", "passed")
"""From what needs a reader most to what needs one least."""


def verdict_word(check: CheckReport) -> str:
    """Say the verdict of a check as it counts."""
    return verdict_label(check.outcome, fails=check.fails, expected=check.expected)


def by_urgency(checks: Sequence[CheckReport]) -> list[CheckReport]:
    """Put what failed first, then what is unclear."""
    return sorted(checks, key=lambda check: (VERDICTS.index(verdict_word(check)), check.nodeid))


def totals(checks: Sequence[CheckReport]) -> str:
    """Say ``2 failed, 5 passed``."""
    words = Counter(map(verdict_word, checks))
    return ", ".join(f"{words[word]} {word}" for word in VERDICTS if words[word]) or "no checks"


def headline(checks: Sequence[CheckReport]) -> str:
    """Say in one line how it went."""
    failed = sum(verdict_word(check) == "failed" for check in checks)
    if not checks:
        return "no checks"
    if failed:
        return f"{failed} of {counted(len(checks), 'check')} failed"
    if all(verdict_word(check) in ("passed", "xfailed") for check in checks):
        return f"{counted(len(checks), 'check')} passed"
    return f"{counted(len(checks), 'check')}, none failed"


def blamed(check: CheckReport) -> list[Finding]:
    """Give the findings by which a check fails."""
    return [f for f in check.findings if f.fails(strict=check.strict)] if check.fails else []


def unclear(check: CheckReport) -> list[Finding]:
    """Give the findings that nothing was found out about, and those that warn."""
    return [f for f in check.findings if f.warns or f.status in ("inconclusive", "not_checked")]


def number(check: CheckReport, name: str) -> str:
    """Show one number of the trace, with a question mark if it can't be trusted."""
    value = getattr(check.observed, name)
    if value is None:
        return NOT_KNOWN
    return f"{value}?" if check.unreliable else str(value)


def limit(check: CheckReport, metric: str) -> str:
    """Show the limit of a metric, if the test has one."""
    limits = (f.limit for f in check.findings if f.metric == metric and f.limit is not None)
    value = next(limits, None)
    if value is None:
        return ""
    return factor_text(float(value)) if metric == "speedup" else str(value)


def parity(check: CheckReport) -> str:
    """Say how parity went."""
    return NOT_KNOWN if check.observed.parity == "not_checked" else check.observed.parity


def code_said(*, same: bool | None) -> str:
    """Say whether generated code is that of the baseline; empty where that is not known."""
    return "" if same is None else SAME if same else CHANGED


def saved_code_said(check: CheckReport, text: SavedText) -> str:
    """Say the same of one saved text: a graph, a part of which may have several."""
    named = (text.kind, text.compile_id, text.part)
    codes = check.code.graphs if check.code else ()
    found = (code.same for code in codes if ("code", code.compile_id, code.part) == named)
    return code_said(same=next(found, None))


def speedup(check: CheckReport) -> str:
    """Say the speedup with its interval."""
    seen = check.observed
    if seen.speedup is None:
        return NOT_KNOWN
    text = factor_text(seen.speedup)
    if seen.speedup_low is None or seen.speedup_high is None:
        return text
    return f"{text} [{seen.speedup_low:.2f}, {seen.speedup_high:.2f}]"


def said(finding: Finding) -> str:
    """Say a finding in one line: ``graph breaks 1, limit 0``."""
    if finding.metric in _SELF_EVIDENT:
        return finding.message
    return f"{finding_label(finding)} {numbered(finding)}"


def numbered(finding: Finding) -> str:
    """Give the message, with the counts of a fact that is worse than its baseline."""
    if finding.metric not in _COUNTED or finding.status != "failed":
        return finding.message
    return f"{finding.observed}, baseline {finding.baseline}: {finding.message}"


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Give findings with their evidence, and what to change."""
    lines = []
    for finding, told in zip(findings, told_once(findings), strict=True):
        lines.append(said(finding))
        lines += [f"  {line}" for line in told.evidence]
        lines += [f"    {line}" for line in told.remedy]
    return lines


def environment_line(environment: Environment | None) -> str:
    """Say in one line where it ran."""
    if environment is None:
        return "nothing ran"
    parts = [f"torch {environment.torch}", environment.device_name]
    parts += [f"CUDA {environment.cuda}"] if environment.cuda else []
    parts += [f"Triton {environment.triton}"] if environment.triton else []
    return ", ".join([*parts, f"Python {environment.python}", environment.platform])


def reasons(checks: Sequence[CheckReport]) -> list[tuple[str, str, str]]:
    """Say why something was not judged, once for each reason: status, where, why."""
    found: dict[tuple[str, str], list[CheckReport]] = {}
    for check in checks:
        for finding in unclear(check):
            key = ("warning" if finding.warns else status_label(finding.status), said(finding))
            found.setdefault(key, []).append(check)
    return [
        (status, f"in {counted(len(some), 'check')}", text)
        for (status, text), some in found.items()
    ]
