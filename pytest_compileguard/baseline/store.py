"""The files of baselines: locking them, and replacing them whole.

Each folder of baselines has one hidden folder ``.lock``. It holds the lock file and, for an
instant, the new text of a file; its own ``.gitignore`` hides it from version control. The lock
file lies there, and not in a folder for temporary files, so that all processes and hosts that
share the baselines share the lock too; and it stays, since deleting a lock file that another
process is about to take would let two in. Readers need no lock: a file is replaced whole.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_compileguard.baseline.entries import (
    NO_FACTS,
    NO_TIMINGS,
    F,
    FactsFile,
    TimingsFile,
    printable,
)
from pytest_compileguard.baseline.entry_text import DamagedError, encode
from pytest_compileguard.baseline.git import Revision
from pytest_compileguard.baseline.places import (
    LOCK_FOLDER,
    TIMINGS,
    Place,
    module_path,
    place_in,
    without_module,
)
from pytest_compileguard.baseline.reading import bytes_of, read, read_at, read_once
from pytest_compileguard.errors import BaselineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAKE_ROOM = (
    "nothing was changed in it; see that its folder exists, is writable and has free space, "
    "or choose another with --compileguard-baseline-dir"
)


class Store(msgspec.Struct, frozen=True):
    """All baselines of one project."""

    rootpath: Path
    """Node ids are relative to it."""
    baseline_dir: Path | None = None
    """``None``: each folder of tests has its baselines in ``__compileguard__`` beside it."""
    lock_timeout_s: float = 60.0
    revision: Revision | None = None
    """Read from this commit instead of the working tree."""

    def facts_place(self, nodeid: str) -> Place:
        """The facts file of the module that a test stands in."""
        return self._place(nodeid, f"{module_path(nodeid).name.removesuffix('.py')}.json")

    def timings_place(self, nodeid: str, device_slug: str) -> Place:
        """The timings of one device model, for the folder that a test stands in."""
        return self._place(nodeid, TIMINGS, f"{device_slug}.json")

    def facts(self, nodeid: str) -> FactsFile:
        """Read the facts of a test's module; without entries if there is no file.

        Raises:
            BaselineError: The file can't be read or is damaged.
        """
        return self._read(self.facts_place(nodeid).path, FactsFile) or NO_FACTS

    def timings(self, nodeid: str, device_slug: str) -> TimingsFile:
        """Read the timings of a test's folder; without entries if there is no file.

        Raises:
            BaselineError: The file can't be read or is damaged.
        """
        path = self.timings_place(nodeid, device_slug).path
        return self._read(path, TimingsFile) or NO_TIMINGS

    def verify(self, nodeid: str) -> None:
        """Read all that a test may be held against: its module's facts, its folder's timings.

        Raises:
            BaselineError: A file can't be read or is damaged.
        """
        self.facts(nodeid)
        folder = self.timings_place(nodeid, "any").path.parent
        for path in self._files(folder):
            self._read(path, TimingsFile)

    def update(self, place: Place, empty: F, change: Callable[[F], F]) -> tuple[F, F]:
        """Change one file, whatever other processes do to it; return it before and after.

        ``change`` may be called twice: at first to see whether anything changes at all, so
        that a folder with nothing new in it need not be writable and gets no lock.

        Raises:
            BaselineError: The file can't be read or written; it is as it was.
        """
        _refuse_links(place)
        before = read(place.path, type(empty)) or empty
        after = change(before)
        if after == before:
            return before, before
        with self._locked(place):
            before = read(place.path, type(empty)) or empty
            after = change(before)
            if after != before:
                _replace(place, _encoded(after, place))
        return before, after

    def remove(self, place: Place, file: FactsFile | TimingsFile) -> None:
        """Delete a file, if it still holds what is given.

        Raises:
            BaselineError: It can't be read or deleted.
        """
        _refuse_links(place)
        with self._locked(place):
            kind: type[Any] = type(file)
            if read(place.path, kind) == file:
                try:
                    place.path.unlink()
                except OSError as error:
                    raise _unwritable(place, error) from error

    def mend(self, place: Place, damaged: bytes, file: FactsFile | TimingsFile) -> None:
        """Put a whole file in the place of one that can't be read, if that still is as given.

        Raises:
            BaselineError: It changed meanwhile, or can't be written; it is as it was.
        """
        _refuse_links(place)
        with self._locked(place):
            if bytes_of(place.path) != damaged:
                where = printable(str(place.path))
                raise BaselineError(f"{where}: changed while it was being mended; run again")
            _replace(place, _encoded(file, place))

    def _read(self, path: Path, file_type: type[F]) -> F | None:
        if self.revision is None:
            return read_once(path, file_type)
        return read_at(self.revision, path, file_type)

    def _files(self, folder: Path) -> list[Path]:
        """List the files in a folder, by where they are, or would be, in the working tree."""
        if self.revision is None:
            return sorted(folder.glob("*.json"))
        names = map(PurePosixPath, self.revision.files(folder))
        tops = self.revision.paths_of(folder)
        return [folder / n.name for n in names if n.suffix == ".json" and str(n.parent) in tops]

    def neighbours(self, nodeid: str) -> list[Path]:
        """List the facts files of the folder that a test's module has its own in.

        Raises:
            GitError: The revision can't be asked.
        """
        return self._files(self.facts_place(nodeid).path.parent)

    def _place(self, nodeid: str, *names: str) -> Place:
        if "\0" in nodeid:
            raise without_module(nodeid)
        module = nodeid.partition("::")[0]
        return place_in(self.rootpath, self.baseline_dir, module, names)

    @contextmanager
    def _locked(self, place: Place) -> Iterator[None]:
        from filelock import FileLock, Timeout  # noqa: PLC0415  # 50 ms that only writers spend

        lock = place.home / LOCK_FOLDER / "lock"
        with ExitStack() as stack:
            try:
                # Beside the tests, only a folder that has tests gets one of ours.
                place.home.mkdir(parents=self.baseline_dir is not None, exist_ok=True)
                place.path.parent.mkdir(parents=True, exist_ok=True)
                _make_lock_folder(lock.parent)
                stack.enter_context(FileLock(str(lock), timeout=self.lock_timeout_s))
            except Timeout:
                held = f"another process has held {printable(str(lock))}"
                wait = (
                    f"{held} for {self.lock_timeout_s:g} s; wait for it, or end it, and run again"
                )
                raise BaselineError(f"{printable(str(place.path))}: {wait}") from None
            except OSError as error:
                raise _unwritable(place, error) from error
            yield


def _refuse_links(place: Place) -> None:
    """Refuse to write through a symbolic link: the target may be anything, of anybody."""
    below = place.path.relative_to(place.anchor)
    lock_folder = place.home / LOCK_FOLDER
    steps = [place.anchor / part for part in (below, *below.parents)][:-1]
    for path in (*reversed(steps), lock_folder, lock_folder / "lock"):
        if path.is_symlink():
            raise BaselineError(
                f"{printable(str(path))}: a symbolic link, through which no baseline is written; "
                "put a real file or folder in its place, or use --compileguard-baseline-dir"
            )


def _make_lock_folder(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with suppress(FileExistsError), (folder / ".gitignore").open("x", encoding="ascii") as ignore:
        ignore.write("*\n")


def _encoded(file: FactsFile | TimingsFile, place: Place) -> bytes:
    try:
        return encode(file)
    except DamagedError as error:
        raise BaselineError(
            f"{printable(str(place.path))}: {error}; this result can't be stored, "
            "nothing was changed in the file"
        ) from error


def _replace(place: Place, data: bytes) -> None:
    """Put a whole new file in the place of the old one; needs the lock."""
    folder = place.home / LOCK_FOLDER
    new = folder / f"{secrets.token_hex(8)}.tmp"
    try:
        for left_over in folder.glob("*.tmp"):  # of a writer that was killed: the lock is ours
            left_over.unlink()
        _write_through(new, data)
        with suppress(FileNotFoundError):
            new.chmod(stat.S_IMODE(place.path.stat().st_mode))
        new.replace(place.path)
    except OSError as error:
        raise _unwritable(place, error) from error
    finally:
        with suppress(OSError):
            new.unlink()
    _sync_folder(place.path.parent)


def _write_through(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a loss of power, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unwritable(place: Place, error: OSError) -> BaselineError:
    reason = f"can't be written: {error.strerror or error}"
    return BaselineError(f"{printable(str(place.path))}: {reason}; {_MAKE_ROOM}")
