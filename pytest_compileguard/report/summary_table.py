"""The table at the end of a session: one line a check, in the columns that fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_compileguard.finding import Verdict
from pytest_compileguard.findings.speed import speed_text
from pytest_compileguard.findings.wording import factor_text
from pytest_compileguard.metrics import facts_of
from pytest_compileguard.observation import CompileObservation, ParityObservation, Record
from pytest_compileguard.report.labels import verdict_label
from pytest_compileguard.report.plain_text import plain, shortened

_NOT_KNOWN = "-"
_GAP = "  "
_LEAST_NAME = 16
_SHARE_OF_NAMES = 4


class _Column(Record):
    heading: str
    cell: Callable[[Verdict], str]


def summary_table(verdicts: Sequence[Verdict], crowded: frozenset[str], width: int) -> list[str]:
    """Lay out the heading and one row for each verdict."""
    names = ["check", *(_name(verdict, named=verdict.nodeid in crowded) for verdict in verdicts)]
    longest = max(map(len, names))
    columns = _fitting(verdicts, width, longest)
    widths = [_column_width(column, verdicts) for column in columns]
    names = _fitted(names, max(width - _taken(columns, verdicts), _LEAST_NAME))
    name_width = max(map(len, names))
    rows = [[column.heading for column in columns]]
    rows += [[column.cell(verdict) for column in columns] for verdict in verdicts]
    return [
        _GAP.join([name.ljust(name_width), *map(str.rjust, row, widths)])
        for name, row in zip(names, rows, strict=True)
    ]


def _fitting(verdicts: Sequence[Verdict], width: int, longest: int) -> tuple[_Column, ...]:
    """Choose the widest layout that leaves a fair share of the width to the names."""
    least = min(longest, max(_LEAST_NAME, width // _SHARE_OF_NAMES))
    fitting = (c for c in _LAYOUTS if width - _taken(c, verdicts) >= least)
    return next(fitting, _LAYOUTS[-1])


def _taken(columns: Sequence[_Column], verdicts: Sequence[Verdict]) -> int:
    return sum(len(_GAP) + _column_width(column, verdicts) for column in columns)


def _column_width(column: _Column, verdicts: Sequence[Verdict]) -> int:
    return max(len(text) for text in (column.heading, *map(column.cell, verdicts)))


def _name(verdict: Verdict, *, named: bool) -> str:
    return plain(f"{verdict.nodeid} ({verdict.name})" if named else verdict.nodeid)


def _fitted(names: Sequence[str], width: int) -> list[str]:
    """Shorten names where one is too long: the files go first, since the tests tell more.

    They go in all rows alike, unless two rows could then not be told apart.
    """
    if max(map(len, names)) <= width:
        return list(names)
    tests = [name.partition("::")[2] or name for name in names]
    alike = len(set(tests)) < len(set(names))
    shown = [
        name if alike and len(name) <= width else test
        for name, test in zip(names, tests, strict=True)
    ]
    return [shortened(name, width) for name in shown]


def _graphs(verdict: Verdict) -> str:
    return _fact(verdict, "graphs")


def _breaks(verdict: Verdict) -> str:
    return _fact(verdict, "graph_breaks")


def _recompiles(verdict: Verdict) -> str:
    return _fact(verdict, "recompiles")


def _fact(verdict: Verdict, name: str) -> str:
    """Show a number of the trace, with a question mark if it can't be trusted."""
    seen = verdict.observation.compile
    if not isinstance(seen, CompileObservation):
        return _NOT_KNOWN
    return f"{facts_of(seen)[name]}{'?' if seen.unreliable else ''}"


def _parity(verdict: Verdict) -> str:
    seen = verdict.observation.parity
    finding = next((f for f in verdict.findings if f.metric == "parity"), None)
    if finding is not None and finding.status == "failed":
        return "failed"
    if not isinstance(seen, ParityObservation) or not seen.calls_compared:
        return _NOT_KNOWN
    return f"{seen.calls_compared}/{seen.calls}"


def _speedup(verdict: Verdict) -> str:
    return _NOT_KNOWN if verdict.speed is None else factor_text(verdict.speed.speedup)


def _interval(verdict: Verdict) -> str:
    return _NOT_KNOWN if verdict.speed is None else speed_text(verdict.speed)


def _compile_time(verdict: Verdict) -> str:
    seen = verdict.observation.compile
    return f"{seen.compile_time_s:.1f} s" if isinstance(seen, CompileObservation) else _NOT_KNOWN


def outcome_text(verdict: Verdict) -> str:
    """Say how a check ended."""
    return verdict_label(verdict.outcome, fails=verdict.fails, expected=verdict.expected)


_GRAPHS = _Column(heading="graphs", cell=_graphs)
_BREAKS = _Column(heading="breaks", cell=_breaks)
_RECOMPILES = _Column(heading="recompiles", cell=_recompiles)
_PARITY = _Column(heading="parity", cell=_parity)
_SPEEDUP = _Column(heading="speedup", cell=_speedup)
_INTERVAL = _Column(heading="speedup", cell=_interval)
_COMPILE_TIME = _Column(heading="compiling", cell=_compile_time)
_VERDICT = _Column(heading="verdict", cell=outcome_text)

# From wide to narrow: what a reader misses least goes first.
_LAYOUTS: tuple[tuple[_Column, ...], ...] = (
    (_GRAPHS, _BREAKS, _RECOMPILES, _PARITY, _INTERVAL, _COMPILE_TIME, _VERDICT),
    (_GRAPHS, _BREAKS, _RECOMPILES, _PARITY, _INTERVAL, _VERDICT),
    (_BREAKS, _RECOMPILES, _PARITY, _INTERVAL, _VERDICT),
    (_BREAKS, _RECOMPILES, _PARITY, _SPEEDUP, _VERDICT),
    (_BREAKS, _RECOMPILES, _SPEEDUP, _VERDICT),
    (_BREAKS, _VERDICT),
)
