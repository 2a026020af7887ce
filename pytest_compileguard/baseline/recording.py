"""Records the results of a run as the new baseline, and drops entries of tests that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from pytest_compileguard.baseline.change import (
    Entry,
    difference,
    is_code_news,
    is_equal,
    is_improved,
)
from pytest_compileguard.baseline.entries import NO_FACTS, NO_TIMINGS, F, TimingEntry, printable
from pytest_compileguard.baseline.look_up import (
    facts_column,
    facts_key,
    timing_column,
    timing_key,
)
from pytest_compileguard.baseline.places import Place
from pytest_compileguard.baseline.pruning import (
    Pruning,
    WholeModule,
    facts_pruning,
    pruned,
    timings_pruning,
)
from pytest_compileguard.baseline.storable import (
    environment_of,
    facts_entry,
    timing_entry,
    why_noisy,
)
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.environment import Environment
from pytest_compileguard.finding import Verdict
from pytest_compileguard.metrics import NOISE_THRESHOLD
from pytest_compileguard.observation import Record
from pytest_compileguard.options import UpdateMode

Outcome = Literal["added", "changed", "kept", "left"]


class Changes(Record):
    """What recording did: one line a check, which begins with the key of the check."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    kept: tuple[str, ...]
    unstored: tuple[str, ...]
    """Timings that can't serve as a baseline, and why; the facts of their checks are recorded."""
    files: tuple[Path, ...]
    """The files that were written."""
    removed: tuple[str, ...] = ()
    """Entries of tests that are gone."""
    noisy: tuple[str, ...] = ()
    """Timings that were stored though later runs can hardly be held to them, and why."""
    recorded: tuple[str, ...] = ()
    """Keys of checks of which this run recorded what its mode concerns, not to be offered again."""


class Wish(Record):
    """What a run may record, and how."""

    mode: UpdateMode = "all"
    noise: float = NOISE_THRESHOLD
    commit: str | None = None
    whole: tuple[WholeModule, ...] = ()
    """The modules that ran as a whole: what they no longer have may be dropped."""


class _Slot(Record):
    """One entry and the place that it gets."""

    check: str
    place: Place
    key: str
    column: str
    entry: Entry
    told: str
    """What the entry is called when it is new."""
    noise: str = ""
    """Why later runs can hardly be held to it."""


class _Outcome(Record):
    """What became of one entry."""

    check: str
    outcome: Outcome
    told: str
    noise: str = ""
    """Why later runs can hardly be held to what was stored; empty: nothing new was."""


def record(store: Store, verdicts: Iterable[Verdict], wish: Wish | None = None) -> Changes:
    """Store the results of all verdicts that may be recorded; the last one of a check counts.

    An entry whose results are equal stays as it is, and still tells where they were first seen.
    Files are written one by one: an error leaves those before it written and the others as they
    were, and recording again completes them.

    Raises:
        BaselineError: A file can't be read or written, or a verdict has nothing to be stored.
    """
    wish = wish or Wish()
    latest = {verdict.key: verdict for verdict in verdicts if verdict.recordable}
    facts = [_facts_slot(store, verdict, wish) for verdict in latest.values()]
    timings = [_timing_slot(store, verdict, wish) for verdict in latest.values()]
    environments = {environment_of(v) for v in latest.values()} if wish.mode == "all" else set()
    writer = _Writer(store, wish)
    writer.write(facts, NO_FACTS, _facts_prunings(store, wish, environments))
    sound = [slot for slot in timings if isinstance(slot, _Slot)]
    writer.write(sound, NO_TIMINGS, _timings_prunings(store, wish, environments))
    lines = _lines(writer.outcomes)
    fates: dict[str, set[Outcome]] = {}
    for one in writer.outcomes:
        fates.setdefault(one.check, set()).add(one.outcome)
    return Changes(
        added=lines["added"],
        changed=lines["changed"],
        kept=lines["kept"],
        unstored=tuple(reason for reason in timings if isinstance(reason, str)),
        files=tuple(writer.files),
        removed=tuple(writer.removed),
        noisy=tuple(f"{one.check}: {one.noise}" for one in writer.outcomes if one.noise),
        recorded=tuple(k for k in latest if _is_recorded(fates.get(printable(k), set()), wish)),
    )


def _is_recorded(found: set[Outcome], wish: Wish) -> bool:
    """Whether what the mode concerns of a check was recorded, so that none need offer it."""
    match wish.mode:
        case "all":
            return True
        case "improved":
            return "changed" in found
        case "new":  # beside a new timing, better facts stay as they were
            return found == {"added"}


class _Writer:
    """Writes file by file, and keeps what became of each entry."""

    def __init__(self, store: Store, wish: Wish) -> None:
        self._store = store
        self._wish = wish
        self.outcomes: list[_Outcome] = []
        self.files: list[Path] = []
        self.removed: list[str] = []

    def write(self, slots: Sequence[_Slot], empty: F, prunings: _Prunings) -> None:
        """Write the entries of one kind, and drop what is gone from their files."""
        places = {slot.place.path: slot.place for slot in slots}
        places |= {path: place for path, (place, _) in prunings.items()}
        by_path: dict[Path, list[_Slot]] = {path: [] for path in places}
        for slot in slots:
            by_path[slot.place.path].append(slot)
        for path, together in by_path.items():
            some = prunings[path][1] if path in prunings else ()
            self._write_file(places[path], together, empty, some)

    def _write_file(
        self, place: Place, slots: list[_Slot], empty: F, prunings: Sequence[Pruning]
    ) -> None:
        change = partial(_changed, slots=slots, prunings=prunings, wish=self._wish)
        before, after = self._store.update(place, empty, change)
        self.files += [place.path] if after != before else []
        self.outcomes += [_outcome(before, slot, self._wish) for slot in slots]
        self.removed += map(printable, pruned(before, prunings)[1]) if prunings else ()


