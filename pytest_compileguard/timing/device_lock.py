"""One process at a time on a device, so that what is timed runs alone.

Workers of pytest-xdist compile in parallel and time in turn. The lock is a file for each physical
device: a GPU goes by its UUID, as its index depends on ``CUDA_VISIBLE_DEVICES``, and the
processor is one device for the whole host. The files lie in a directory that only this user may
enter, so processes of other users are not kept away.
"""

from __future__ import annotations

import getpass
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import filelock

from pytest_compileguard.errors import CompileGuardError

LOCK_TIMEOUT_S = 600.0
"""Long enough for some hundred checks of other workers."""
_POLL_S = 0.02
_PRIVATE = 0o700


class DeviceLockError(CompileGuardError):
    """The device could not be had alone; the message says why."""


@contextmanager
def exclusive(*devices: str, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[float]:
    """Hold the devices, waiting for each if need be.

    Gives the moment, in seconds since the epoch, until which one was held before; 0: none was.

    Args:
        devices: Device types, with an index if there are several: ``cpu``, ``cuda:0``.
        timeout_s: Longest wait for each.

    Raises:
        DeviceLockError: One stayed taken, or no lock can be made here.
    """
    names = {_physical_name(device): device for device in devices}
    with ExitStack() as stack:
        # In one order everywhere: else two processes may each hold what the other one waits for.
        held = [stack.enter_context(_held(n, names[n], timeout_s)) for n in sorted(names)]
        yield max(held, default=0.0)


@contextmanager
def _held(name: str, device: str, timeout_s: float) -> Iterator[float]:
    path = _directory() / f"{name}.lock"
    lock = filelock.FileLock(path, mode=0o600)
    try:
        lock.acquire(timeout=timeout_s, poll_interval=_POLL_S)
    except filelock.Timeout:
        raise DeviceLockError(
            f"{device} was not free for {timeout_s:g} s: another process is timing on it and "
            f"holds {path}; run fewer workers, or time in a run of its own"
        ) from None
    except (OSError, NotImplementedError) as error:
        raise DeviceLockError(f"{path} can't be locked: {error}; {_ELSEWHERE}") from error
    released = path.with_suffix(".released")
    try:
        yield _modified_s(released)
    finally:
        with suppress(OSError):  # only a matter of what is told
            released.touch()
        lock.release()


_ELSEWHERE = "set TMPDIR to a local directory of your own"


def _modified_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _directory() -> Path:
    path = Path(tempfile.gettempdir()) / f"pytest-compileguard-{_user()}"
    try:
        with suppress(FileExistsError):
            path.mkdir(mode=_PRIVATE)
        status = path.lstat()
    except OSError as error:
        raise DeviceLockError(f"{path} can't be made: {error}; {_ELSEWHERE}") from error
    if fault := _fault(status):
        raise DeviceLockError(
            f"{path} {fault}, so locks in it can't be trusted; remove it, or {_ELSEWHERE}"
        )
    return path


def _fault(status: os.stat_result) -> str | None:
    """Say why a directory is not private to this user.

    Whoever can write to it could take the lock away, or lead its creation to another file.
    """
    if not stat.S_ISDIR(status.st_mode):
        return "is a link" if stat.S_ISLNK(status.st_mode) else "is no directory"
    if sys.platform != "win32":
        if status.st_uid != os.getuid():
            return f"belongs to user {status.st_uid}"
        if loose := stat.S_IMODE(status.st_mode) & ~_PRIVATE:
            return f"is open to others (mode {_PRIVATE | loose:o}, must be {_PRIVATE:o})"
    return None


def _user() -> str:
    if sys.platform == "win32":
        return re.sub(r"\W", "-", getpass.getuser())
    return str(os.getuid())


def _physical_name(device: str) -> str:
    kind = device.partition(":")[0]
    if kind != "cuda":
        return kind
    import torch  # only for GPUs

    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return "gpu-" + re.sub(r"[^0-9A-Za-z]+", "-", uuid).strip("-").lower()
