"""The files of baselines: several writers, kills, links, full disks and closed folders."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from filelock import FileLock

from pytest_compileguard.baseline.entries import NO_FACTS, FactsEntry, FactsFile, Recorded
from pytest_compileguard.baseline.entry_text import encode
from pytest_compileguard.baseline.places import Place
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.errors import BaselineError

NODEID = "tests/test_x.py::test_mlp"
COLUMN = "cpu torch 2.13"

# A process that puts entries into the file of NODEID, as the plugin of another run would.
WRITER = """
import sys
from pathlib import Path
import msgspec
from pytest_compileguard.baseline.entries import NO_FACTS, FactsEntry, Recorded
from pytest_compileguard.baseline.store import Store

store, name, rounds = Store(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
names = ("torch", "python", "plugin", "device", "triton", "cuda", "driver", "platform")
texts = dict.fromkeys(names, "x")
numbers = dict.fromkeys(
    ("graph_breaks", "break_events", "recompiles", "graphs", "ops", "kernels"), 1
)
place = store.facts_place("tests/test_x.py::test_mlp")
print("ready", flush=True)
for n in range(rounds):
    entry = FactsEntry(
        **numbers, calls=n, breaks=("y" * 2000,) * 20, backend="b", mode=None,
        recorded=Recorded(**texts),
    )
    key = f"{name}-{n % 20}"
    def put(file):
        return msgspec.structs.replace(
            file, entries={**file.entries, key: {"cpu torch 2.13": entry}}
        )
    store.update(place, NO_FACTS, put)
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "tests").mkdir()
    return Store(tmp_path)


@pytest.fixture
def place(store: Store) -> Place:
    return store.facts_place(NODEID)


def make_entry(calls: int = 1) -> FactsEntry:
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
        graph_breaks=0,
        break_events=0,
        recompiles=0,
        graphs=1,
        ops=12,
        kernels=2,
        breaks=(),
        backend="inductor",
        mode=None,
        calls=calls,
        recorded=recorded,
    )


def add_entry(file: FactsFile) -> FactsFile:
    entries = {**file.entries, "new": {COLUMN: make_entry()}}
    return msgspec.structs.replace(file, entries=entries)


