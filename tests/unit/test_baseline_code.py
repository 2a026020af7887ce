"""Digests of generated code in baselines: recorded, kept, brought up to date, and migrated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_compileguard.baseline.look_up import look_up
from pytest_compileguard.baseline.recording import Changes, Wish, record
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.errors import BaselineError
from pytest_compileguard.finding import Verdict
from pytest_compileguard.observation import GraphCode
from pytest_compileguard.options import UpdateMode
from tests.records import make_environment
from tests.stored import CPU, NODEID, make_compilation, make_speed, make_verdict

ONE, TWO = "1" * 16, "2" * 16


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "pkg" / "tests").mkdir(parents=True)
    return Store(tmp_path)


def verdict_of(*digests: str, speedup: float = 1.31, **changes: Any) -> Verdict:
    code = tuple(
        GraphCode(graph=number, compile_id=f"0/{number}", part="inference", digest=digest)
        for number, digest in enumerate(digests, 1)
    )
    seen = make_compilation(code=code)
    return make_verdict(seen=seen, speed=make_speed(speedup), **changes)


def code_at(store: Store) -> tuple[float, Mapping[str, str] | None]:
    found = look_up(store, nodeid=NODEID, name="ToyModel", environment=CPU).timing
    assert found is not None
    return found.speedup, found.code


def recorded(store: Store, *digests: str, speedup: float = 1.31, mode: UpdateMode = "all") -> Any:
    return record(store, [verdict_of(*digests, speedup=speedup)], Wish(mode=mode))


def test_the_timing_holds_the_digests_and_the_facts_do_not(store: Store) -> None:
    recorded(store, ONE, TWO)
    assert code_at(store) == (1.31, {"1 inference": ONE, "2 inference": TWO})
    assert ONE not in store.facts_place(NODEID).path.read_text(encoding="utf-8")


def test_what_is_not_known_is_null(store: Store) -> None:
    recorded(store)
    assert code_at(store) == (1.31, None)


@pytest.mark.parametrize("before", ((), (ONE,)), ids=("not known", "other code"))
def test_other_code_that_is_as_fast_changes_the_digest_alone(
    store: Store, before: tuple[str, ...]
) -> None:
    recorded(store, *before)
    done = recorded(store, TWO, speedup=1.32)
    (line,) = done.changed
    assert line.endswith("::ToyModel: generated code (graph no. 1 inference)")
    assert code_at(store) == (1.31, {"1 inference": TWO}), "small losses must not add up"


def test_digests_are_stored_with_the_versions_that_they_were_made_with(store: Store) -> None:
    runs = (("3.5", ONE, "3.5"), ("3.6", ONE, "3.5"), ("3.6", TWO, "3.6"))
    for triton, digest, made_with in runs:
        environment = make_environment(triton=triton)
        record(store, [verdict_of(digest, environment=environment)])
        timing = look_up(store, nodeid=NODEID, name="ToyModel", environment=environment).timing
        assert timing is not None
        assert timing.recorded.triton == made_with


def test_equal_code_and_code_that_is_not_known_change_nothing(store: Store) -> None:
    recorded(store, ONE, TWO)
    for digests in ((ONE, TWO), (ONE,), ()):
        done: Changes = recorded(store, *digests, speedup=1.32)
        assert (done.changed, done.files) == ((), ())
    assert code_at(store) == (1.31, {"1 inference": ONE, "2 inference": TWO})


@pytest.mark.parametrize(("speedup", "kept"), ((1.32, True), (2.0, False)))
def test_only_what_became_faster_brings_its_code_where_improvements_are_wanted(
    store: Store, speedup: float, *, kept: bool
) -> None:
    recorded(store, ONE)
    recorded(store, TWO, speedup=speedup, mode="improved")
    assert code_at(store) == ((1.31, {"1 inference": ONE}) if kept else (2.0, {"1 inference": TWO}))


def older(store: Store, schema: int, *fields: str) -> None:
    """Write the timings as an older plugin did."""
    path = store.timings_place(NODEID, CPU.device_slug).path
    document = json.loads(path.read_bytes())
    document["schema"] = schema
    for columns in document["entries"].values():
        for entry in columns.values():
            for field in fields:
                del entry[field]
    path.write_text(json.dumps(document), encoding="utf-8")


def test_an_entry_of_schema_1_has_no_code_and_gets_it(store: Store) -> None:
    recorded(store, ONE)
    older(store, 1, "code", "seal", "inputs")
    assert code_at(store) == (1.31, None)
    recorded(store, TWO)
    assert code_at(store) == (1.31, {"1 inference": TWO})


SCHEMA_2 = Path(__file__).parents[1] / "data" / "timings_schema_2.json"


def test_a_file_of_schema_2_is_read_as_it_was_written(store: Store) -> None:
    path = store.timings_place(NODEID, CPU.device_slug).path
    path.parent.mkdir(parents=True)
    path.write_bytes(SCHEMA_2.read_bytes())
    assert code_at(store) == (1.31, None)
    done = recorded(store, ONE)
    assert done.files[-1] == path
    assert code_at(store) == (1.31, {"1 inference": ONE})
    assert json.loads(path.read_bytes())["schema"] == 3


def test_an_entry_says_no_more_than_its_schema_has(store: Store) -> None:
    recorded(store, ONE)
    older(store, 2)
    with pytest.raises(BaselineError, match="is not as it was recorded"):
        code_at(store)


@pytest.mark.parametrize("code", ({"1": "x"}, {"0 forward": ONE}, {"1 <b>": ONE}, [ONE]))
def test_what_is_no_digest_is_refused(store: Store, code: object) -> None:
    recorded(store, ONE)
    path = store.timings_place(NODEID, CPU.device_slug).path
    document = json.loads(path.read_bytes())
    for columns in document["entries"].values():
        for entry in columns.values():
            entry["code"] = code
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(BaselineError, match=r"\.code|: wrong key"):
        code_at(store)
