"""Whether one stored result says the same as another, more, or less. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytest_compileguard.baseline.entries import FactsEntry, TimingEntry
from pytest_compileguard.metrics import (
    DEVICE_SPEEDUP,
    FACTS,
    NOISE_THRESHOLD,
    SPEEDUP,
    TABLE,
    Change,
    noise_threshold,
)

Entry = FactsEntry | TimingEntry

LABELS = {metric.name: metric.label for metric in TABLE}
_FACTS_TOLD = (*(metric.name for metric in FACTS), "calls", "inputs", "backend", "mode")
_MOST_GRAPHS = 4
_TIMING_TOLD = (SPEEDUP.name, "inputs", "backend", "mode", "clock")


def is_equal(old: Entry | None, new: Entry, noise: float = 0.0) -> bool:
    """Whether the results are the same, wherever they were recorded.

    Timings never come out twice the same: those within the noise are the same. So diffs stay
    quiet, and many small losses can't add up unseen, since the first of them is what is kept.
    """
    if old is None or type(old) is not type(new):
        return False
    if msgspec.structs.replace(old, recorded=new.recorded) == new:
        return True
    if isinstance(old, FactsEntry) or isinstance(new, FactsEntry) or not noise:
        return False
    alike = is_comparable(old, new) and old.inputs == new.inputs
    return alike and set(_timing_changes(old, new, noise)) == {"same"}


def is_code_news(old: Entry, new: Entry) -> bool:
    """Whether the new result tells of generated code that the old one does not know.

    Apart from ``is_equal``, as the speed may well be the same.
    """
    if not isinstance(old, TimingEntry) or not isinstance(new, TimingEntry):
        return False
    return bool(_other_code(old, new))


def _other_code(old: TimingEntry, new: TimingEntry) -> list[str]:
    stored = old.code or {}
    return [key for key, digest in (new.code or {}).items() if stored.get(key) != digest]


def is_comparable(old: Entry, new: Entry) -> bool:
    """Whether both are of the same calls, compiled the same way.

    An entry that is older than the record of inputs is taken as it always was.
    """
    if old.inputs is not None and new.inputs is not None and old.inputs != new.inputs:
        return False
    names = ("calls", "backend", "mode", "clock")
    return all(getattr(old, name, None) == getattr(new, name, None) for name in names)


def change_of(old: Entry, new: Entry, noise: float = NOISE_THRESHOLD) -> Change:
    """Judge an entry as a whole: ``worse`` if any gated number is, else ``better`` if any is."""
    changes = _changes(old, new, noise)
    if "worse" in changes:
        return "worse"
    return "better" if "better" in changes else "same"


def is_improved(old: Entry, new: Entry, noise: float) -> bool:
    """Whether the new result may replace the old one where only improvements may."""
    return is_comparable(old, new) and change_of(old, new, noise) == "better"


def difference(old: Entry, new: Entry) -> str:
    """Tell what changed: ``graph breaks 2 -> 1, mode None -> max-autotune``."""
    names = _FACTS_TOLD if isinstance(new, FactsEntry) else _TIMING_TOLD
    told = [
        f"{LABELS.get(name, name)} {_shown(getattr(old, name))} -> {_shown(getattr(new, name))}"
        for name in names
        if getattr(old, name) != getattr(new, name)
    ]
    if isinstance(old, TimingEntry) and isinstance(new, TimingEntry):
        told += [text] if (text := code_text(_other_code(old, new))) else []
    rest = "break sites" if isinstance(new, FactsEntry) else "interval and times"
    return ", ".join(told) or rest


def code_text(keys: Sequence[str]) -> str:
    """Name graphs by their order: what is stored is not of one run, whose compile ids it had."""
    rest = f" and {len(keys) - _MOST_GRAPHS} more" if len(keys) > _MOST_GRAPHS else ""
    named = ", ".join(keys[:_MOST_GRAPHS])
    return f"generated code (graph no. {named}{rest})" if keys else ""


def _shown(value: object) -> str:
    return f"[{'; '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _changes(old: Entry, new: Entry, noise: float) -> tuple[Change, ...]:
    if isinstance(old, FactsEntry) and isinstance(new, FactsEntry):
        return tuple(
            metric.change(new.numbers[metric.name], new.numbers[metric.name], stored)
            for metric in FACTS
            if metric.policy == "gate"
            for stored in (old.numbers[metric.name],)
        )
    if isinstance(old, TimingEntry) and isinstance(new, TimingEntry):
        return _timing_changes(old, new, noise)
    return ()


def _timing_changes(old: TimingEntry, new: TimingEntry, noise: float) -> tuple[Change, ...]:
    wall = SPEEDUP.tolerating(noise_threshold(noise, new))
    changes = [wall.change(new.speedup_low, new.speedup_high, old.speedup)]
    if old.device_speedup is not None and new.device_speedup is not None:
        device = DEVICE_SPEEDUP.tolerating(noise)
        changes.append(device.change(new.device_speedup, new.device_speedup, old.device_speedup))
    elif old.device_speedup != new.device_speedup:
        changes.append("better")  # a clock more, or less: not the same measurement
    return tuple(changes)