def put_file(path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = encode(FactsFile(kind="facts", schema=3, entries={"old": {COLUMN: make_entry()}}))
    path.write_bytes(data)
    return data


def refusal(store: Store, place: Place) -> str:
    with pytest.raises(BaselineError) as caught:
        store.update(place, NO_FACTS, add_entry)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@contextmanager
def writer(store: Store, name: str, rounds: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WRITER, str(store.rootpath), name, str(rounds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


# --- several processes ------------------------------------------------------------------------


def test_writers_at_the_same_time_lose_nothing(store: Store, place: Place) -> None:
    command = [sys.executable, "-c", WRITER, str(store.rootpath)]
    names = [f"writer{n}" for n in range(4)]
    processes = [
        subprocess.Popen([*command, name, "8"], stdout=subprocess.DEVNULL) for name in names
    ]
    assert [process.wait(timeout=60) for process in processes] == [0] * 4
    expected = {f"{name}-{n}" for name in names for n in range(8)}
    assert set(store.facts(NODEID).entries) == expected
    assert sorted(path.name for path in place.home.iterdir()) == [".lock", "test_x.json"]


def test_readers_never_see_a_half_written_file(store: Store, place: Place) -> None:
    put_file(place.path)
    with writer(store, "w", 60) as process:
        reads = 0
        while process.poll() is None:
            assert "old" in store.facts(NODEID).entries
            reads += 1
    assert reads > 10
    assert process.returncode == 0


def test_a_lock_held_for_too_long_is_told(tmp_path: Path, store: Store, place: Place) -> None:
    data = put_file(place.path)
    lock = place.home / ".lock" / "lock"
    lock.parent.mkdir()
    with FileLock(lock):
        message = refusal(Store(tmp_path, lock_timeout_s=0.1), place)
    assert message == (
        f"{place.path}: another process has held {lock} for 0.1 s; "
        "wait for it, or end it, and run again"
    )
    assert place.path.read_bytes() == data
    store.update(place, NO_FACTS, add_entry)


# --- symbolic links ---------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


def test_a_linked_file_is_not_written(store: Store, place: Place, outside: Path) -> None:
    data = put_file(outside / "victim.json")
    place.home.mkdir()
    place.path.symlink_to(outside / "victim.json")
    message = refusal(store, place)
    assert message.startswith(f"{place.path}: a symbolic link, through which no baseline")
    assert (outside / "victim.json").read_bytes() == data
    assert place.path.is_symlink()
    # A build that links its sources into a sandbox may read.
    assert "old" in store.facts(NODEID).entries


def test_a_linked_folder_is_not_written(store: Store, place: Place, outside: Path) -> None:
    place.home.symlink_to(outside, target_is_directory=True)
    assert refusal(store, place).startswith(f"{place.home}: a symbolic link")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("link", ("pkg", "pkg/tests", ".lock"))
def test_a_link_inside_the_baseline_folder_is_not_followed(
    tmp_path: Path, outside: Path, link: str
) -> None:
    store = Store(tmp_path, tmp_path / "baselines")
    path = tmp_path / "baselines" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(outside, target_is_directory=True)
    message = refusal(store, store.facts_place("pkg/tests/test_x.py::t"))
    assert message.startswith(f"{path}: a symbolic link")
    assert list(outside.iterdir()) == []


def test_a_linked_lock_is_not_followed(store: Store, place: Place, outside: Path) -> None:
    victim = outside / "victim"
    victim.write_text("kept")
    (place.home / ".lock").mkdir(parents=True)
    (place.home / ".lock" / "lock").symlink_to(victim)
    assert "a symbolic link" in refusal(store, place)
    assert victim.read_text() == "kept"


def test_a_baseline_folder_may_itself_be_a_link(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "baselines").symlink_to(outside, target_is_directory=True)
    store = Store(tmp_path, tmp_path / "baselines")
    store.update(store.facts_place(NODEID), NO_FACTS, add_entry)
    assert (outside / "tests" / "test_x.json").is_file()


@pytest.mark.parametrize("name", ("test_x.json", "."))
def test_a_link_to_nothing_is_not_taken_for_no_file(store: Store, place: Place, name: str) -> None:
    link = place.home / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(store.rootpath / "gone")
    with pytest.raises(BaselineError, match="a symbolic link to nothing"):
        store.facts(NODEID)


# --- what can't be written --------------------------------------------------------------------


def test_a_file_in_place_of_the_folder_is_refused(store: Store, place: Place) -> None:
    place.home.write_text("mine")
    message = refusal(store, place)
    assert message.startswith(f"{place.home}: a file, where the folder of baselines ")
    assert place.home.read_text() == "mine"
    with pytest.raises(BaselineError, match="a file, where the folder of baselines belongs"):
        store.facts(NODEID)


def test_a_file_in_place_of_the_lock_folder_is_refused(store: Store, place: Place) -> None:
    data = put_file(place.path)
    (place.home / ".lock").write_text("mine")
    assert refusal(store, place) == (
        f"{place.path}: can't be written: File exists; nothing was changed in it; see that its "
        "folder exists, is writable and has free space, or choose another with "
        "--compileguard-baseline-dir"
    )
    assert place.path.read_bytes() == data


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes are of POSIX")
def test_a_read_only_folder_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:  # one that another user can reach
        root = Path(folder)
        root.chmod(0o755)
        (root / "tests").mkdir(mode=0o755)
        place = Store(root).facts_place(NODEID)
        data = put_file(place.path)
        place.path.chmod(0o644)
        place.home.chmod(0o555)
        # Root may write everywhere, so it becomes nobody for this.
        drop = "import os, filelock\nos.geteuid() or os.setuid(65534)\nprint("
        script = WRITER.replace("print(", drop, 1)
        command = [sys.executable, "-c", script, str(root), "name", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        place.home.chmod(0o755)
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert f"BaselineError: {place.path}: can't be written: Permission denied; nothing" in last
        assert place.path.read_bytes() == data
        assert [path.name for path in place.home.iterdir()] == ["test_x.json"]


def test_a_read_only_folder_is_enough_where_nothing_changes(store: Store, place: Place) -> None:
    put_file(place.path)
    place.home.chmod(0o500)
    try:
        assert store.update(place, NO_FACTS, lambda file: file)
    finally:
        place.home.chmod(0o700)
    assert [path.name for path in place.home.iterdir()] == ["test_x.json"]


@pytest.mark.skipif(sys.platform == "win32", reason="limits of processes are of POSIX")
def test_a_full_disk_leaves_the_old_file(store: Store, place: Place) -> None:
    data = put_file(place.path)
    # No file may grow beyond 3000 bytes: writing stops in the middle, as on a full disk.
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
    command = [sys.executable, "-c", limit + WRITER, str(store.rootpath), "full", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert f"BaselineError: {place.path}: can't be written: File too large; nothing was" in last
    assert place.path.read_bytes() == data
    assert sorted(path.name for path in (place.home / ".lock").iterdir()) == [".gitignore", "lock"]


def test_a_name_that_the_system_refuses_is_told(store: Store) -> None:
    place = store.facts_place(f"tests/{'x' * 300}.py::t")
    assert "can't be read: File name too long" in refusal(store, place)


# --- small things -----------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="modes are of POSIX")
def test_modes_are_those_of_the_user(store: Store, place: Place) -> None:
    before = os.umask(0o027)
    try:
        store.update(place, NO_FACTS, add_entry)
    finally:
        os.umask(before)
    assert place.path.stat().st_mode & 0o777 == 0o640
    place.path.chmod(0o664)
    store.update(place, NO_FACTS, lambda file: msgspec.structs.replace(file, entries={}))
    assert place.path.stat().st_mode & 0o777 == 0o664


def test_a_users_own_gitignore_stays(tmp_path: Path) -> None:
    store = Store(tmp_path, tmp_path)
    (tmp_path / ".gitignore").write_text("mine\n")
    store.update(store.facts_place(NODEID), NO_FACTS, add_entry)
    assert (tmp_path / ".gitignore").read_text() == "mine\n"
    assert (tmp_path / ".lock" / ".gitignore").read_text() == "*\n"
