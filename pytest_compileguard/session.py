"""The results of one pytest session, and what is written of them at its end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pytest_compileguard.baseline.git import GitError, checked_out, revision
from pytest_compileguard.baseline.look_up import facts_key
from pytest_compileguard.baseline.orphans import gone_modules
from pytest_compileguard.baseline.pruning import WholeModule, completed
from pytest_compileguard.baseline.recording import Changes, Wish, record
from pytest_compileguard.baseline.renames import old_names
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.benchmark_export import enter
from pytest_compileguard.errors import CompileGuardError, OptionError
from pytest_compileguard.finding import Verdict
from pytest_compileguard.metrics import NOISE_THRESHOLD
from pytest_compileguard.options import Options
from pytest_compileguard.outputs import Outputs
from pytest_compileguard.report.document import document
from pytest_compileguard.report.summary import (
    SummaryLine,
    disabled_line,
    summary_lines,
    unguarded_lines,
)
from pytest_compileguard.report.update import hint_lines, refusal_lines, update_lines


def make_store(options: Options) -> Store:
    """Say where the baselines are: in the working tree, or at another revision.

    Raises:
        OptionError: There is no such revision.
    """
    found = None
    if options.baseline_ref:
        try:
            found = revision(options.baseline_ref, options.rootpath)
        except GitError as error:
            raise OptionError(f"{options.origin('baseline_ref')}: {error}") from error
    return Store(options.rootpath, options.baseline_dir, revision=found)


def to_wire(verdict: Verdict) -> dict[str, Any]:
    """Make plain values of a verdict, as pytest-xdist can carry them."""
    return encodable(msgspec.to_builtins(verdict))  # type: ignore[no-any-return]


def encodable(value: Any) -> Any:
    """Escape lone surrogates, from names and messages of the code under test.

    A worker that sends one crashes.
    """
    if isinstance(value, dict):
        return {key: encodable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [encodable(inner) for inner in value]
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


class Session:
    """Verdicts by test; of a test that ran again, the last ones."""

    def __init__(self, options: Options, store: Store, outputs: Outputs) -> None:
        self._options = options
        self._store = store
        self._outputs = outputs
        self._document: bytes | None = None
        self._by_test: dict[str, tuple[Verdict, ...]] = {}
        self._lines: dict[str, int] = {}
        self._spoiled: set[str] = set()
        self._unguarded: set[str] = set()
        self._reported: set[str] = set()
        self._collected: list[dict[str, dict[str, str]]] = []
        self._changes: Changes | None = None
        self._refused: dict[str, None] = {}
        self._problems: list[str] = []
        self._hints: tuple[str, ...] = ()

    def put(
        self,
        nodeid: str,
        outcome: str,
        wire: list[dict[str, Any]] | None,
        *,
        line: int | None = None,
        expected: bool = False,
    ) -> None:
        """Take up one report; a test that did not pass as a whole can't be recorded.

        Args:
            nodeid: Of the test.
            outcome: Of this phase of it.
            wire: Its verdicts, if they came with this report.
            line: Of the test, from 0, as pytest counts.
            expected: Whether it failed as it is marked to.
        """
        if line is not None:
            self._lines[nodeid] = line + 1
        self._reported.add(nodeid)
        if wire is not None:
            verdicts = msgspec.convert(wire, list[Verdict], strict=False)
            replace = msgspec.structs.replace
            self._by_test[nodeid] = tuple(replace(v, expected=expected) for v in verdicts)
            self._unguarded.discard(nodeid)
            if outcome == "passed" and not verdicts:
                self._unguarded.add(nodeid)
        if outcome not in ("passed", "rerun"):  # of a rerun, the next attempt decides
            self._spoiled.add(nodeid)

    def collected(self, whole: dict[str, dict[str, str]]) -> None:
        """Take up which modules one process collected as a whole, and their tests."""
        self._collected.append(whole)

    def refuse(self, problems: Iterable[str]) -> None:
        """Take up what a worker refused to run, unless another one said the same."""
        self._refused |= dict.fromkeys(problems)

    def write(self, *, complete: bool) -> bool:
        """Write all reports, and baselines if asked for; say whether something went wrong.

        A session that is not ``complete``, since it was interrupted, moves no baseline.
        """
        if self._refused:
            return True
        verdicts = self._verdicts()
        self._document = document(verdicts, rootpath=self._store.rootpath, lines=self._lines)
        self._outputs.write(self._document)
        self._problems += self._outputs.problems
        if not self._options.update_baseline:
            self._hints = old_names(self._store, self._verdicts(), self._whole())
            if self._store.baseline_dir is None:
                self._hints += gone_modules(self._store.rootpath, self._by_test)
        elif complete:
            self._record()
        elif self._by_test:
            self._problems.append("the run was interrupted: no baseline was changed")
        return bool(self._problems)

    def enter_benchmarks(self, benchmarks: Any) -> None:
        """Hand the samples to the session of pytest-benchmark, if there is one."""
        for verdict in self._verdicts():
            enter(benchmarks, verdict)

    def lines(self, *, width: int, verbosity: int) -> list[SummaryLine]:
        """The summary; nothing at all if no test used the plugin and nothing went wrong."""
        rootpath = self._store.rootpath
        told = update_lines(self._changes, self._problems, rootpath)
        told += [SummaryLine(text=note, yellow=True) for note in self._outputs.notes]
        refused = refusal_lines(tuple(self._refused))
        if self._options.disable:
            disabled = disabled_line(self._options.origin("disable"))
            return [*([disabled] if self._by_test else []), *told, *refused]
        verdicts = self._verdicts()
        summary = summary_lines(
            verdicts,
            width=width,
            verbosity=verbosity,
            rootpath=rootpath,
            recorded=() if self._changes is None else self._changes.recorded,
        )
        unguarded = unguarded_lines(self._unguarded)
        return [*summary, *unguarded, *hint_lines(self._hints), *told, *refused]

    def commands(self, *, at_tests: bool) -> list[str]:
        """The annotations for a job on GitHub Actions; empty elsewhere."""
        if self._document is None or self._options.disable:
            return []
        return self._outputs.commands(self._document, at_tests=at_tests)

    def _verdicts(self) -> list[Verdict]:
        return [verdict for some in self._by_test.values() for verdict in some]

    def _record(self) -> None:
        recordable = [
            verdict
            for nodeid, verdicts in self._by_test.items()
            for verdict in verdicts
            if nodeid not in self._spoiled and verdict.recordable and verdict.outcome == "passed"
        ]
        wish = Wish(
            mode=self._options.update_baseline or "all",
            noise=self._options.noise_threshold or NOISE_THRESHOLD,
            commit=checked_out(self._store.rootpath) if recordable else None,
            whole=self._whole(),
        )
        try:
            self._changes = record(self._store, recordable, wish)
        except CompileGuardError as error:
            self._problems.append(str(error))

    def _whole(self) -> tuple[WholeModule, ...]:
        """The modules of which every test was reported."""
        checks = {
            nodeid: [facts_key(verdict.nodeid, verdict.name) for verdict in verdicts]
            for nodeid, verdicts in self._by_test.items()
        }
        passed = self._reported - self._spoiled
        return completed(self._collected, self._reported, passed, checks)
