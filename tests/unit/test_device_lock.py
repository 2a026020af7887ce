from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from pytest_compileguard.timing.device_lock import DeviceLockError, exclusive

posix = pytest.mark.skipif(sys.platform == "win32", reason="rights of files are those of POSIX")

HOLD = """
import sys
from pytest_compileguard.timing.device_lock import exclusive
with exclusive("cpu"):
    print("held", flush=True)
    sys.stdin.readline()
"""

TAKE_TURNS = """
import time
from pytest_compileguard.timing.device_lock import exclusive
for _ in range(5):
    with exclusive("cpu"):
        start_s = time.monotonic()
        time.sleep(0.01)
        print(start_s, time.monotonic(), flush=True)
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def held_elsewhere() -> Iterator[None]:
    with start(HOLD) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield
        other.communicate("let go\n")


def folder() -> Path:
    return Path(tempfile.gettempdir()) / f"pytest-compileguard-{os.getuid()}"


def test_a_device_held_by_another_process_is_not_had() -> None:
    with (
        held_elsewhere(),
        pytest.raises(DeviceLockError, match=r"cpu was not free for 0\.1 s: another process"),
        exclusive("cpu", timeout_s=0.1),
    ):
        pass


def test_a_device_is_free_again_once_let_go() -> None:
    with held_elsewhere():
        pass
    with exclusive("cpu", timeout_s=1):
        pass
    with exclusive("cpu", timeout_s=1):
        pass


def test_a_device_is_free_again_after_an_exception() -> None:
    with pytest.raises(KeyError), exclusive("cpu", timeout_s=1):
        raise KeyError
    with exclusive("cpu", timeout_s=1):
        pass


def test_a_device_is_free_again_when_its_holder_is_killed() -> None:
    with start(HOLD) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        other.kill()
    with exclusive("cpu", timeout_s=5):
        pass


def test_processes_that_want_a_device_at_once_take_turns() -> None:
    others = [start(TAKE_TURNS) for _ in range(3)]
    lines = [line for other in others for line in other.communicate(timeout=60)[0].splitlines()]
    spans = sorted((float(start_s), float(end_s)) for start_s, end_s in map(str.split, lines))

    assert len(spans) == 15
    assert all(end_s <= next_s for (_, end_s), (next_s, _) in pairwise(spans))


def test_all_devices_that_a_call_uses_are_held() -> None:
    with held_elsewhere(), pytest.raises(DeviceLockError), exclusive("mps", "cpu", timeout_s=0.1):
        pass
    with exclusive("mps", timeout_s=1):
        pass


def test_processes_that_name_their_devices_in_another_order_do_not_wait_for_ever() -> None:
    orders = ('"cpu", "mps"', '"mps", "cpu"')
    others = [start(TAKE_TURNS.replace('"cpu"', order)) for order in orders]
    lines = [line for other in others for line in other.communicate(timeout=60)[0].splitlines()]

    assert len(lines) == 10


@posix
def test_the_folder_is_private() -> None:
    with exclusive("cpu"):
        assert folder().stat().st_mode & 0o777 == 0o700


@posix
@pytest.mark.parametrize("mode", (0o777, 0o750, 0o701))
def test_a_folder_that_is_open_to_others_is_refused(mode: int) -> None:
    folder().mkdir()
    folder().chmod(mode)

    with pytest.raises(DeviceLockError, match=rf"is open to others \(mode {mode:o}, must be 700\)"):
        exclusive("cpu").__enter__()


@posix
def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder().symlink_to(elsewhere)

    with pytest.raises(DeviceLockError, match=r"is a link, so .*; remove it, or set TMPDIR"):
        exclusive("cpu").__enter__()


@posix
def test_a_folder_that_is_a_file_is_refused() -> None:
    folder().touch()

    with pytest.raises(DeviceLockError, match="is no directory"):
        exclusive("cpu").__enter__()


@posix
@pytest.mark.skipif(
    sys.platform != "win32" and os.getuid() != 0, reason="only root can give folders away"
)
def test_a_folder_of_another_user_is_refused() -> None:
    folder().mkdir(mode=0o700)
    os.chown(folder(), 12345, -1)

    with pytest.raises(DeviceLockError, match="belongs to user 12345"):
        exclusive("cpu").__enter__()


def test_a_temporary_folder_that_does_not_exist_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))

    with pytest.raises(DeviceLockError, match=r"can't be made: .*set TMPDIR"):
        exclusive("cpu").__enter__()


def test_who_comes_next_is_told_until_when_the_device_was_held() -> None:
    with exclusive("cpu") as before_s:
        begin_s = time.time()
    with exclusive("cpu") as released_s:
        assert before_s == 0
        # Clocks of files are coarser.
        assert begin_s - 0.1 <= released_s <= time.time() + 0.1
