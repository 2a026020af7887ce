"""What is refused before any test runs: marks that can't be kept, damaged baselines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.spec import MARKER, spec_from_marks
from pytest_compileguard.store import Store

FIXTURE = "compileguard"


def refusals(items: Iterable[pytest.Item], store: Store) -> list[str]:
    """One line for each thing that is wrong, each of them once."""
    return list(dict.fromkeys(_refusals(items, store)))


def _refusals(items: Iterable[pytest.Item], store: Store) -> Iterator[str]:
    for item in items:
        marks = list(item.iter_markers(MARKER))
        guarded = FIXTURE in getattr(item, "fixturenames", ())
        try:
            spec_from_marks(marks, nodeid=item.nodeid)
            if guarded:
                store.verify(item.nodeid)
        except CompileGuardError as error:
            yield str(error)
        if marks and not guarded:
            yield (
                f"{item.nodeid}: is marked {MARKER} but does not use the fixture {FIXTURE}, so "
                f"nothing would be checked; request {FIXTURE} and guard a target, or move the mark"
            )
