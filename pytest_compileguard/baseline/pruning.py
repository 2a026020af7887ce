"""Which stored entries belong to tests that are gone. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pytest_compileguard.baseline.entries import F, FactsEntry, TimingEntry
from pytest_compileguard.baseline.look_up import module_name, version_of, writable
from pytest_compileguard.environment import Environment
from pytest_compileguard.observation import Record


class WholeModule(Record):
    """A test module of which every test ran, so that what it lacks is gone."""

    path: str
    """Its node id: ``tests/test_x.py``."""
    tests: tuple[str, ...]
    """The ids of its tests within it."""
    passed: tuple[str, ...] = ()
    """Those that passed, so that each check of theirs was made."""
    checks: tuple[str, ...] = ()
    """The checks of all of them, by their keys in the file of the module."""


NO_CHECKS: Mapping[str, Sequence[str]] = {}


def completed(
    collected: Iterable[Mapping[str, Mapping[str, str]]],
    reported: Container[str],
    passed: Container[str] = (),
    checks: Mapping[str, Sequence[str]] = NO_CHECKS,
) -> tuple[WholeModule, ...]:
    """Keep the modules that all processes collected alike and of which every test reported.

    Args:
        collected: Of each process: by module, the ids of its tests by their whole node ids.
        reported: The node ids of all tests that told how they went.
        passed: The node ids of those that passed.
        checks: By node id, the keys of the checks that a test made.
    """
    first, *others = tuple(collected) or ({},)
    return tuple(
        WholeModule(
            path=module,
            tests=tuple(tests.values()),
            passed=tuple(inside for nodeid, inside in tests.items() if nodeid in passed),
            checks=tuple(key for nodeid in tests for key in checks.get(nodeid, ())),
        )
        for module, tests in first.items()
        if all(other.get(module) == tests for other in others)
        and all(nodeid in reported for nodeid in tests)
    )


class Pruning(Record):
    """What one run may drop from one file: of its own kind of device, up to its own torch.

    A test that only exists where there is a GPU is not gone because a run on a CPU lacks it.
    """

    module: str
    """The node id of the module."""
    prefix: str
    """What the keys of the module begin with; empty in the file of the module itself."""
    tests: frozenset[str]
    passed: frozenset[str]
    checks: frozenset[str]
    newest: Mapping[str, tuple[int, int]]
    """Version of torch by device type; in timings, by device model."""

    def drops(self, key: str, column: str, entry: FactsEntry | TimingEntry) -> bool:
        """Whether an entry of a test that is gone could have been recorded by this run."""
        kind = column.rpartition("torch ")[0].strip() or entry.recorded.device
        newest = self.newest.get(kind)
        return newest is not None and version_of(column) <= newest and self.is_gone(key)

    def is_gone(self, key: str) -> bool:
        """Whether no test of the module has this entry, or the one that had it, and passed."""
        if "" in self.tests:  # a module that is a test itself, and has no others
            return False
        inside = key.removeprefix(self.prefix)
        parts = inside.split("::")
        ids = ("::".join(parts[:count]) for count in range(len(parts), 0, -1))
        owner = next((test for test in ids if test in self.tests), None)
        return owner is None or (owner in self.passed and inside not in self.checks)


def facts_pruning(module: WholeModule, environments: Iterable[Environment]) -> Pruning:
    """Say what may be dropped from the facts of a module."""
    ran = [(e.device_type, version_of(e.torch_minor)) for e in environments]
    return _pruning(module, "", ran)


def timings_pruning(module: WholeModule, environments: Iterable[Environment]) -> Pruning:
    """Say what may be dropped from the timings of a module's folder."""
    ran = [(e.device_name, version_of(e.torch_minor)) for e in environments]
    return _pruning(module, writable(f"{module_name(module.path)}::"), ran)


def pruned(file: F, prunings: Iterable[Pruning]) -> tuple[F, tuple[str, ...]]:
    """Drop what is gone; say of which checks, and what."""
    by_prefix = {pruning.prefix: pruning for pruning in prunings}
    entries: dict[str, Mapping[str, Any]] = {}
    removed = []
    for key, columns in file.entries.items():
        module = f"{key.partition('::')[0]}::"
        pruning = by_prefix.get("") or by_prefix.get(module)
        gone = [c for c, e in columns.items() if pruning and pruning.drops(key, c, e)]
        if pruning:
            check = f"{pruning.module}::{key.removeprefix(pruning.prefix)}"
            removed += [f"{check}: {column}" for column in gone]
        if left := {column: entry for column, entry in columns.items() if column not in gone}:
            entries[key] = left
    return msgspec.structs.replace(file, entries=entries), tuple(removed)


def _pruning(module: WholeModule, prefix: str, ran: list[tuple[str, tuple[int, int]]]) -> Pruning:
    return Pruning(
        module=module.path,
        prefix=prefix,
        tests=frozenset(map(writable, module.tests)),
        passed=frozenset(map(writable, module.passed)),
        checks=frozenset(module.checks),
        newest=dict(sorted(ran)),
    )
