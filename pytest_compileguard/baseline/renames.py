"""Finds entries that belong to no test any more, and those that a new name may have had before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from pytest_compileguard.baseline.change import is_equal
from pytest_compileguard.baseline.entries import FactsEntry, FactsFile, printable
from pytest_compileguard.baseline.look_up import facts_column, facts_key
from pytest_compileguard.baseline.pruning import WholeModule, facts_pruning
from pytest_compileguard.baseline.storable import environment_of, facts_entry
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.environment import Environment
from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.finding import Verdict
from pytest_compileguard.findings.wording import counted, first_of
from pytest_compileguard.observation import Record
from pytest_compileguard.option_list import UPDATE_BASELINE

_MOST_NAMES = 3


class _Unknown(Record):
    """A check that has no entry, with the one that it would get."""

    check: str
    key: str
    column: str
    entry: FactsEntry


def old_names(
    store: Store, verdicts: Iterable[Verdict], whole: Iterable[WholeModule]
) -> tuple[str, ...]:
    """Tell, for modules that ran as a whole, of entries that no test has any more.

    Facts are exact, so an entry of an old name with equal facts is likely the one to be renamed.
    """
    by_module: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.recordable:
            by_module.setdefault(verdict.nodeid.partition("::")[0], []).append(verdict)
    lines: list[str] = []
    for module in whole:
        some = by_module.get(module.path, [])
        try:
            lines += _of_module(store, module, some) if some else ()
        except CompileGuardError:  # of a file that no check was held against
            continue
    return tuple(lines)


def _of_module(store: Store, module: WholeModule, verdicts: Sequence[Verdict]) -> list[str]:
    file = store.facts(f"{module.path}::")
    unknown = [u for v in verdicts if (u := _unknown(store, v)).key not in file.entries]
    if not file.entries:
        return _of_old_files(store, module, unknown)
    environments = {environment_of(verdict) for verdict in verdicts}
    gone = _gone(file, module, environments)
    lines = [_renamed(u, old) for u in unknown for old in _alike(file, gone, u)]
    if gone and store.revision is None:  # no update run changes what another revision has
        names = ", ".join(printable(key) for key in first_of(gone, _MOST_NAMES))
        many = counted(len(gone), "stored entry", "stored entries")
        lines.append(
            f"{module.path}: {many} without a test or check: {names}; drop with {UPDATE_BASELINE}"
        )
    return lines


def _unknown(store: Store, verdict: Verdict) -> _Unknown:
    return _Unknown(
        check=printable(verdict.key),
        key=facts_key(verdict.nodeid, verdict.name),
        column=facts_column(environment_of(verdict)),
        entry=facts_entry(verdict, store.rootpath),
    )


def _gone(file: FactsFile, module: WholeModule, environments: set[Environment]) -> list[str]:
    pruning = facts_pruning(module, environments)
    return [
        key
        for key, columns in file.entries.items()
        if any(pruning.drops(key, column, entry) for column, entry in columns.items())
    ]


def _alike(file: FactsFile, keys: Iterable[str], unknown: _Unknown) -> list[str]:
    return [key for key in keys if is_equal(file.entries[key].get(unknown.column), unknown.entry)][
        :1
    ]


def _renamed(unknown: _Unknown, old: str) -> str:
    return (
        f"{unknown.check}: an entry of an old name with equal facts: {printable(old)}; "
        f"if the test was renamed, record it with {UPDATE_BASELINE}"
    )


def _of_old_files(store: Store, module: WholeModule, unknown: Sequence[_Unknown]) -> list[str]:
    """Look whether the file of a module that is gone has what this one lacks."""
    name = store.facts_place(f"{module.path}::").path.name
    at = f" at {printable(store.revision.name)}" if store.revision else ""
    folder = PurePosixPath(module.path).parent
    merged = f", and have that merged{at.replace(' at ', ' into ')}" if at else ""
    lines = []
    for path in store.neighbours(f"{module.path}::"):
        old = (folder / f"{path.stem}.py").as_posix()
        if (store.rootpath / old).exists():
            continue
        file = store.facts(f"{old}::")
        equal = [u for u in unknown if is_equal(file.entries.get(u.key, {}).get(u.column), u.entry)]
        if equal:
            checks = counted(len(equal), "check")
            lines.append(
                f"{module.path}: has no baseline{at}, but {path.name} holds equal facts for "
                f"{checks} of it, and {old} is gone; if it was renamed, rename "
                f"{path.name} to {name}{merged}"
            )
    return lines
