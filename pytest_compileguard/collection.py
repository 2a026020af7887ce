"""What stands in marks, and what is refused before any test runs: marks, damaged baselines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.spec import MARKER, CompileCheck, spec_from_marks
from pytest_compileguard.store import Store

FIXTURE = "compileguard"


def refusals(items: Iterable[pytest.Item], store: Store | None) -> list[str]:
    """One line for each thing that is wrong, each of them once.

    Args:
        items: The tests that were selected.
        store: Where their baselines are; ``None`` if nothing will be compared with them.
    """
    return list(dict.fromkeys(_refusals(items, store)))


def stable_nodeid(item: pytest.Item) -> str:
    """Drop the group that pytest-xdist appends with ``--dist=loadgroup``: baselines outlive it."""
    if item.parent is None:
        return item.nodeid
    plain = f"{item.parent.nodeid}::{item.name}"
    return plain if item.nodeid.startswith(f"{plain}@") else item.nodeid


def spec_of(item: pytest.Item) -> CompileCheck:
    """Merge the marks of a test.

    Raises:
        SpecError: A mark has positional arguments, or limits that are not allowed.
    """
    return spec_from_marks(_marks(item), nodeid=stable_nodeid(item))


def modes_of(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    """Give the modes for each of which a test is to run; a mark that can't be kept gives none."""
    if FIXTURE not in metafunc.fixturenames:
        return ()
    try:
        return tuple(spec_of(metafunc.definition).modes or ())
    except CompileGuardError:  # told by `refusals`, once for each test
        return ()


def _marks(item: pytest.Item) -> list[pytest.Mark]:
    """Give the nearest first. Pytest lists those of a parameter after those of its function."""
    of_parameter = [id(mark) for mark in getattr(getattr(item, "callspec", None), "marks", ())]
    return sorted(item.iter_markers(MARKER), key=lambda mark: id(mark) not in of_parameter)


def _has_mode(item: pytest.Item) -> bool:
    return FIXTURE in getattr(getattr(item, "callspec", None), "params", {})


def _refusals(items: Iterable[pytest.Item], store: Store | None) -> Iterator[str]:
    modules = set()
    for item in items:
        guarded = FIXTURE in getattr(item, "fixturenames", ())
        module = item.nodeid.partition("::")[0]
        try:
            spec = spec_of(item)
            if guarded and spec.modes and not _has_mode(item):
                yield (
                    f"{stable_nodeid(item)}: {MARKER}: modes={spec.modes!r} can't expand this "
                    "test: put it on a function, class or module of pytest, not on a parameter "
                    "or a method of unittest.TestCase"
                )
            if guarded and store is not None and module not in modules:
                modules.add(module)
                store.verify(item.nodeid)
        except CompileGuardError as error:
            yield str(error)
        if not guarded and item.get_closest_marker(MARKER):
            yield (
                f"{stable_nodeid(item)}: is marked {MARKER} but does not use the fixture "
                f"{FIXTURE}, so nothing would be checked; request {FIXTURE} and guard a target, "
                "or move the mark"
            )
