"""Writes the files of one check into a folder of its own, all of them or none."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from pytest_compileguard import dynamo
from pytest_compileguard.artifacts.tlparse import TlparseError, write_page
from pytest_compileguard.finding import Artifacts, SavedText
from pytest_compileguard.plan import Plan
from pytest_compileguard.reproduction.saving import safe_name
from pytest_compileguard.trace.texts import CompilerText, compiler_texts

_FOLDER = "compiled"
"""Within the folder of the check, beside what reproduces a failing call."""
_TRACE = "trace.log"
_TRIES = 5


def save_artifacts(traces: Sequence[dynamo.CallTrace], plan: Plan, root: Path) -> Artifacts:
    """Save what was heard of a check; what can't be saved is told and never raised.

    Args:
        traces: Of its calls.
        plan: Of the check.
        root: Folder of all artefacts.
    """
    folder = root / safe_name(plan.key) / _FOLDER
    try:
        with _replacing(folder) as new:
            saved = _saved(traces, new)
    except OSError as error:
        return Artifacts(folder="", problems=(f"can't write to {folder}: {error.strerror}",))
    except Exception as error:  # noqa: BLE001  # the check is judged; this only illustrates it
        return Artifacts(folder="", problems=(f"{type(error).__name__}: {error}",))
    return _placed(saved, folder)


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """Give a folder to fill, which takes the place of what an earlier run left.

    So no file of that run is taken for one of this, and none is ever seen half written.
    """
    new = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    new.mkdir(parents=True)
    try:
        yield new
        _move(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _move(new: Path, folder: Path) -> None:
    """Move a folder into its place; another process may run the same test and do so too."""
    for _ in range(_TRIES):
        old = new.with_name(f"{new.name}-old")
        with suppress(FileNotFoundError):
            folder.rename(old)
        try:
            new.rename(folder)
        except OSError:
            if not folder.exists():
                raise
        else:
            return
        finally:
            shutil.rmtree(old, ignore_errors=True)
    raise OSError(0, "other processes write there all the time")


def _saved(traces: Sequence[dynamo.CallTrace], folder: Path) -> Artifacts:
    """Write all files; those named in the result are relative to the folder."""
    trace = folder / _TRACE
    with trace.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        file.writelines(f"{line}\n" for line in dynamo.trace_lines(traces))
    if not trace.stat().st_size:
        trace.unlink()
        return Artifacts(folder="", problems=("torch traced nothing of this check",))
    events = (event for one in traces for event in one.events)
    texts = tuple(_written(text, folder) for text in compiler_texts(events))
    page: Path | None = None
    problems: tuple[str, ...] = ()
    try:
        page = write_page(trace, folder / "tlparse")
    except TlparseError as error:
        problems = (str(error),)
    return Artifacts(
        folder="",
        trace=_TRACE,
        texts=texts,
        page=page.relative_to(folder).as_posix() if page else "",
        problems=problems,
    )


def _written(text: CompilerText, folder: Path) -> SavedText:
    """Write a text under its compile id, with a number where one id has several."""
    stem = re.sub(r"[^0-9A-Za-z]+", "_", f"{text.kind} {text.compile_id} {text.part}").strip("_")
    names = (f"{stem}{f'-{n}' if n else ''}{text.suffix}" for n in (0, *range(2, 1_000_000)))
    name = next(name for name in names if not (folder / name).exists())
    with (folder / name).open("w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(text.text)
    return SavedText(
        kind=text.kind, compile_id=text.compile_id, call=text.call, file=name, part=text.part
    )


def _placed(saved: Artifacts, folder: Path) -> Artifacts:
    """Name all files where they stand now."""

    def placed(file: str) -> str:
        return str(folder / file) if file else ""

    return msgspec.structs.replace(
        saved,
        folder=str(folder),
        trace=placed(saved.trace),
        page=placed(saved.page),
        texts=tuple(msgspec.structs.replace(t, file=placed(t.file)) for t in saved.texts),
    )
