"""The numbers of a test as properties of its report: JUnit shows them beside the outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_compileguard.finding import Verdict
from pytest_compileguard.report.contract import CheckReport
from pytest_compileguard.report.document import check_report
from pytest_compileguard.report.plain_text import plain_line

PREFIX = "compileguard."
_NUMBERS = (
    "calls",
    "graphs",
    "graph_breaks",
    "break_events",
    "recompiles",
    "fallbacks",
    "parity",
    "kernels",
    "compile_time_s",
    "speedup",
    "speedup_low",
    "speedup_high",
    "eager_ms",
    "compiled_ms",
)
_MOST_IN_NAME = 120
_NOT_IN_XML = {0xFFFE: None, 0xFFFF: None}

Property = tuple[str, str | int | float]


def properties(verdicts: Sequence[Verdict]) -> list[Property]:
    """Give ``compileguard.<check>.<number>`` for all that was observed of one test."""
    return [one for verdict in verdicts for one in _of_check(check_report(verdict))]


def without_ours(others: Sequence[tuple[str, object]]) -> list[tuple[str, object]]:
    """Drop what an earlier attempt at the same test left."""
    return [one for one in others if not str(one[0]).startswith(PREFIX)]


def _of_check(check: CheckReport) -> Iterator[Property]:
    # Names come from the code under test, and not all characters may stand in XML.
    start = PREFIX + plain_line(check.name, _MOST_IN_NAME).translate(_NOT_IN_XML)
    yield f"{start}.outcome", check.outcome
    for name in _NUMBERS:
        value = getattr(check.observed, name)
        if value is not None:
            yield f"{start}.{name}", value
