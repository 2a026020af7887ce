"""Baselines: stored results of earlier runs, looked up and recorded.

Facts are exact: they hold for a device type and a minor version of torch, on any machine.
Timings hold for one device model and a minor version of torch. ``store`` knows the files of
both, ``entries`` what is in them, ``storable`` what a verdict puts there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from pytest_compileguard.entries import (
    NO_FACTS,
    NO_TIMINGS,
    F,
    FactsEntry,
    TimingEntry,
    printable,
)
from pytest_compileguard.environment import Environment
from pytest_compileguard.finding import Verdict
from pytest_compileguard.metrics import FACTS, SPEEDUP
from pytest_compileguard.observation import Record
from pytest_compileguard.storable import environment_of, facts_entry, timing_entry
from pytest_compileguard.store import Place, Store

_LABELS = {metric.name: metric.label for metric in (*FACTS, SPEEDUP)}
# Fields of entries whose change is told with both values, in this order.
_TOLD = (*_LABELS, "calls", "backend", "mode", "clock")

Outcome = Literal["added", "changed", "kept"]


class Baseline(Record):
    """What is stored for one check, as far as this run may be compared with it."""

    facts: FactsEntry | None
    facts_note: str
    """Why there are no facts, or which older torch they are from; empty if they fit exactly."""
    timing: TimingEntry | None
    timing_note: str
    """Why there is no timing; empty if there is one."""


class Changes(Record):
    """What recording did: one line a check, which begins with the key of the check."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    kept: tuple[str, ...]
    unstored: tuple[str, ...]
    """Timings that can't serve as a baseline, and why; the facts of their checks are recorded."""
    files: tuple[Path, ...]
    """The files that were written."""


class _Slot(Record):
    """One entry and the place that it gets."""

    check: str
    place: Place
    key: str
    column: str
    entry: FactsEntry | TimingEntry
    told: str
    """What the entry is called when it is new."""


class _Outcome(Record):
    """What became of one entry."""

    check: str
    outcome: Outcome
    told: str


def look_up(store: Store, *, nodeid: str, name: str, environment: Environment) -> Baseline:
    """Find what is stored for one check in this environment.

    Facts of the nearest older minor version of torch serve if there are none of this one, and
    ``facts_note`` says so. Facts of a newer torch don't, nor timings of another one.

    Raises:
        BaselineError: A file can't be read or is damaged.
    """
    columns = store.facts(nodeid).entries.get(_facts_key(nodeid, name), {})
    facts, facts_note = _nearest_facts(columns, environment)
    timing = _timing(store, nodeid, name, environment)
    missing = f"none for {environment.device_name}, torch {environment.torch_minor}"
    return Baseline(
        facts=facts,
        facts_note=facts_note,
        timing=timing,
        timing_note="" if timing else missing,
    )


def record(store: Store, verdicts: Iterable[Verdict]) -> Changes:
    """Store the results of all verdicts that may be recorded; the last one of a check counts.

    An entry whose results are equal stays as it is, and still tells where they were first seen.
    Files are written one by one: an error leaves those before it written and the others as they
    were, and recording again completes them.

    Raises:
        BaselineError: A file can't be read or written, or a verdict has nothing to be stored.
    """
    latest = {verdict.key: verdict for verdict in verdicts if verdict.recordable}
    facts = [_facts_slot(store, verdict) for verdict in latest.values()]
    timings = [_timing_slot(store, verdict) for verdict in latest.values()]
    written: list[Path] = []
    outcomes = [
        *_write(store, facts, NO_FACTS, written),
        *_write(store, [t for t in timings if isinstance(t, _Slot)], NO_TIMINGS, written),
    ]
    lines = _lines(outcomes)
    return Changes(
        added=lines["added"],
        changed=lines["changed"],
        kept=lines["kept"],
        unstored=tuple(reason for reason in timings if isinstance(reason, str)),
        files=tuple(written),
    )


def _nearest_facts(
    columns: Mapping[str, FactsEntry], environment: Environment
) -> tuple[FactsEntry | None, str]:
    if entry := columns.get(_facts_column(environment)):
        return entry, ""
    wanted = _version(environment.torch_minor)
    device_type = environment.device_type
    versions = {_version(c): c for c in columns if c.startswith(f"{device_type} torch ")}
    older = max((version for version in versions if version < wanted), default=None)
    if older is None:
        return None, f"none for {device_type}, torch {environment.torch_minor}"
    note = f"recorded with {_torch(older)}, this is {environment.torch_minor}"
    return columns[versions[older]], note


def _timing(store: Store, nodeid: str, name: str, environment: Environment) -> TimingEntry | None:
    stored = store.timings(nodeid, environment.device_slug)
    entry = stored.entries.get(_timing_key(nodeid, name), {}).get(_timing_column(environment))
    # Two models can share a file name, since that is shortened.
    return entry if entry and entry.recorded.device == environment.device_name else None


