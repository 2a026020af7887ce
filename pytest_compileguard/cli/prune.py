"""``compileguard prune``: drops entries whose test module is gone, or whose torch is too old.

What single tests a module has is known only to pytest: an update run of the whole module drops
those that are gone.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pytest_compileguard.baseline.entries import NO_FACTS, NO_TIMINGS, FactsFile, printable
from pytest_compileguard.baseline.look_up import version_of
from pytest_compileguard.baseline.orphans import has_module
from pytest_compileguard.baseline.places import FOLDER
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.cli.output import DIFFERENT, FINE, Output
from pytest_compileguard.cli.tree import StoredFile, module_of, place_of, read_tree
from pytest_compileguard.errors import BaselineError
from pytest_compileguard.findings.wording import counted

HELP = "drop entries whose test module is gone, or that an old torch recorded"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tree", nargs="?", default=".", help="a folder (default: .)")
    parser.add_argument(
        "--tests",
        metavar="DIR",
        help="the folder that the paths of the test modules start from, where the baselines "
        "don't stand beside them",
    )
    parser.add_argument(
        "--older-than", metavar="TORCH", help="drop what a torch before this one recorded: 2.11"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="change nothing; exit code 1 if there is anything"
    )


def run(arguments: argparse.Namespace) -> Output:
    oldest = _version(arguments.older_than)
    root = Path(arguments.tree)
    tree = read_tree(arguments.tree)
    tree.refuse_problems()
    tree.refuse_empty(unless_emptied=True)
    tests = _tests(root, arguments.tests, tree.files)
    modules = {module_of(p, key, file) for p, file in tree.files.items() for key in file.entries}
    known = any(has_module(tests, module) for module in modules)
    if arguments.tests is not None and modules and not known:
        raise BaselineError(
            f"--tests: {printable(arguments.tests)!r}: none of the {len(modules)} test modules of "
            f"these baselines is there, as {printable(min(modules))}; name the folder "
            "that these paths start from"
        )
    dropped: list[str] = []
    for path, file in tree.files.items():
        left, lines = _left(path, file, tests, oldest)
        dropped += lines
        if lines and not arguments.dry_run:
            _write(root, path, file, left)
    word = "would be dropped" if arguments.dry_run else "dropped"
    return Output(
        code=DIFFERENT if dropped and arguments.dry_run else FINE,
        lines=(*dropped, f"{counted(len(dropped), 'entry', 'entries')} {word}"),
        data={"schema": 1, "dropped": dropped, "dry_run": arguments.dry_run},
    )


def _version(text: str | None) -> tuple[int, int]:
    """Read the version to keep, as entries are told apart: without one, all are kept."""
    if text is None:
        return (0, 0)
    if not re.fullmatch(r"[0-9]{1,9}\.[0-9]{1,9}", text):
        raise BaselineError(
            f"--older-than: {printable(text)!r}: write a minor version of torch, as 2.11"
        )
    return version_of(text)


def _tests(root: Path, given: str | None, files: Mapping[str, StoredFile]) -> Path:
    if given is not None:
        if not given or not Path(given).is_dir():
            raise BaselineError(f"--tests: {printable(given)!r}: no such folder")
        return Path(given)
    beside = all(FOLDER in Path(path).parts for path in files)
    if files and not (root.is_dir() and beside):
        raise BaselineError(
            f"{printable(str(root))}: these baselines don't stand beside their tests; "
            "say with --tests=DIR where those are"
        )
    return root


def _left(
    path: str, file: StoredFile, tests: Path, oldest: tuple[int, int]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Give the entries that stay, and a line for each that goes."""
    left: dict[str, dict[str, Any]] = {}
    lines = []
    for key, columns in file.entries.items():
        module = module_of(path, key, file)
        gone = not has_module(tests, module)
        for column, entry in columns.items():
            if gone or version_of(column) < oldest:
                why = f"{module} is gone" if gone else "recorded with an older torch"
                lines.append(f"{printable(path)}: {printable(key)}, {column}: {why}")
            else:
                left.setdefault(key, {})[column] = entry
    return left, lines


def _write(root: Path, path: str, file: StoredFile, left: dict[str, dict[str, Any]]) -> None:
    """Drop what was found to be gone; what another process adds meanwhile stays."""
    place = place_of(root, path)
    if not left:
        Store(root).remove(place, file)
        return
    gone = {(k, c) for k, row in file.entries.items() for c in row if c not in left.get(k, {})}

    def change(current: Any) -> Any:
        entries = {
            key: row
            for key, columns in current.entries.items()
            if (row := {c: e for c, e in columns.items() if (key, c) not in gone})
        }
        return msgspec.structs.replace(current, entries=entries)

    empty: Any = NO_FACTS if isinstance(file, FactsFile) else NO_TIMINGS
    Store(root).update(place, empty, change)
