"""The end of a session: the table of checks, totals, and what was not checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_compileguard.finding import Finding, Status, Verdict
from pytest_compileguard.findings.baseline_advice import TIGHTEN
from pytest_compileguard.findings.parity import training_place
from pytest_compileguard.findings.wording import MOST_LINES, counted, factor_text, first_of
from pytest_compileguard.observation import (
    ParityObservation,
    Record,
    SpeedObservation,
)
from pytest_compileguard.report.expected_failures import expected_failure_lines
from pytest_compileguard.report.labels import (
    crowded_tests,
    finding_label,
    is_improvement,
    metric_label,
    shown_findings,
    status_label,
    test_name,
)
from pytest_compileguard.report.modes import mode_lines
from pytest_compileguard.report.plain_text import plain, plain_line, relative
from pytest_compileguard.report.summary_table import outcome_text, summary_table

_MOST_IN_LINE = 320
_MOST_TESTS = 3
_MOST_OF_COMMAND = 1200
_UNCLEAR: tuple[Status, ...] = ("inconclusive", "not_checked")


class SummaryLine(Record):
    """One line, and how the terminal is to show it."""

    text: str
    red: bool = False
    green: bool = False
    yellow: bool = False
    bold: bool = False

    @property
    def markup(self) -> dict[str, bool]:
        """The keyword arguments for pytest's terminal writer."""
        return {"red": self.red, "green": self.green, "yellow": self.yellow, "bold": self.bold}


@dataclass(slots=True)
class _Reason:
    """Which checks and metrics one reason kept from being judged."""

    checks: set[int] = field(default_factory=set)
    labels: dict[str, None] = field(default_factory=dict)
    tests: dict[str, None] = field(default_factory=dict)
    """Of inconclusive checks, which may pass."""
    remedy: str = ""


def summary_lines(
    verdicts: Sequence[Verdict],
    *,
    width: int,
    verbosity: int,
    rootpath: Path | None = None,
    recorded: Collection[str] = (),
) -> list[SummaryLine]:
    """Make the whole summary; empty without verdicts.

    Args:
        verdicts: All of the session, in any order.
        width: Columns of the terminal.
        verbosity: As pytest counts it. Below 0, only checks that fail are listed;
            above 0, each check is followed by its findings.
        rootpath: Paths below it are shown relative to it.
        recorded: Keys of checks that this run recorded: there is nothing to be offered.
    """
    if not verdicts:
        return []
    ordered = sorted(verdicts, key=lambda verdict: (verdict.nodeid, verdict.name))
    listed = [v for v in ordered if _is_red(v) or verbosity >= 0]
    lines: list[SummaryLine] = []
    if listed:
        heading, *rows = summary_table(listed, crowded_tests(ordered), width)
        lines.append(SummaryLine(text=heading, bold=True))
        for row, verdict in zip(rows, listed, strict=True):
            lines.append(_coloured(row, verdict))
            lines += _details(verdict, rootpath) if verbosity > 0 else ()
    known = [SummaryLine(text=text, yellow=True) for text in expected_failure_lines(ordered)]
    told = [*known, *_reasons(ordered), *_unread(ordered)]
    told += _without_gradients(ordered) if verbosity >= 0 else ()
    told += [
        *_warnings(ordered, rootpath),
        *_improvements(v for v in ordered if v.key not in recorded),
    ]
    lines += [SummaryLine(text=text) for text in mode_lines(ordered)]
    return [*lines, _totals(ordered), *told]


def disabled_line(origin: str) -> SummaryLine:
    """Say that nothing was checked, and by what."""
    text = f"compileguard is disabled ({origin}): calls ran eager, nothing was checked"
    return SummaryLine(text=text, yellow=True)


def unguarded_lines(nodeids: Collection[str]) -> list[SummaryLine]:
    """Tell of the tests that could have checked something and did not; empty without any."""
    if not nodeids:
        return []
    names = ", ".join(first_of(sorted(nodeids)))
    text = f"{counted(len(nodeids), 'test')} took compileguard and guarded nothing: {names}"
    return [SummaryLine(text=plain_line(text, _MOST_OF_COMMAND), yellow=True)]


def _coloured(text: str, verdict: Verdict) -> SummaryLine:
    if _is_red(verdict):
        return SummaryLine(text=text, red=True)
    clear = all(f.status == "passed" and not f.warns for f in verdict.findings)
    return SummaryLine(text=text, green=clear, yellow=not clear)


def _details(verdict: Verdict, rootpath: Path | None) -> list[SummaryLine]:
    """Show what each finding says, with its evidence."""
    lines = []
    for finding in shown_findings(verdict):
        status = status_label(finding.status)
        lines.append(f"  {status:<12}  {finding_label(finding)} {finding.message}")
        lines += [f"    {line}" for line in finding.evidence]
    texts = [plain_line(relative(line, rootpath), _MOST_IN_LINE) for line in lines]
    return [SummaryLine(text=text) for text in texts]


def _totals(verdicts: Sequence[Verdict]) -> SummaryLine:
    words = Counter(map(outcome_text, verdicts))
    order = ("failed", "inconclusive", "not checked", "xfailed", "passed")
    counts = ", ".join(f"{words[word]} {word}" for word in order if words[word])
    fails = any(map(_is_red, verdicts))
    unclear = not set(words) <= {"passed", "xfailed"}
    return SummaryLine(
        text=f"{counted(len(verdicts), 'check')}: {counts}",
        red=fails,
        green=not unclear,
        yellow=unclear and not fails,
        bold=True,
    )


