"""Kills writers of baselines at random instants, and looks whether anything was lost or torn.

Eight processes put entries into one file, as runs of pytest that end at the same time would, and
acknowledge each update once it is done. At random instants one of them is killed with SIGKILL
and another takes its place. After each kill the file must be whole and hold every
acknowledged update. The tests run a short form; the long one is

    python -m tests.stress.crash_writers --kills 300
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

import msgspec

from pytest_compileguard.baseline.entries import NO_FACTS, FactsEntry, FactsFile, Recorded
from pytest_compileguard.baseline.store import Store

NODEID = "tests/test_x.py::test_it"
COLUMN = "cpu torch 2.13"
KEYS = 5
LATEST_S = 0.06


def entry(number: int) -> FactsEntry:
    """Make an entry that tells how many updates its writer made before."""
    recorded = Recorded(
        torch="2.13.0",
        python="3.12.1",
        plugin="0.1.0",
        device="Some CPU",
        triton=None,
        cuda=None,
        driver=None,
        platform="linux-x86_64",
    )
    return FactsEntry(
        graph_breaks=1,
        break_events=1,
        recompiles=0,
        graphs=2,
        ops=12,
        kernels=2,
        breaks=("models/mlp.py:41 in forward: " + "x" * 2000,),
        backend="inductor",
        mode=None,
        calls=number,
        recorded=recorded,
    )


class Writer:
    """One process that writes, with the acknowledgements of it and of those before it."""

    def __init__(self, root: Path, slot: int) -> None:
        self._root = root
        self._slot = slot
        self._log = root / f"acknowledged-{slot}"
        self._log.touch()
        self.kills = 0
        self._start()

    def kill(self) -> None:
        """End it at once, and let another one go on."""
        self.stop()
        self.kills += 1
        self._start()

    def stop(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def acknowledged(self) -> dict[str, int]:
        """The last number that was acknowledged, by key."""
        numbers = [int(line) for line in self._log.read_text(encoding="ascii").split()]
        return {self._key(number): number for number in numbers}

    def _start(self) -> None:
        first = max(self.acknowledged().values(), default=0) + 1
        self._pid = os.fork()
        if self._pid == 0:
            self._write(first)

    def _key(self, number: int) -> str:
        return f"writer{self._slot}-{number % KEYS}::f"

    def _write(self, number: int) -> NoReturn:
        store = Store(self._root)
        place = store.facts_place(NODEID)
        log = os.open(self._log, os.O_WRONLY | os.O_APPEND)
        while True:
            row = {self._key(number): {COLUMN: entry(number)}}

            def put(file: FactsFile, row: dict[str, dict[str, FactsEntry]] = row) -> FactsFile:
                return msgspec.structs.replace(file, entries={**file.entries, **row})

            store.update(place, NO_FACTS, put)
            os.write(log, f"{number}\n".encode("ascii"))
            number += 1


def crash(root: Path, *, kills: int, writers: int, seed: int) -> dict[str, float | int]:
    """Run it; give what was seen.

    Raises:
        AssertionError: An acknowledged update is lost.
        BaselineError: The file is torn.
    """
    (root / "tests").mkdir()
    store = Store(root)
    chance = random.Random(seed)  # noqa: S311
    started = time.perf_counter()
    running = [Writer(root, slot) for slot in range(writers)]
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0, LATEST_S))
            chance.choice(running).kill()
            _refuse_loss(store, running)
    finally:
        for writer in running:
            writer.stop()
    _refuse_loss(store, running)
    store.update(store.facts_place(NODEID), NO_FACTS, _with_last)
    left = sorted(p.name for p in (store.facts_place(NODEID).home / ".lock").iterdir())
    assert left == [".gitignore", "lock"], left
    done = sum(max(w.acknowledged().values(), default=0) for w in running)
    return {
        "kills": sum(writer.kills for writer in running),
        "writers": writers,
        "acknowledged_updates": done,
        "lost": 0,
        "torn": 0,
        "seconds": round(time.perf_counter() - started, 1),
    }


def _refuse_loss(store: Store, running: list[Writer]) -> None:
    # What is acknowledged before the file is read must be in it.
    promised = [writer.acknowledged() for writer in running]
    entries = store.facts(NODEID).entries
    for numbers in promised:
        for key, number in numbers.items():
            assert entries[key][COLUMN].calls >= number, f"{key}: update {number} is lost"


def _with_last(file: FactsFile) -> FactsFile:
    return msgspec.structs.replace(file, entries={**file.entries, "last::f": {COLUMN: entry(0)}})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen = crash(Path(folder), kills=given.kills, writers=given.writers, seed=given.seed)
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