_Prunings = dict[Path, tuple[Place, list[Pruning]]]


def _facts_prunings(store: Store, wish: Wish, environments: set[Environment]) -> _Prunings:
    found: _Prunings = {}
    for module in wish.whole if environments else ():
        place = store.facts_place(f"{module.path}::")
        found[place.path] = (place, [facts_pruning(module, environments)])
    return found


def _timings_prunings(store: Store, wish: Wish, environments: set[Environment]) -> _Prunings:
    found: _Prunings = {}
    for module in wish.whole:
        for slug in sorted({environment.device_slug for environment in environments}):
            alike = [e for e in environments if e.device_slug == slug]
            place = store.timings_place(f"{module.path}::", slug)
            _, prunings = found.setdefault(place.path, (place, []))
            prunings.append(timings_pruning(module, alike))
    return found


def _facts_slot(store: Store, verdict: Verdict, wish: Wish) -> _Slot:
    column = facts_column(environment_of(verdict))
    return _Slot(
        check=printable(verdict.key),
        place=store.facts_place(verdict.nodeid),
        key=facts_key(verdict.nodeid, verdict.name),
        column=column,
        entry=facts_entry(verdict, store.rootpath, wish.commit),
        told=f"facts for {column}",
    )


def _timing_slot(store: Store, verdict: Verdict, wish: Wish) -> _Slot | str | None:
    entry, environment = timing_entry(verdict, wish.commit), environment_of(verdict)
    if entry is None:
        return None
    if isinstance(entry, str):
        return f"{printable(verdict.key)}: {entry}"
    column = timing_column(environment)
    return _Slot(
        check=printable(verdict.key),
        place=store.timings_place(verdict.nodeid, environment.device_slug),
        key=timing_key(verdict.nodeid, verdict.name),
        column=column,
        entry=entry,
        told=f"speedup {entry.speedup} for {printable(environment.device_name)}, {column}",
        noise=why_noisy(entry),
    )


def _changed(file: F, *, slots: Iterable[_Slot], prunings: Sequence[Pruning], wish: Wish) -> F:
    """Put entries into a file and drop those that are gone; all others of it stay."""
    file = pruned(file, prunings)[0] if prunings else file
    entries: dict[str, Mapping[str, Any]] = dict(file.entries)
    for slot in slots:
        columns = entries.get(slot.key, {})
        if (kept := _kept(_stored(columns, slot), slot.entry, wish)) is not None:
            entries[slot.key] = {**columns, slot.column: kept}
    return msgspec.structs.replace(file, entries=entries)


def _stored(columns: Mapping[str, Any], slot: _Slot) -> Entry | None:
    """Find what is stored in this place; of another device model, whose name is cut alike, none."""
    old: Entry | None = columns.get(slot.column)
    timed = isinstance(old, TimingEntry)
    return None if timed and old.recorded.device != slot.entry.recorded.device else old  # type: ignore[union-attr]


def _kept(old: Entry | None, new: Entry, wish: Wish) -> Entry | None:
    """Give what is to be stored; ``None``: what is there stays.

    Of code that is as fast as the baseline only its digests are news, with the versions that made
    them: had each run its own times, many small losses would add up unseen.
    """
    if _fate(old, new, wish) not in ("added", "changed"):
        return None
    if isinstance(old, TimingEntry) and isinstance(new, TimingEntry):
        renewed = msgspec.structs.replace(old, code=new.code, recorded=new.recorded)
        return renewed if is_equal(old, new, wish.noise) else new
    return new


def _fate(old: Entry | None, new: Entry, wish: Wish) -> Outcome:
    """Decide what becomes of one entry; ``left``: the mode does not concern it."""
    if old is None:
        return "left" if wish.mode == "improved" else "added"
    if is_equal(old, new, wish.noise):
        return "changed" if wish.mode == "all" and is_code_news(old, new) else "kept"
    better = wish.mode == "improved" and is_improved(old, new, wish.noise)
    return "changed" if wish.mode == "all" or better else "kept"


def _outcome(before: F, slot: _Slot, wish: Wish) -> _Outcome:
    """Tell what became of one entry."""
    columns: Mapping[str, Any] = before.entries.get(slot.key, {})
    old = _stored(columns, slot)
    fate = _fate(old, slot.entry, wish)
    told = slot.told if fate == "added" else ""
    stored = _kept(old, slot.entry, wish)
    if fate == "changed" and old is not None:
        told = difference(old, stored or slot.entry)
    # Of equal speed only the digests are new.
    noise = slot.noise if stored is slot.entry else ""
    return _Outcome(check=slot.check, outcome=fate, told=told, noise=noise)


def _lines(outcomes: Sequence[_Outcome]) -> dict[Outcome, tuple[str, ...]]:
    """Sort the checks by the strongest outcome of their entries."""
    by_check: dict[str, list[_Outcome]] = {}
    for outcome in outcomes:
        by_check.setdefault(outcome.check, []).append(outcome)
    lines: dict[Outcome, list[str]] = {"changed": [], "added": [], "kept": [], "left": []}
    for check, together in by_check.items():
        strongest = next(kind for kind in lines if kind in {o.outcome for o in together})
        told = "; ".join(o.told for o in together if o.told and o.outcome != "left")
        lines[strongest].append(f"{check}: {told}" if told else check)
    return {kind: tuple(found) for kind, found in lines.items()}
