"""Runs ``tlparse``, where it is installed: its page of one trace."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

_MOST_S = 60
_MOST_IN_PROBLEM = 300


class TlparseError(Exception):
    """There is no page, and this says why."""


def program() -> str | None:
    """Find it in PATH, or beside this Python: the folder of an environment may not be in PATH."""
    return shutil.which("tlparse") or shutil.which("tlparse", path=sysconfig.get_path("scripts"))


def write_page(trace: Path, folder: Path, *, most_s: float = _MOST_S) -> Path | None:
    """Let it read a trace; ``None``: it is not installed.

    Args:
        trace: The file.
        folder: Where the page goes; must not exist.
        most_s: How long it may take.

    Raises:
        TlparseError: It failed, or took too long.
    """
    found = program()
    if found is None:
        return None
    command = [found, str(trace.absolute()), "-o", str(folder.absolute()), "--no-browser"]
    try:
        done = subprocess.run(  # noqa: S603  # no shell, and paths that are ours
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=most_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise TlparseError(f"tlparse took more than {most_s:g} s and was stopped") from None
    except OSError as error:
        raise TlparseError(f"{found} can't be run: {error.strerror}") from None
    page = folder / "index.html"
    if done.returncode == 0 and page.is_file():
        return page
    said = done.stderr.decode("utf-8", "replace").strip()[-_MOST_IN_PROBLEM:]
    raise TlparseError(f"tlparse ended with exit code {done.returncode} and no page: {said}")
