"""Reads the files of baselines: from disk, or as they stood at another revision."""

from __future__ import annotations

import os
import stat
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

from pytest_compileguard.baseline.entries import F, printable
from pytest_compileguard.baseline.entry_text import MAX_BYTES, DamagedError, decode, is_conflict
from pytest_compileguard.baseline.git import GitError, Revision
from pytest_compileguard.errors import BaselineError

_TICK_NS = 2_000_000_000
"""No clock of a file system is coarser."""

_RESTORE = (
    "restore it from version control, or delete it and record again "
    "with --compileguard-update-baseline"
)
_MERGE = "merge its two sides entry by entry with `compileguard merge`"
_UNBLOCK = "make it readable, or delete it and record again with --compileguard-update-baseline"

_NO_FOLDER = (
    "a file, where the folder of baselines belongs; move it away, or name another folder by "
    "--compileguard-baseline-dir (ini key compileguard_baseline_dir)"
)


def read(path: Path, file_type: type[F]) -> F | None:
    """Read one file; ``None`` if it does not exist.

    Raises:
        BaselineError: It can't be read or is damaged.
    """
    try:
        return decode(bytes_of(path), file_type)
    except FileNotFoundError:
        if dangling := _dangling_link(path):
            where = printable(str(dangling))
            raise BaselineError(f"{where}: a symbolic link to nothing; {_RESTORE}") from None
        return None
    except DamagedError as error:
        remedy = _MERGE if is_conflict(error) else _RESTORE
        raise BaselineError(f"{printable(str(path))}: {error}; {remedy}") from error
    except NotADirectoryError as error:
        where = printable(str(next((p for p in path.parents if p.is_file()), path.parent)))
        raise BaselineError(f"{where}: {_NO_FOLDER}") from error
    except OSError as error:
        reason = f"can't be read: {error.strerror or error}"
        raise BaselineError(f"{printable(str(path))}: {reason}; {_UNBLOCK}") from error


def read_once(path: Path, file_type: type[F]) -> F | None:
    """Do as ``read``, but don't read a file again that is the one it was.

    A file is replaced whole, so another one has another identity, size or time; of one that was
    written just now the clock of the file system may not tell.
    """
    try:
        seen = path.stat()
    except OSError:
        return read(path, file_type)
    if time.time_ns() - max(seen.st_mtime_ns, seen.st_ctime_ns) < _TICK_NS:
        return read(path, file_type)
    identity = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    file: F | None = _read_once(path, file_type, identity)
    return file


@lru_cache(maxsize=64)
def _read_once(path: Path, file_type: type[Any], identity: tuple[int, ...]) -> Any:
    del identity  # a part of the key
    return read(path, file_type)


def read_at(revision: Revision, path: Path, file_type: type[F]) -> F | None:
    """Read one file of another revision; ``None`` if it is not there.

    Raises:
        BaselineError: It is damaged there, or can't be looked up.
    """
    try:
        texts = (revision.read(inside) for inside in revision.paths_of(path))
        data = next((text for text in texts if text is not None), None)
        return None if data is None else decode(data, file_type)
    except (DamagedError, GitError) as error:
        where = printable(f"{path} at {revision.label}")
        raise BaselineError(f"{where}: {error}; mend it there, or name another") from error


def bytes_of(path: Path) -> bytes:
    """Read a regular file, up to just beyond the greatest size allowed.

    Raises:
        DamagedError: It is no regular file.
    """
    # Opening a named pipe would else wait for ever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DamagedError("not a regular file")
        return _all_of(descriptor)
    finally:
        os.close(descriptor)


def _all_of(descriptor: int) -> bytes:
    """Read to the end, or just beyond the greatest size allowed."""
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return file.read(MAX_BYTES + 1)


def _dangling_link(path: Path) -> Path | None:
    links = (p for p in (path, *path.parents) if p.is_symlink() and not p.exists())
    return next(links, None)