def _version(column: str) -> tuple[int, int]:
    """Read the version at the end as numbers: 2.10 is newer than 2.9. None is the oldest."""
    found = re.search(r"([0-9]+)\.([0-9]+)$", column)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _torch(version: tuple[int, int]) -> str:
    return f"torch {version[0]}.{version[1]}"


def _facts_column(environment: Environment) -> str:
    return f"{environment.device_type} torch {environment.torch_minor}"


def _timing_column(environment: Environment) -> str:
    return f"torch {environment.torch_minor}"


def _facts_key(nodeid: str, name: str) -> str:
    inside = nodeid.partition("::")[2]
    return _writable(f"{inside}::{name}" if inside else name)


def _timing_key(nodeid: str, name: str) -> str:
    module = nodeid.partition("::")[0].replace("\\", "/").rpartition("/")[2]
    return _writable(f"{module}::{_facts_key(nodeid, name)}")


def _writable(key: str) -> str:
    """Escape the undecodable bytes of a file name, for which JSON has no character."""
    return key.encode("utf-8", "backslashreplace").decode("utf-8")


def _facts_slot(store: Store, verdict: Verdict) -> _Slot:
    column = _facts_column(environment_of(verdict))
    return _Slot(
        check=printable(verdict.key),
        place=store.facts_place(verdict.nodeid),
        key=_facts_key(verdict.nodeid, verdict.name),
        column=column,
        entry=facts_entry(verdict, store.rootpath),
        told=f"facts for {column}",
    )


def _timing_slot(store: Store, verdict: Verdict) -> _Slot | str | None:
    entry, environment = timing_entry(verdict), environment_of(verdict)
    if entry is None:
        return None
    if isinstance(entry, str):
        return f"{printable(verdict.key)}: {entry}"
    column = _timing_column(environment)
    return _Slot(
        check=printable(verdict.key),
        place=store.timings_place(verdict.nodeid, environment.device_slug),
        key=_timing_key(verdict.nodeid, verdict.name),
        column=column,
        entry=entry,
        told=f"speedup {entry.speedup} for {printable(environment.device_name)}, {column}",
    )


def _write(store: Store, slots: Sequence[_Slot], empty: F, written: list[Path]) -> list[_Outcome]:
    """Write the entries file by file, and say what became of each."""
    by_place: dict[Path, list[_Slot]] = {}
    for slot in slots:
        by_place.setdefault(slot.place.path, []).append(slot)
    outcomes: list[_Outcome] = []
    for path, together in by_place.items():
        before, after = store.update(together[0].place, empty, partial(_merged, slots=together))
        written += [path] if after != before else []
        outcomes += [_outcome(before, slot) for slot in together]
    return outcomes


def _merged(file: F, *, slots: Iterable[_Slot]) -> F:
    """Put entries into a file; all others of it stay."""
    entries: dict[str, Mapping[str, Any]] = dict(file.entries)
    for slot in slots:
        columns = entries.get(slot.key, {})
        if not _is_equal(columns.get(slot.column), slot.entry):
            entries[slot.key] = {**columns, slot.column: slot.entry}
    return msgspec.structs.replace(file, entries=entries)


def _is_equal(old: FactsEntry | TimingEntry | None, new: FactsEntry | TimingEntry) -> bool:
    """Whether the results are the same, wherever they were recorded."""
    return old is not None and msgspec.structs.replace(old, recorded=new.recorded) == new


def _outcome(before: F, slot: _Slot) -> _Outcome:
    columns: Mapping[str, Any] = before.entries.get(slot.key, {})
    old = columns.get(slot.column)
    if old is None:
        return _Outcome(check=slot.check, outcome="added", told=slot.told)
    if _is_equal(old, slot.entry):
        return _Outcome(check=slot.check, outcome="kept", told="")
    return _Outcome(check=slot.check, outcome="changed", told=_difference(old, slot.entry))


def _difference(old: FactsEntry | TimingEntry, new: FactsEntry | TimingEntry) -> str:
    told = [
        f"{_LABELS.get(name, name)} {getattr(old, name)} -> {getattr(new, name)}"
        for name in _TOLD
        if getattr(old, name, None) != getattr(new, name, None)
    ]
    rest = "break sites" if isinstance(new, FactsEntry) else "interval and times"
    return ", ".join(told) or rest


def _lines(outcomes: Sequence[_Outcome]) -> dict[Outcome, tuple[str, ...]]:
    """Sort the checks by the strongest outcome of their entries."""
    by_check: dict[str, list[_Outcome]] = {}
    for outcome in outcomes:
        by_check.setdefault(outcome.check, []).append(outcome)
    lines: dict[Outcome, list[str]] = {"changed": [], "added": [], "kept": []}
    for check, together in by_check.items():
        strongest = next(kind for kind in lines if kind in {o.outcome for o in together})
        told = "; ".join(o.told for o in together if o.told)
        lines[strongest].append(f"{check}: {told}" if told else check)
    return {kind: tuple(found) for kind, found in lines.items()}
