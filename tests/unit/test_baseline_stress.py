"""The short forms of the crash test and the fuzz test, and files of a size that nobody makes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_compileguard.baseline.recording import record
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.errors import BaselineError
from tests.stored import NODEID, make_verdict, sealed
from tests.stress.crash_writers import crash
from tests.stress.fuzz_reader import Reader


@pytest.mark.skipif(sys.platform == "win32", reason="forks and kills as POSIX does")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_writers_that_are_killed_lose_and_tear_nothing(tmp_path: Path) -> None:
    seen = crash(tmp_path, kills=16, writers=8, seed=3)
    assert seen["kills"] == 16
    assert seen["acknowledged_updates"] > 0


def test_the_reader_survives_mutated_bytes(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.mutate(400, seed=7)
    assert reader.seen["refused"] > 200
    assert reader.seen["read"] > 0


def test_the_reader_survives_any_value_at_any_place(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.structured(150)
    assert reader.seen["refused"] > 50
    assert reader.seen["read"] > 0


def test_a_file_of_100_mb_is_refused_without_reading_it(tmp_path: Path) -> None:
    (tmp_path / "pkg" / "tests").mkdir(parents=True)
    store = Store(tmp_path)
    record(store, [make_verdict()])
    path = store.facts_place(NODEID).path
    with path.open("r+b") as file:
        file.truncate(100_000_000)
    with pytest.raises(BaselineError, match="more than 20 MB; a baseline is far smaller"):
        store.facts(NODEID)
    with pytest.raises(BaselineError, match="more than 20 MB"):
        record(store, [make_verdict(name="other")])
    assert path.stat().st_size == 100_000_000


def test_a_file_that_was_changed_by_hand_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "pkg" / "tests").mkdir(parents=True)
    store = Store(tmp_path)
    record(store, [make_verdict()])
    path = store.facts_place(NODEID).path
    for ops in (12, 13, 14):
        path.write_text(sealed(path.read_text().replace(f'"ops": {ops}', f'"ops": {ops + 1}')))
        (columns,) = store.facts(NODEID).entries.values()
        assert [entry.ops for entry in columns.values()] == [ops + 1]
