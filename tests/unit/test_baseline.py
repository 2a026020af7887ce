"""Recording verdicts and looking them up again."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_compileguard.baseline.entries import FactsEntry, TimingEntry, significant
from pytest_compileguard.baseline.look_up import look_up
from pytest_compileguard.baseline.recording import Changes, Wish, record
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.environment import Environment
from pytest_compileguard.errors import BaselineError
from pytest_compileguard.metrics import FACTS
from pytest_compileguard.observation import (
    NotObserved,
    SpeedObservation,
)
from pytest_compileguard.options import UpdateMode
from tests.records import make_environment
from tests.stored import (
    CPU,
    NODEID,
    files_below,
    make_compilation,
    make_site,
    make_speed,
    make_verdict,
)

FACTS_FILE = "pkg/tests/__compileguard__/test_x.json"
TIMINGS_FILE = "pkg/tests/__compileguard__/timings/nvidia-h200.json"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "pkg" / "tests").mkdir(parents=True)
    return Store(tmp_path)


def facts_at(store: Store, environment: Environment, nodeid: str = NODEID) -> FactsEntry | None:
    return look_up(store, nodeid=nodeid, name="ToyModel", environment=environment).facts


def timing_at(store: Store, environment: Environment, nodeid: str = NODEID) -> TimingEntry | None:
    return look_up(store, nodeid=nodeid, name="ToyModel", environment=environment).timing


# --- recording and looking up -----------------------------------------------------------------


def test_what_was_recorded_is_found(store: Store) -> None:
    gpu = make_environment()
    seen = make_compilation(make_site(), make_site(line=9, id=None, allowed=True))
    changes = record(store, [make_verdict(seen=seen, speed=make_speed(), environment=gpu)])

    found = look_up(store, nodeid=NODEID, name="ToyModel", environment=gpu)
    assert found.facts is not None
    assert found.facts.numbers == {
        "graph_breaks": 1,
        "break_events": 2,
        "recompiles": 0,
        "graphs": 3,
        "ops": 12,
        "kernels": 2,
    }
    assert found.facts.breaks == (
        "models/mlp.py:9 in forward: Failed to trace builtin operator, allowed",
        "models/mlp.py:41 in forward: Failed to trace builtin operator (GB0059)",
    )
    assert (found.facts.calls, found.facts.backend, found.facts.mode) == (3, "inductor", None)
    assert found.facts.recorded.device == "NVIDIA H200"
    assert found.timing is not None
    assert (found.timing.speedup, found.timing.pairs, found.timing.clock) == (1.31, 400, "wall")
    assert (found.facts_note, found.timing_note) == ("", "")
    assert changes.files == (store.rootpath / FACTS_FILE, store.rootpath / TIMINGS_FILE)


def test_every_fact_of_the_metrics_table_is_stored(store: Store) -> None:
    record(store, [make_verdict()])
    facts = facts_at(store, CPU)
    assert facts is not None
    assert tuple(facts.numbers) == tuple(metric.name for metric in FACTS)


def test_nothing_is_found_where_nothing_is_stored(store: Store) -> None:
    found = look_up(store, nodeid=NODEID, name="ToyModel", environment=make_environment("2.11.0"))
    assert (found.facts, found.timing) == (None, None)
    assert found.facts_note == "none for cuda, torch 2.11"
    assert found.timing_note == "none for NVIDIA H200, torch 2.11"
    assert files_below(store.rootpath) == {}


def test_only_recordable_verdicts_are_stored(store: Store) -> None:
    changes = record(store, [make_verdict(outcome="failed", recordable=False)])
    assert changes == Changes(added=(), changed=(), kept=(), unstored=(), files=())
    assert list((store.rootpath / "pkg/tests").iterdir()) == []


def test_the_last_verdict_of_a_check_counts(store: Store) -> None:
    record(store, [make_verdict(seen=make_compilation(ops=n)) for n in (3, 4)])
    facts = facts_at(store, CPU)
    assert facts is not None
    assert facts.ops == 4


def test_a_verdict_without_facts_is_refused_before_anything_is_written(store: Store) -> None:
    empty = make_verdict("pkg/tests/test_y.py::t", seen=NotObserved(reason="it was off"))
    with pytest.raises(BaselineError, match=r"test_y.py::t::ToyModel: no facts .* it was off"):
        record(store, [make_verdict(), empty])
    with pytest.raises(BaselineError, match="no device was seen"):
        record(store, [make_verdict(environment=None)])
    assert files_below(store.rootpath) == {}


# --- which entry may be compared --------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "now", "found"),
    (
        (("2.12.0", "2.13.1"), "2.13.0", "2.13.1"),
        (("2.9.0", "2.10.0"), "2.11.0", "2.10.0"),
        (("2.9.0", "2.10.0"), "2.10.0", "2.10.0"),
        (("2.9.0", "2.10.0"), "3.0.0", "2.10.0"),
        (("2.10.0",), "2.9.0", None),
        (("1.13.0", "2.14.0"), "2.13.0", "1.13.0"),
        (("2.14.0.dev20990101+cpu",), "2.14.0", "2.14.0.dev20990101+cpu"),
    ),
)
def test_facts_of_the_nearest_older_torch_serve(
    store: Store, stored: tuple[str, ...], now: str, found: str | None
) -> None:
    for torch in stored:
        record(store, [make_verdict(environment=msgspec.structs.replace(CPU, torch=torch))])
    facts = facts_at(store, msgspec.structs.replace(CPU, torch=now))
    assert (facts.recorded.torch if facts else None) == found


def test_older_facts_say_so(store: Store) -> None:
    record(store, [make_verdict(environment=msgspec.structs.replace(CPU, torch="2.12.1"))])
    found = look_up(store, nodeid=NODEID, name="ToyModel", environment=CPU)
    assert found.facts_note == "recorded with torch 2.12, this is 2.13"


def test_facts_of_another_device_type_do_not_serve(store: Store) -> None:
    record(store, [make_verdict(environment=make_environment("2.12.0"))])
    found = look_up(store, nodeid=NODEID, name="ToyModel", environment=CPU)
    assert (found.facts, found.facts_note) == (None, "none for cpu, torch 2.13")


def test_timings_serve_for_the_same_device_and_torch_only(store: Store) -> None:
    record(store, [make_verdict(speed=make_speed(), environment=make_environment())])
    assert timing_at(store, make_environment("2.13.7")) is not None
    assert timing_at(store, make_environment("2.14.0")) is None
    assert timing_at(store, make_environment(device_name="NVIDIA H100")) is None
    # The same file name, but another device.
    assert timing_at(store, make_environment(device_name="NVIDIA-H200")) is None


# --- merging ----------------------------------------------------------------------------------


def test_entries_of_others_stay(store: Store) -> None:
    gpu, newer = make_environment(), make_environment("2.14.0")
    h100 = make_environment(device_name="NVIDIA H100")
    other = "pkg/tests/test_y.py::test_other"
    for nodeid in (NODEID, NODEID + "[2]", other):
        for environment in (CPU, gpu, newer, h100):
            record(store, [make_verdict(nodeid, speed=make_speed(), environment=environment)])
    before = files_below(store.rootpath)
    seen = make_compilation(make_site())
    record(store, [make_verdict(seen=seen, speed=make_speed(3.0), environment=gpu)])

    assert len(before) == 5  # two modules, three devices
    after = files_below(store.rootpath)
    assert [name for name in before if after[name] != before[name]] == [FACTS_FILE, TIMINGS_FILE]
    for nodeid in (NODEID + "[2]", other):
        for environment in (CPU, gpu, newer, h100):
            timing = timing_at(store, environment, nodeid)
            assert timing is not None
            assert timing.speedup == 1.31
            assert facts_at(store, environment, nodeid) is not None
    assert [bool((f := facts_at(store, e)) and f.graph_breaks) for e in (gpu, newer)] == [
        True,
        False,
    ]


def test_changes_are_told_by_check(store: Store) -> None:
    gpu = make_environment()
    twice = make_compilation(make_site(), make_site(line=50))
    first = [
        make_verdict(seen=twice, speed=make_speed(), environment=gpu),
        make_verdict(NODEID + "[b]"),
    ]
    assert record(store, first).added == (
        f"{NODEID}::ToyModel: facts for cuda torch 2.13; speedup 1.31 for NVIDIA H200, torch 2.13",
        f"{NODEID}[b]::ToyModel: facts for cpu torch 2.13",
    )
    once = make_compilation(make_site())
    second = [
        make_verdict(seen=once, speed=make_speed(1.4), environment=gpu, mode="max-autotune"),
        make_verdict(NODEID + "[b]"),
        make_verdict(NODEID + "[c]"),
    ]
    changes = record(store, second)
    assert changes.changed == (
        (
            f"{NODEID}::ToyModel: graph breaks 2 -> 1, break events 2 -> 1, graphs 3 -> 2, "
            "mode None -> max-autotune; speedup 1.31 -> 1.4, mode None -> max-autotune"
        ),
    )
    assert changes.added == (f"{NODEID}[c]::ToyModel: facts for cpu torch 2.13",)
    assert changes.kept == (f"{NODEID}[b]::ToyModel",)


def test_a_moved_break_site_is_a_change(store: Store) -> None:
    record(store, [make_verdict(seen=make_compilation(make_site()))])
    moved = record(store, [make_verdict(seen=make_compilation(make_site(line=42)))])
    assert moved.changed == (f"{NODEID}::ToyModel: break sites",)


def test_equal_results_leave_the_file_untouched(store: Store) -> None:
    record(store, [make_verdict(speed=make_speed())])
    path = store.rootpath / FACTS_FILE
    before, stamp = files_below(store.rootpath), path.stat()
    shutil.rmtree(path.parent / ".lock")
    elsewhere = msgspec.structs.replace(CPU, torch="2.13.4", python="3.14.0", plugin="0.2.0")
    changes = record(store, [make_verdict(speed=make_speed(), environment=elsewhere)])

    assert changes.kept == (f"{NODEID}::ToyModel",)
    assert (changes.added, changes.changed, changes.files) == ((), (), ())
    assert files_below(store.rootpath) == before
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (stamp.st_mtime_ns, stamp.st_ino)
    assert not (path.parent / ".lock").exists()  # nothing to write: not even a lock


def test_a_reformatted_file_is_not_rewritten(store: Store) -> None:
    record(store, [make_verdict()])
    path = store.rootpath / FACTS_FILE
    path.write_bytes(json.dumps(json.loads(path.read_bytes()), indent=4).encode() + b"\r\n")
    before = path.read_bytes()
    assert record(store, [make_verdict()]).files == ()
    assert path.read_bytes() == before


def test_the_order_of_recording_does_not_show(store: Store, tmp_path: Path) -> None:
    verdicts = [make_verdict(f"pkg/tests/test_x.py::test_{n}") for n in (3, 1, 2)]
    record(store, verdicts)
    other = Store(tmp_path, tmp_path / "elsewhere")
    for verdict in reversed(verdicts):
        record(other, [verdict])
    first, second = (s.facts_place(NODEID).path.read_bytes() for s in (store, other))
    assert first == second


# --- the text ---------------------------------------------------------------------------------


def test_the_file_is_as_formatters_of_json_write_it(store: Store) -> None:
    record(store, [make_verdict(nodeid=NODEID + "[é]", seen=make_compilation(make_site()))])
    text = (store.rootpath / FACTS_FILE).read_bytes()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True).encode() + b"\n"
    assert json.loads(re.sub(rb'"seal": "[0-9a-f]{12}"', b'"seal": "SEAL"', text)) == {
        "kind": "facts",
        "schema": 3,
        "entries": {
            "test_mlp[é]::ToyModel": {
                "cpu torch 2.13": {
                    "graph_breaks": 1,
                    "break_events": 1,
                    "recompiles": 0,
                    "graphs": 2,
                    "ops": 12,
                    "kernels": 2,
                    "breaks": [
                        "models/mlp.py:41 in forward: Failed to trace builtin operator (GB0059)"
                    ],
                    "backend": "inductor",
                    "mode": None,
                    "calls": 3,
                    "seal": "SEAL",
                    "inputs": ["2 x float32[32, 64]", "float32[48, 64]"],
                    "recorded": {
                        "torch": "2.13.0+cpu",
                        "python": "3.12.1",
                        "plugin": "0.1.0",
                        "device": "Some CPU",
                        "triton": None,
                        "cuda": None,
                        "driver": None,
                        "platform": "linux-x86_64",
                        "commit": None,
                        "limits": {"max_graph_breaks": 1},
                    },
                }
            }
        },
    }


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_rounding_is_stable_and_close(number: float) -> None:
    rounded = significant(number)
    assert significant(rounded) == rounded
    assert math.isclose(rounded, number, rel_tol=5.1e-4)


@pytest.mark.parametrize(
    ("file", "shown"),
    (
        ("{root}/models/mlp.py", "models/mlp.py"),
        ("{root}/.venv/lib/python3.12/site-packages/lib/mod.py", "lib/mod.py"),
        ("/usr/lib/python3/dist-packages/lib/mod.py", "lib/mod.py"),
        ("/elsewhere/mod.py", "/elsewhere/mod.py"),
        ("{root}-other/mod.py", "{root}-other/mod.py"),
        ("<string>", "<string>"),
        ("odd\nname\udc80.py", "odd\\nname\\udc80.py"),
    ),
)
def test_places_are_relative_where_machines_differ(store: Store, file: str, shown: str) -> None:
    site = make_site(file=file.format(root=store.rootpath), reason="two\nlines", id=None)
    record(store, [make_verdict(seen=make_compilation(site))])
    facts = facts_at(store, CPU)
    assert facts is not None
    assert facts.breaks == (f"{shown.format(root=store.rootpath)}:41 in forward: two lines",)


# --- timings that say nothing -----------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    (
        {"speedup_low": 0.0, "speedup_high": math.inf, "pairs": 3},
        {"speedup": math.nan, "pairs": 3},
        {"eager_ms": 0.0, "pairs": 3},
        {"speedup_low": 1.4, "pairs": 3},
    ),
)
def test_a_timing_without_an_interval_is_told_and_not_stored(
    store: Store, changes: dict[str, float]
) -> None:
    done = record(store, [make_verdict(speed=make_speed(**changes))])
    assert done.unstored == (f"{NODEID}::ToyModel: 3 pairs give no interval",)
    assert done.files == (store.rootpath / FACTS_FILE,)


def test_void_samples_are_told_and_not_stored(store: Store) -> None:
    samples = SpeedObservation(
        clock="perf_counter",
        device="cpu",
        call=0,
        calls_per_block=1,
        warmup=1,
        eager_s=(1.0,),
        compiled_s=(1.0,),
        void="a recompile while sampling",
    )
    verdict = make_verdict(speed=make_speed())
    observation = msgspec.structs.replace(verdict.observation, speed=samples)
    done = record(store, [msgspec.structs.replace(verdict, observation=observation)])
    reason = "the samples don't count: a recompile while sampling"
    assert done.unstored == (f"{NODEID}::ToyModel: {reason}",)
    assert done.files == (store.rootpath / FACTS_FILE,)


@pytest.mark.parametrize(
    ("before", "now", "kept"), ((1.31, 1.40, True), (1.31, 0.95, True), (1.31, 2.0, False))
)
def test_a_timing_within_the_noise_stays_as_it_is(
    store: Store, before: float, now: float, *, kept: bool
) -> None:
    for speedup in (before, now):
        record(store, [make_verdict(speed=make_speed(speedup))])
    timing = timing_at(store, CPU)
    assert timing is not None
    assert (timing.speedup == before) is kept


def test_an_entry_older_than_the_record_of_inputs_can_be_improved(store: Store) -> None:
    worse = make_compilation(make_site(), inputs=())
    record(store, [make_verdict(seen=worse)])
    path = store.facts_place(NODEID).path
    document = json.loads(path.read_bytes())
    (entry,) = document["entries"]["test_mlp::ToyModel"].values()
    del entry["inputs"], entry["seal"]
    document["schema"] = 1
    path.write_text(json.dumps(document), encoding="utf-8")
    done = record(store, [make_verdict()], Wish(mode="improved"))
    (line,) = done.changed
    assert "graph breaks 1 -> 0" in line


@pytest.mark.parametrize("mode", ("all", "new", "improved"))
def test_the_timing_of_a_model_whose_name_is_cut_alike_is_replaced(
    store: Store, mode: UpdateMode
) -> None:
    one, other = (make_environment(device_name=f"{'x' * 90} {name}") for name in "ab")
    assert one.device_slug == other.device_slug
    record(store, [make_verdict(speed=make_speed(), environment=one)])

    record(store, [make_verdict(speed=make_speed(), environment=other)], Wish(mode=mode))

    assert (timing_at(store, other) is not None) is (mode != "improved")
    assert (timing_at(store, one) is not None) is (mode == "improved")


def test_an_untimed_run_keeps_the_stored_timing(store: Store) -> None:
    record(store, [make_verdict(speed=make_speed())])
    record(store, [make_verdict(seen=make_compilation(make_site()), speed=None)])
    assert timing_at(store, CPU) is not None


# --- ids and places ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nodeid",
    (
        "pkg/tests/test_x.py::test[a/b/../c]",
        "pkg/tests/test_x.py::test[a\nb]",
        "pkg/tests/test_x.py::Class::test[ünï-漢字-🙂]",
        "pkg/tests/test_x.py::test[C:\\windows\\x.txt]",
        "pkg/tests/test_x.py::test[a::b]",
        "pkg/tests/test_x.py::test[\udc80]",
        f"pkg/tests/test_x.py::test[{'x' * 10_000}]",
        "pkg\\tests\\test_x.py::test",
        "pkg/tests/test_x.py",
    ),
    ids=[
        "slash",
        "newline",
        "non-ascii",
        "windows",
        "colons",
        "bytes",
        "10kB",
        "backslash",
        "bare",
    ],
)
def test_any_test_id_finds_its_own_entry(store: Store, nodeid: str) -> None:
    gpu = make_environment()
    record(store, [make_verdict("pkg/tests/test_x.py::test[other]", environment=gpu)])
    seen = make_compilation(ops=77)
    record(store, [make_verdict(nodeid, seen=seen, speed=make_speed(), environment=gpu)])
    facts, timing = facts_at(store, gpu, nodeid), timing_at(store, gpu, nodeid)
    assert facts is not None
    assert facts.ops == 77
    assert timing is not None
    assert sorted(files_below(store.rootpath)) == [FACTS_FILE, TIMINGS_FILE]
    assert facts_at(store, gpu, "pkg/tests/test_x.py::test[other]") is not None


@pytest.mark.parametrize(
    ("nodeid", "inside"),
    (
        ("pkg/tests/test_x.py::t", "pkg/tests/test_x.json"),
        ("test_x.py::t", "test_x.json"),
        ("docs/test_x.md::t", "docs/test_x.md.json"),
        ("../other/test_x.py::t", "__up__/other/test_x.json"),
        ("a/../../../test_x.py::t", "a/__up__/__up__/__up__/test_x.json"),
        ("/etc/test_x.py::t", "__root__/etc/test_x.json"),
        ("//etc/test_x.py::t", "__root__/etc/test_x.json"),
        ("C:\\a\\test_x.py::t", "C_/a/test_x.json"),
        ("a/./b//test_x.py::t", "a/b/test_x.json"),
        ("../..::t", "__up__/...json"),
    ),
)
def test_a_baseline_folder_is_never_left(tmp_path: Path, nodeid: str, inside: str) -> None:
    folder = tmp_path / "made" / "baselines"
    store = Store(tmp_path / "root", folder)
    record(store, [make_verdict(nodeid, speed=make_speed(), environment=make_environment())])
    timings = Path(inside).parent / "timings" / "nvidia-h200.json"
    assert sorted(files_below(folder)) == sorted([inside, timings.as_posix()])
    assert sorted(files_below(tmp_path)) == sorted(
        f"made/baselines/{name}" for name in files_below(folder)
    )
    assert facts_at(store, make_environment(), nodeid) is not None


@pytest.mark.parametrize("nodeid", ("", "::test", "/", "pkg/test_x.py\0::test"))
def test_an_id_without_a_module_is_refused(store: Store, nodeid: str) -> None:
    with pytest.raises(BaselineError, match="names no test module"):
        record(store, [make_verdict(nodeid)])
    with pytest.raises(BaselineError, match="names no test module"):
        facts_at(store, CPU, nodeid)


def test_a_folder_of_tests_that_is_not_there_is_not_made(store: Store) -> None:
    with pytest.raises(BaselineError, match="No such file or directory"):
        record(store, [make_verdict("gone/tests/test_x.py::t")])
    assert not (store.rootpath / "gone").exists()


names = st.text(min_size=1, max_size=20)


@settings(max_examples=40, deadline=None)
@given(test=names, name=names, ops=st.integers(0, 2**53), speedup=st.floats(1e-3, 1e3))
def test_any_result_comes_back(
    tmp_path_factory: pytest.TempPathFactory, test: str, name: str, ops: int, speedup: float
) -> None:
    store = Store(Path("/nowhere"), tmp_path_factory.mktemp("baselines"))
    nodeid = f"tests/test_x.py::{test}".replace("\0", "")
    seen = make_compilation(make_site(function=name, reason=test), ops=ops)
    verdict = make_verdict(nodeid, name=name, seen=seen, speed=make_speed(speedup))
    record(store, [verdict])
    found = look_up(store, nodeid=nodeid, name=name, environment=CPU)
    assert found.facts is not None
    assert found.facts.ops == ops
    assert found.timing is not None
    assert found.timing.speedup == significant(speedup)
    assert record(store, [verdict]).files == ()


# --- the repository ---------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_version_control_sees_the_results_alone(store: Store) -> None:
    record(store, [make_verdict(speed=make_speed(), environment=make_environment())])
    subprocess.run(["git", "init", "-q", store.rootpath], check=True)  # noqa: S607
    listed = subprocess.run(
        ["git", "status", "--porcelain", "-uall"],  # noqa: S607
        cwd=store.rootpath,
        check=True,
        capture_output=True,
        text=True,
    )
    assert listed.stdout.splitlines() == [f"?? {FACTS_FILE}", f"?? {TIMINGS_FILE}"]


def test_baselines_need_neither_torch_nor_pytest() -> None:
    code = (
        "import sys, pytest_compileguard.baseline; "
        "assert not {'torch', 'pytest', 'filelock'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
