"""Feeds damaged files to the reader: it reads or refuses them in one line, and touches nothing.

Half of the inputs are mutations of the bytes of good files, half are made by hypothesis: values
of all kinds at all places of their structure. The tests run a short form; the long one is

    python -m tests.stress.fuzz_reader --inputs 10000
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pytest_compileguard.baseline.entries import FactsFile, TimingsFile
from pytest_compileguard.baseline.recording import record
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.errors import BaselineError
from tests.records import make_environment
from tests.stored import NODEID, make_compilation, make_site, make_speed, make_verdict

MOST_CHARACTERS = 1000
SLUG = "nvidia-h200"

_FRAGMENTS = (
    b"<<<<<<< HEAD\n",
    b"=======\n",
    b">>>>>>> topic\n",
    b"NaN",
    b"Infinity",
    b"-0",
    b"1e999",
    b"9" * 400,
    b"[" * 3000,
    b'{"entries":' * 3000,
    b"null",
    b'"schema": 1,',
    b'"schema": 99,',
    b"\xff\xfe",
    b"\x00",
    b"\\ud800",
    b"\xef\xbb\xbf",
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**63, max_value=10**40),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(("facts", "timings", "cpu torch 2.13", "torch 2.13", "schema")),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


class Reader:
    """Good files, a place for bad ones, and what became of them."""

    def __init__(self, root: Path) -> None:
        (root / "pkg" / "tests").mkdir(parents=True)
        self._store = Store(root)
        gpu = make_environment()
        seen = make_compilation(make_site())
        names = (NODEID, f"{NODEID}[2]")
        record(
            self._store,
            [make_verdict(n, seen=seen, speed=make_speed(), environment=gpu) for n in names],
        )
        self._kinds: tuple[tuple[Path, Callable[[], object]], ...] = (
            (self._store.facts_place(NODEID).path, lambda: self._store.facts(NODEID)),
            (
                self._store.timings_place(NODEID, SLUG).path,
                lambda: self._store.timings(NODEID, SLUG),
            ),
        )
        self.good = tuple(path.read_bytes() for path, _ in self._kinds)
        self.seen: Counter[str] = Counter()

    def feed(self, data: bytes, kind: int) -> None:
        """Let one text be read; what is not a refusal in one line is an error here."""
        path, read = self._kinds[kind]
        path.write_bytes(data)
        before = path.stat()
        try:
            file = read()
        except BaselineError as error:
            message = str(error)
            assert message.isprintable(), message
            assert len(message) < MOST_CHARACTERS, message
            assert path.name in message
            self.seen["refused"] += 1
        else:
            assert isinstance(file, FactsFile | TimingsFile)
            self.seen["read"] += 1
        assert path.read_bytes() == data
        assert path.stat().st_mtime_ns == before.st_mtime_ns

    def mutate(self, inputs: int, seed: int) -> None:
        """Feed mutations of good bytes."""
        chance = random.Random(seed)  # noqa: S311
        for _ in range(inputs):
            kind = chance.randrange(2)
            self.feed(mutated(chance, self.good[kind]), kind)

    def structured(self, inputs: int) -> None:
        """Feed what hypothesis makes: good files with any value at any place."""

        @settings(
            max_examples=inputs,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.integers(0, 1), st.lists(st.tuples(st.integers(0, 400), values), max_size=3))
        def feed(kind: int, changes: list[tuple[int, Any]]) -> None:
            raw = json.loads(self.good[kind])
            for place, value in changes:
                raw = replaced(raw, place, value)
            text = json.dumps(raw)  # with NaN and Infinity, as careless writers make it
            self.feed(text.encode("utf-8", "surrogatepass"), kind)

        feed()


def mutated(chance: random.Random, good: bytes) -> bytes:
    """Change a few bytes, or runs of them."""
    data = bytearray(good)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(max(len(data), 1))
        kind = chance.randrange(6)
        if kind == 0:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            del data[at : at + chance.randrange(1, 40)]
        elif kind == 2:
            data[at:at] = bytes(data[at : at + chance.randrange(1, 40)])
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            data[at:at] = chance.choice(_FRAGMENTS)
        else:
            data[at : at + 1] = chance.choice(b'{}[]",:\\\n0-eE.').to_bytes(1, "big")
    return bytes(data)


def replaced(raw: Any, place: int, value: Any) -> Any:
    """Put a value in the place of one node, counted in the order of the text."""
    paths = list(_paths(raw, ()))
    path = paths[place % len(paths)]
    if not path:
        return value
    inner = raw
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return raw


def _paths(raw: Any, path: tuple[Any, ...]) -> Any:
    yield path
    steps = (
        raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    )
    for step, inner in steps:
        yield from _paths(inner, (*path, step))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given_ = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(Path(folder))
        reader.mutate(given_.inputs // 2, given_.seed)
        reader.structured(given_.inputs // 2)
    sys.stdout.write(json.dumps(dict(reader.seen)) + "\n")


if __name__ == "__main__":
    main()
