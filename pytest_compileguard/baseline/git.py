"""Asks git: which commit is checked out, and what stood in a file at another revision."""

from __future__ import annotations

import os
import subprocess
from functools import lru_cache
from pathlib import Path

from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.observation import Record

_TIMEOUT_S = 60
# Set in hooks of git, where they name the repository of the hook, seen from another folder.
_LOCATIONS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
_LENGTH = 12
_BLOB = "blob"


class GitError(CompileGuardError):
    """Git is missing, or does not know what it was asked for."""


class Revision(Record):
    """One commit of the repository that a folder lies in."""

    name: str
    """As the user gave it: ``origin/main``."""
    commit: str
    root: Path
    """The top folder of the working tree."""

    @property
    def label(self) -> str:
        """Name it in a sentence: ``origin/main (1a2b3c4d5e6f)``."""
        return f"{self.name} ({self.commit[:_LENGTH]})"

    def path_of(self, path: Path) -> str:
        """Give the path of a file within the repository.

        Raises:
            GitError: It lies outside.
        """
        return self.paths_of(path)[0]

    def paths_of(self, path: Path) -> tuple[str, ...]:
        """Give the paths that a file may have within the repository: as named, and behind links.

        Raises:
            GitError: It lies outside.
        """
        absolute = Path(os.path.normpath(Path.cwd() / path))
        # The file itself may not exist, and a link below the root is what the commit knows.
        found = {
            candidate.relative_to(root).as_posix(): None
            for root in (self.root, self.root.resolve())
            for candidate in (absolute, (Path.cwd() / path).resolve())
            if candidate.is_relative_to(root)
        }
        if not found:
            raise GitError(
                f"{path}: lies outside the repository {self.root}, so no revision has it"
            )
        return tuple(found)

    def files(self, folder: Path) -> tuple[str, ...]:
        """List the files below a folder, as paths within the repository."""
        paths = self.paths_of(folder)
        where = [] if "." in paths else ["--", *(f":(literal){inside}" for inside in paths)]
        listed = _git(self.root, "ls-tree", "-r", "-z", "--name-only", self.commit, *where)
        return tuple(name for name in listed.decode("utf-8", "surrogateescape").split("\0") if name)

    def read(self, inside: str) -> bytes | None:
        """Read a file; ``None`` if the commit has none of this path."""
        return _blob(self.root, self.commit, inside)


def revision(name: str, folder: Path) -> Revision:
    """Find a revision by any name that git knows.

    Raises:
        GitError: There is no git, no repository, or no such revision.
    """
    if ":" in name:
        raise GitError(f"{name!r}: give a revision alone, such as HEAD, without a path after it")
    root = _git(folder, "rev-parse", "--show-toplevel").decode("utf-8", "surrogateescape")
    try:
        found = _git(
            folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )
    except GitError:
        raise GitError(
            f"{name!r}: git knows no such revision here; fetch it first: a shallow clone of CI "
            "has only the commit that it builds (git fetch origin main)"
        ) from None
    return Revision(name=name, commit=found.decode().strip(), root=Path(root.rstrip("\n")))


def checked_out(folder: Path) -> str | None:
    """Name the commit that is checked out, ``-dirty`` if more than baselines was changed since."""
    try:
        commit = _git(folder, "rev-parse", f"--short={_LENGTH}", "HEAD").decode().strip()
        others = (".", ":(exclude,glob)**/__compileguard__/**")
        changed = _git(folder, "status", "--porcelain", "-uno", "--", *others)
    except GitError:
        return None
    return f"{commit}-dirty" if changed else commit


class Merge(Record):
    """A file as both sides of a merge had it, and as it was before; ``None``: it was not there."""

    base: bytes | None
    ours: bytes
    theirs: bytes


def merge_of(path: Path, data: bytes) -> Merge | None:
    """Find the sides of the merge that made this text of a file; ``None``: no merge did.

    They are exact, which the file between its conflict markers is not: git merged the rest of
    its lines without knowing what they mean. Of a text that was changed since, or that no merge
    made, the sides of a merge would lose what was added: they are not given.
    """
    name, folder = f"./{path.name}", path.parent
    sources = (
        ("", ":1:", ":2:", ":3:"),  # unmerged in the index
        (":0:", _fork(folder, "HEAD", "MERGE_HEAD"), "HEAD:", "MERGE_HEAD:"),  # taken as merged
        ("HEAD:", _fork(folder, "HEAD^1", "HEAD^2"), "HEAD^1:", "HEAD^2:"),  # committed
    )
    for made, before, first, second in sources:
        if made and not _is_same_text(_shown(folder, f"{made}{name}"), data):
            continue
        ours, theirs = _shown(folder, f"{first}{name}"), _shown(folder, f"{second}{name}")
        if ours is not None and theirs is not None:
            return Merge(base=_shown(folder, f"{before}{name}"), ours=ours, theirs=theirs)
    return None


def _is_same_text(stored: bytes | None, data: bytes) -> bool:
    """Whether git has this text, with whatever ends of lines it checks out."""
    return stored is not None and stored.replace(b"\r\n", b"\n") == data.replace(b"\r\n", b"\n")


def _fork(folder: Path, first: str, second: str) -> str:
    try:
        return _git(folder, "merge-base", first, second).decode().strip() + ":"
    except GitError:
        return ":1:"  # of a file that is not unmerged, there is none


def _shown(folder: Path, name: str) -> bytes | None:
    try:
        return _git(folder, "cat-file", _BLOB, name)
    except GitError:
        return None


@lru_cache(maxsize=4096)
def _blob(root: Path, commit: str, inside: str) -> bytes | None:
    listed = _git(root, "ls-tree", "-z", commit, "--", f":(literal){inside}")
    if not listed:
        return None
    kind, _, _ = listed.partition(b"\t")
    if kind.split()[1] != _BLOB.encode():
        return None
    return _git(root, "cat-file", _BLOB, kind.split()[2].decode())


def _git(folder: Path, *arguments: str) -> bytes:
    environment = {name: v for name, v in os.environ.items() if name not in _LOCATIONS}
    try:
        done = subprocess.run(  # noqa: S603  # arguments are ours; names follow --end-of-options
            ["git", "--no-optional-locks", "-C", str(folder), *arguments],  # noqa: S607
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except FileNotFoundError:
        raise GitError("git is not installed, or not on PATH") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(f"git can't be run: {error}") from error
    if done.returncode != 0:
        told = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitError(told[0] if told else f"git {arguments[0]}: exit code {done.returncode}")
    return done.stdout
