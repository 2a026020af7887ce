"""What the terminal says of an update of the baselines, and of files that went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_compileguard.baseline.recording import Changes
from pytest_compileguard.findings.speed import QUIETER
from pytest_compileguard.findings.wording import counted, first_of
from pytest_compileguard.report.plain_text import plain_line, relative
from pytest_compileguard.report.summary import SummaryLine

_MOST_IN_LINE = 400
_MOST_NOISY = 3
_MOST_OF_REFUSAL = 1200  # it lists all that would be allowed


def update_lines(
    changes: Changes | None, problems: Sequence[str], rootpath: Path
) -> list[SummaryLine]:
    """One line for each entry that is not as it was, one with the totals, then problems."""
    lines = [] if changes is None else _told(changes, rootpath)
    shown = [f"ERROR: compileguard: {relative(text, rootpath)}" for text in problems]
    return [*lines, *(SummaryLine(text=plain_line(t, _MOST_IN_LINE), red=True) for t in shown)]


def hint_lines(hints: Sequence[str]) -> list[SummaryLine]:
    """One line for each stored entry, or file of them, that seems to belong elsewhere."""
    return [SummaryLine(text=plain_line(hint, _MOST_IN_LINE), yellow=True) for hint in hints]


def refusal_lines(refused: Sequence[str]) -> list[SummaryLine]:
    """One line for each test that workers refused to run, as pytest itself words such errors."""
    texts = [plain_line(f"ERROR: {text}", _MOST_OF_REFUSAL) for text in refused]
    return [SummaryLine(text=text, red=True) for text in texts]


def _told(changes: Changes, rootpath: Path) -> list[SummaryLine]:
    numbers = (
        f"{len(changes.added)} added, {len(changes.changed)} changed, "
        f"{len(changes.removed)} removed, {len(changes.kept)} kept"
    )
    total = f"compileguard baseline: {numbers}; {counted(len(changes.files), 'file')} written"
    texts = [f"  + {text}" for text in changes.added]
    texts += [f"  ~ {text}" for text in changes.changed]
    texts += [f"  - {text}" for text in changes.removed]
    texts += [f"  not stored: {text}" for text in changes.unstored]
    texts += [f"  {relative(str(path), rootpath)}" for path in changes.files]
    return [
        SummaryLine(text=total, bold=True),
        *(SummaryLine(text=plain_line(text, _MOST_IN_LINE)) for text in texts),
        *_noisy(changes.noisy),
    ]


def _noisy(noisy: Sequence[str]) -> list[SummaryLine]:
    """Say which timings are hardly worth being held to."""
    if not noisy:
        return []
    are, them = ("is", "it") if len(noisy) == 1 else ("are", "them")
    stored = f"noisy: {counted(len(noisy), 'timing')} {are} stored as measured"
    texts = [f"{stored}, but later runs can hardly be held to {them}: {QUIETER}, and record again"]
    texts += [f"  {text}" for text in first_of(noisy, _MOST_NOISY)]
    return [SummaryLine(text=plain_line(text, _MOST_IN_LINE), yellow=True) for text in texts]
