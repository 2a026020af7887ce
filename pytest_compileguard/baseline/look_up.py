"""Baselines: stored results of earlier runs, and which of them a check is held against.

Facts are exact: they hold for a device type and a minor version of torch, on any machine.
Timings hold for one device model and a minor version of torch. ``store`` knows the files of
both, ``entries`` what is in them, ``recording`` how they change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pytest_compileguard.baseline.entries import FactsEntry, TimingEntry
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.environment import Environment
from pytest_compileguard.observation import Record


class Baseline(Record):
    """What is stored for one check, as far as this run may be compared with it."""

    facts: FactsEntry | None
    facts_note: str
    """Why there are no facts, or which older torch they are from; empty if they fit exactly."""
    timing: TimingEntry | None
    timing_note: str
    """Why there is no timing; empty if there is one."""


def look_up(store: Store, *, nodeid: str, name: str, environment: Environment) -> Baseline:
    """Find what is stored for one check in this environment.

    Facts of the nearest older minor version of torch serve if there are none of this one, and
    ``facts_note`` says so. Facts of a newer torch don't, nor timings of another one.

    Raises:
        BaselineError: A file can't be read or is damaged.
    """
    columns = store.facts(nodeid).entries.get(facts_key(nodeid, name), {})
    facts, facts_note = _nearest_facts(columns, environment)
    timing = _timing(store, nodeid, name, environment)
    missing = f"none for {environment.device_name}, torch {environment.torch_minor}"
    return Baseline(
        facts=facts,
        facts_note=facts_note,
        timing=timing,
        timing_note="" if timing else missing,
    )


def _nearest_facts(
    columns: Mapping[str, FactsEntry], environment: Environment
) -> tuple[FactsEntry | None, str]:
    if entry := columns.get(facts_column(environment)):
        return entry, ""
    wanted = version_of(environment.torch_minor)
    device_type = environment.device_type
    versions = {version_of(c): c for c in columns if c.startswith(f"{device_type} torch ")}
    older = max((version for version in versions if version < wanted), default=None)
    if older is None:
        return None, f"none for {device_type}, torch {environment.torch_minor}"
    note = f"recorded with {_torch(older)}, this is {environment.torch_minor}"
    return columns[versions[older]], note


def _timing(store: Store, nodeid: str, name: str, environment: Environment) -> TimingEntry | None:
    stored = store.timings(nodeid, environment.device_slug)
    entry = stored.entries.get(timing_key(nodeid, name), {}).get(timing_column(environment))
    # Two models can share a file name, since that is shortened.
    return entry if entry and entry.recorded.device == environment.device_name else None


def version_of(column: str) -> tuple[int, int]:
    """Read the version at the end as numbers: 2.10 is newer than 2.9. None is the oldest."""
    found = re.search(r"([0-9]+)\.([0-9]+)$", column)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _torch(version: tuple[int, int]) -> str:
    return f"torch {version[0]}.{version[1]}"


def facts_column(environment: Environment) -> str:
    """Name the facts of this device type and torch within an entry."""
    return f"{environment.device_type} torch {environment.torch_minor}"


def timing_column(environment: Environment) -> str:
    """Name the timing of this torch within an entry."""
    return f"torch {environment.torch_minor}"


def facts_key(nodeid: str, name: str) -> str:
    """Name a check within the file of its module."""
    inside = nodeid.partition("::")[2]
    return writable(f"{inside}::{name}" if inside else name)


def timing_key(nodeid: str, name: str) -> str:
    """Name a check within the file of its folder and device model."""
    return writable(f"{module_name(nodeid)}::{facts_key(nodeid, name)}")


def module_name(nodeid: str) -> str:
    """Take the name of the file out of a node id: ``test_x.py``."""
    return nodeid.partition("::")[0].replace("\\", "/").rpartition("/")[2]


def writable(key: str) -> str:
    """Escape the undecodable bytes of a file name, for which JSON has no character."""
    return key.encode("utf-8", "backslashreplace").decode("utf-8")