def _reasons(verdicts: Sequence[Verdict]) -> list[SummaryLine]:
    """List why something was not judged, once for each reason."""
    reasons: dict[tuple[Status, str], _Reason] = {}
    for at, verdict in enumerate(verdicts):
        for finding in verdict.findings:
            if finding.status in _UNCLEAR:
                reason = reasons.setdefault((finding.status, finding.message), _Reason())
                reason.checks.add(at)
                reason.labels.setdefault(finding_label(finding))
                reason.tests.setdefault(test_name(verdict.nodeid))
                if finding.status == "inconclusive":
                    reason.remedy = finding.remedy
    ordered = sorted(reasons.items(), key=lambda item: _UNCLEAR.index(item[0][0]))
    texts = [_reason_text(*key, reason, of_all=len(verdicts)) for key, reason in ordered]
    return [SummaryLine(text=plain_line(text, _MOST_IN_LINE), yellow=True) for text in texts]


def _reason_text(status: Status, message: str, reason: _Reason, *, of_all: int) -> str:
    where = f"in {counted(len(reason.checks), 'check')}"
    if status == "inconclusive" or len(reason.checks) < of_all:
        # Where stands nowhere else, as such a test passes; what holds for all needs no names.
        where += f" ({', '.join(first_of(list(reason.tests), _MOST_TESTS))})"
    advice = f"; {reason.remedy}" if reason.remedy else ""
    return f"{status_label(status)}: {', '.join(reason.labels)} {where}: {message}{advice}"


def _unread(verdicts: Sequence[Verdict]) -> list[SummaryLine]:
    """Say once why the state of the GPU is not known."""
    speeds = (verdict.observation.speed for verdict in verdicts)
    reasons = dict.fromkeys(s.gpu_unread for s in speeds if isinstance(s, SpeedObservation))
    texts = [f"note: the state of the GPU was not read: {reason}" for reason in reasons if reason]
    return [SummaryLine(text=plain_line(text, _MOST_IN_LINE)) for text in texts]


def _without_gradients(verdicts: Sequence[Verdict]) -> list[SummaryLine]:
    """Say in how many checks a wrong gradient could not have been seen."""
    compared = without = 0
    steps: list[str] = []
    for verdict in verdicts:
        seen = verdict.observation.parity
        if isinstance(seen, ParityObservation) and seen.calls_compared:
            compared += 1
            if training_place(seen, verdict.observation.compile):
                steps.append(test_name(verdict.nodeid))
            else:
                without += not seen.gradients_compared
    texts = []
    of_all = f"of {counted(compared, 'check')}"
    if without:
        reason = "none were required, or grad mode was off"
        texts.append(f"note: {without} {of_all} compared no gradients: {reason}")
    if steps:
        guards = "guards" if len(steps) == 1 else "guard"
        named = ", ".join(first_of(list(dict.fromkeys(steps)), _MOST_TESTS))
        texts.append(
            f"note: {len(steps)} {of_all} {guards} a step of training that leaves no gradients to "
            f"compare ({named}): compileguard.training compares them"
        )
    return [SummaryLine(text=plain_line(text, _MOST_IN_LINE)) for text in texts]


def _warnings(verdicts: Sequence[Verdict], rootpath: Path | None) -> list[SummaryLine]:
    """List what is worse than the baseline without failing."""
    texts = []
    for verdict in verdicts:
        for finding in verdict.findings:
            if finding.warns:
                texts.append(f"warning: {plain(verdict.key)}: {_change(finding)}")
                texts += [f"  {line}" for line in finding.evidence]
    shown = [plain_line(relative(text, rootpath), _MOST_IN_LINE) for text in texts]
    return [SummaryLine(text=text, yellow=True) for text in shown]


def _improvements(verdicts: Iterable[Verdict]) -> list[SummaryLine]:
    """Offer to tighten baselines that are worse than what was observed."""
    sound = (verdict for verdict in verdicts if verdict.recordable and not verdict.fails)
    better = [verdict for verdict in sound if any(map(is_improvement, verdict.findings))]
    if not better:
        return []
    count = counted(len(better), "check")
    texts = [f"better than the baseline: {count}; record with {TIGHTEN}"]
    texts += [_offer(verdict) for verdict in better[:MOST_LINES]]
    if len(better) > MOST_LINES:
        texts.append(f"  and {len(better) - MOST_LINES} more")
    return [SummaryLine(text=text, green=True) for text in texts]


def _offer(verdict: Verdict) -> str:
    """Give the numbers that became better, and the command that records them."""
    found = [finding for finding in verdict.findings if is_improvement(finding)]
    numbers = ", ".join(_change(finding) for finding in found)
    return plain_line(f"  tighten: {numbers}, run {found[0].remedy}", _MOST_OF_COMMAND)


def _change(finding: Finding) -> str:
    label, stored, observed = (
        metric_label(finding.metric),
        finding.baseline,
        finding.observed,
    )
    if isinstance(observed, float) and isinstance(stored, float | int):
        return f"{label} {factor_text(stored)} -> {factor_text(observed)}"
    return f"{label} {stored} -> {observed}"


def _is_red(verdict: Verdict) -> bool:
    """Whether the check makes the run fail: a test that is marked to fail does not."""
    return verdict.fails and not verdict.expected
