"""Files that are damaged, foreign or hostile: one clear line, and the file stays as it is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_compileguard.baseline.entries import (
    NO_FACTS,
    NO_TIMINGS,
    FactsEntry,
    FactsFile,
    Recorded,
    TimingEntry,
    TimingsFile,
)
from pytest_compileguard.baseline.entry_text import MAX_BYTES, DamagedError, decode, encode
from pytest_compileguard.baseline.reading import read
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.errors import BaselineError

NODEID = "tests/test_x.py::test_mlp"
REMEDY = (
    "; restore it from version control, or delete it and record again "
    "with --compileguard-update-baseline"
)

MERGE = "; merge its two sides entry by entry with `compileguard merge`"

RECORDED = Recorded(
    torch="2.13.0",
    python="3.12.1",
    plugin="0.1.0",
    device="Some CPU",
    triton=None,
    cuda=None,
    driver=None,
    platform="linux-x86_64",
)
ENTRY = FactsEntry(
    graph_breaks=1,
    break_events=1,
    recompiles=0,
    graphs=2,
    ops=12,
    kernels=2,
    breaks=("models/mlp.py:41 in forward: Failed to trace",),
    backend="inductor",
    mode=None,
    calls=3,
    recorded=RECORDED,
)
FILE = FactsFile(
    kind="facts",
    schema=3,
    entries={
        "test_a::f": {"cpu torch 2.13": ENTRY},
        "test_mlp::ToyModel": {"cpu torch 2.12": ENTRY, "cpu torch 2.13": ENTRY},
    },
)
GOOD = encode(FILE)


def changed(*path: str, value: Any) -> bytes:
    """The good file with one value replaced."""
    raw = json.loads(GOOD)
    inner = raw
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(raw, indent=2).encode()


def text(old: str, new: str) -> bytes:
    assert old.encode() in GOOD
    return GOOD.replace(old.encode(), new.encode(), 1)


def without_seal(field: str, value: int) -> bytes:
    """The good file with a number edited by hand, and the seal deleted that would tell."""
    raw = json.loads(changed(*ROW, field, value=value))
    del raw["entries"][ROW[1]][ROW[2]]["seal"]
    return json.dumps(raw, indent=2).encode()


ROW = ("entries", "test_mlp::ToyModel", "cpu torch 2.13")
AT = '$.entries["test_mlp::ToyModel"]["cpu torch 2.13"]'
CONFLICT = b"<<<<<<< HEAD\n" + GOOD + b"=======\n" + GOOD + b">>>>>>> topic\n"

DAMAGED = {
    "empty": (b"", "the file is empty"),
    "blank": (b"\n \n", "the file is empty"),
    "truncated": (GOOD[:400], "line 18: the text ends too early (truncated)"),
    "no JSON": (b"hello\n", "line 1: JSON is malformed: invalid character"),
    "trailing": (
        GOOD + b"{}",
        f"line {GOOD.count(10) + 1}: JSON is malformed: trailing characters",
    ),
    "missing comma": (text('"graphs": 2,', '"graphs": 2'), "line 13: JSON is malformed: expected"),
    "conflict": (CONFLICT, "line 1: conflict marker '<<<<<<< HEAD' of an unfinished merge"),
    "conflict inside": (
        text('      "cpu torch 2.13"', '=======\r\n      "cpu torch 2.13"'),
        "line 4: conflict marker '=======' of an unfinished merge",
    ),
    "diff3 conflict": (
        text('  "entries"', '||||||| base\n  "entries"'),
        "line 2: conflict marker '||||||| base' of an unfinished merge",
    ),
    "not UTF-8": (GOOD.replace(b"forward", b"f\xf6rward", 1), "line 8: not UTF-8 (byte 0xf6)"),
    "UTF-16": (GOOD.decode().encode("utf-16"), "line 1: not UTF-8 (byte 0xff)"),
    "byte order mark": (b"\xef\xbb\xbf" + GOOD, "line 1: begins with a byte order mark; save it"),
    "lone surrogate": (text("inductor", "\\ud800"), "line 5: JSON is malformed: unexpected end"),
    "control character": (text("inductor", "a\x01b"), "line 5: JSON is malformed: invalid"),
    "text for number": (changed(*ROW, "ops", value="12"), f"{AT}.ops: Expected `int`, got `str`"),
    "fraction": (changed(*ROW, "ops", value=1.5), f"{AT}.ops: Expected `int`, got `float`"),
    "boolean": (changed(*ROW, "ops", value=True), f"{AT}.ops: Expected `int`, got `bool`"),
    "negative": (changed(*ROW, "ops", value=-1), f"{AT}.ops: Expected `int` >= 0"),
    "huge": (changed(*ROW, "ops", value=10**30), f"{AT}.ops: Expected `int` <= 9007199254740992"),
    "endless digits": (text('"ops": 12', f'"ops": {"9" * 9999}'), "$.entries[...][...].ops: "),
    "NaN": (text('"ops": 12', '"ops": NaN'), "line 16: JSON is malformed: invalid character"),
    "missing field": (
        text('"calls": 3,', ""),
        '$.entries["test_a::f"]["cpu torch 2.13"]: Object missing required field `calls`',
    ),
    "unknown field": (
        changed(*ROW, "extra", value=1),
        f"{AT}: Object contains unknown field `extra`",
    ),
    "unprintable field": (
        changed(*ROW, "a\nb" * 99, value=1),
        f"{AT}: Object contains unknown field `a\\nba\\nb",
    ),
    "wrong element": (changed(*ROW, "breaks", value=["a", 1]), f"{AT}.breaks[1]: Expected `str`"),
    "deep value": (changed(*ROW, "recorded", "cuda", value=1), f"{AT}.recorded.cuda: Expected"),
    "no seal": (without_seal("graph_breaks", 0), f"{AT}: is not as it was recorded"),
    "null for a seal": (changed(*ROW, "seal", value=None), f"{AT}: is not as it was recorded"),
    "older schema with a seal": (changed("schema", value=1), '$.entries["test_a::f"]'),
    "no entry": (changed(*ROW, value=None), f"{AT}: Expected `object`, got `null`"),
    "no columns": (
        changed("entries", "test_a::f", value=[]),
        '$.entries["test_a::f"]: Expected `object`, got `array`',
    ),
    "wrong column": (
        text('"cpu torch 2.12"', '"cpu torch two"'),
        '$.entries["test_mlp::ToyModel"]["cpu torch two"]: wrong key: Expected `str` matching',
    ),
    "no table": (changed("entries", value=[]), "$.entries: Expected `object`, got `array`"),
    "list": (b"[]", "$: Expected `object`, got `array`"),
    "no schema": (text(',\n  "schema": 3', ""), "$: Object missing required field `schema`"),
    "newer schema": (
        changed("schema", value=4),
        "$.schema: 4: written by a newer pytest-compileguard, this one reads schema 3; update it",
    ),
    "schema as text": (changed("schema", value="1"), "$.schema: "),
    "timings": (changed("kind", value="timings"), "$.kind: Invalid enum value 'timings'"),
    "deep list": (b"[" * 200_000, "$: Expected `object`, got `array`"),
    "deep object": (b'{"entries":' * 200_000, ""),
    "deep field": (b'{"kind":' + b"[" * 200_000, "$.kind: Expected `str`, got `array`"),
    "deep entry": (
        text("12", "[" * 200_000),
        "$.entries[...][...].ops: Expected `int`, got `array`",
    ),
    "key twice": (
        text('"cpu torch 2.12"', '"cpu torch 2.13"'),
        f"{AT}: this key stands there twice",
    ),
    "field twice": (
        text('"calls": 3', '"calls": 4, "calls": 3'),
        '$.entries["test_a::f"]["cpu torch 2.13"].calls: this key stands there twice',
    ),
    "top key twice": (text("{", '{"schema": 3,'), "$.schema: this key stands there twice"),
    "too great": (GOOD + b" " * MAX_BYTES, "more than 20 MB; a baseline is far smaller"),
    "long key": (
        changed("entries", "k" * 10_000, value=1),
        f'$.entries["{"k" * 100}..."]: Expected `object`, got `int`',
    ),
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "tests" / "__compileguard__").mkdir(parents=True)
    return Store(tmp_path)


def add_entry(file: FactsFile) -> FactsFile:
    row = {"new": {"cpu torch 2.13": ENTRY}}
    return msgspec.structs.replace(file, entries={**file.entries, **row})


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(BaselineError) as caught:
        call()
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 1000
    return message


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_file_is_refused_and_left_as_it_is(store: Store, kind: str) -> None:
    data, said = DAMAGED[kind]
    place = store.facts_place(NODEID)
    place.path.write_bytes(data)

    message = refusal(lambda: store.facts(NODEID))
    assert message.startswith(f"{place.path}: {said}")
    assert message.endswith(MERGE if "conflict marker" in said else REMEDY)
    assert refusal(lambda: store.update(place, NO_FACTS, add_entry)) == message
    assert place.path.read_bytes() == data
    assert [path.name for path in place.home.iterdir()] == ["test_x.json"]


@pytest.mark.parametrize(
    ("speedup", "said"),
    (
        ("0", "Expected `float` > 0.0"),
        ("1e999", "Expected `float` < 1000000000000000.0"),
        ("1e300", "Expected"),
    ),
)
def test_an_impossible_time_is_refused(store: Store, speedup: str, said: str) -> None:
    entry = TimingEntry(
        speedup=1.5,
        speedup_low=1.4,
        speedup_high=1.6,
        eager_ms=3.0,
        compiled_ms=2.0,
        pairs=100,
        clock="wall",
        backend="inductor",
        mode=None,
        recorded=RECORDED,
    )
    rows = {"test_x.py::test_mlp::ToyModel": {"torch 2.13": entry}}
    data = encode(TimingsFile(kind="timings", schema=3, entries=rows))
    path = store.timings_place(NODEID, "some-cpu").path
    path.parent.mkdir()
    path.write_bytes(data.replace(b'"speedup": 1.5', f'"speedup": {speedup}'.encode()))
    message = refusal(lambda: store.timings(NODEID, "some-cpu"))
    assert ".speedup: " + said in message


def test_a_folder_in_place_of_the_file_is_refused(store: Store) -> None:
    place = store.facts_place(NODEID)
    place.path.mkdir()
    for call in (lambda: store.facts(NODEID), lambda: store.update(place, NO_FACTS, add_entry)):
        assert refusal(call) == f"{place.path}: not a regular file{REMEDY}"
    assert list(place.path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe_does_not_hang_the_run(store: Store) -> None:
    path = store.facts_place(NODEID).path
    os.mkfifo(path)
    assert refusal(lambda: store.facts(NODEID)).startswith(f"{path}: not a regular file")


def test_a_value_that_cannot_be_read_back_is_not_written() -> None:
    entry = msgspec.structs.replace(ENTRY, ops=-1)
    broken = msgspec.structs.replace(FILE, entries={"t": {"cpu torch 2.13": entry}})
    with pytest.raises(DamagedError, match=r"\.ops: Expected `int` >= 0"):
        encode(broken)


def test_all_that_a_test_is_held_against_can_be_read_beforehand(store: Store) -> None:
    store.verify(NODEID)
    store.facts_place(NODEID).path.write_bytes(GOOD)
    timings_path = store.timings_place(NODEID, "some-gpu").path
    timings_path.parent.mkdir()
    timings_path.write_bytes(encode(NO_TIMINGS))
    store.verify(NODEID)
    timings_path.write_bytes(CONFLICT)
    assert "conflict marker" in refusal(lambda: store.verify(NODEID))
    timings_path.unlink()
    store.facts_place(NODEID).path.write_bytes(CONFLICT)
    assert "conflict marker" in refusal(lambda: store.verify(NODEID))


counts = st.integers(0, 2**53)
texts = st.text(max_size=30)
recorded = st.builds(
    Recorded,
    **dict.fromkeys(("torch", "python", "plugin", "device", "platform"), texts),
    **dict.fromkeys(("triton", "cuda", "driver"), st.none() | texts),
)
facts = st.builds(
    FactsEntry,
    **dict.fromkeys(
        ("graph_breaks", "break_events", "recompiles", "graphs", "ops", "kernels", "calls"), counts
    ),
    breaks=st.lists(texts, max_size=3).map(tuple),
    backend=texts,
    mode=st.none() | texts,
    recorded=recorded,
)
positive = st.floats(1e-300, 1e14)
timings = st.builds(
    TimingEntry,
    **dict.fromkeys(
        ("speedup", "speedup_low", "speedup_high", "eager_ms", "compiled_ms"), positive
    ),
    pairs=counts,
    clock=st.sampled_from(("wall", "device")),
    backend=texts,
    mode=st.none() | texts,
    recorded=recorded,
)


@given(st.dictionaries(texts, st.dictionaries(st.just("cpu torch 2.13"), facts), max_size=4))
def test_facts_come_back_as_they_were(entries: dict[str, dict[str, FactsEntry]]) -> None:
    file = FactsFile(kind="facts", schema=3, entries=entries)
    assert decode(encode(file), FactsFile) == file


@given(st.dictionaries(texts, st.dictionaries(st.just("torch 2.13"), timings), max_size=4))
def test_timings_come_back_as_they_were(entries: dict[str, dict[str, TimingEntry]]) -> None:
    file = TimingsFile(kind="timings", schema=3, entries=entries)
    assert decode(encode(file), TimingsFile) == file


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    assert read(tmp_path / "test_x.json", FactsFile) is None


@pytest.mark.parametrize("name", ("__compileguard__", "__compileguard__/timings"))
def test_a_file_where_a_folder_belongs_is_named(tmp_path: Path, name: str) -> None:
    in_the_way = tmp_path / "tests" / name
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("", encoding="ascii")
    with pytest.raises(BaselineError) as caught:
        Store(tmp_path).timings(NODEID, "cpu")
    assert str(caught.value) == (
        f"{in_the_way}: a file, where the folder of baselines belongs; move it away, or name "
        "another folder by --compileguard-baseline-dir (ini key compileguard_baseline_dir)"
    )
    assert in_the_way.read_text(encoding="ascii") == ""


def test_a_file_that_is_named_as_the_folder_is_named(tmp_path: Path) -> None:
    module = tmp_path / "test_x.py"
    module.write_text("", encoding="ascii")
    with pytest.raises(BaselineError) as caught:
        Store(tmp_path, baseline_dir=module).facts(NODEID)
    assert str(caught.value).startswith(f"{module}: a file, where the folder of baselines belongs")
