"""``compileguard check``: whether all files can be read."""

from __future__ import annotations

import argparse

from pytest_compileguard.baseline.entries import SCHEMA, printable
from pytest_compileguard.cli.output import ERROR, FINE, Output
from pytest_compileguard.cli.tree import read_tree
from pytest_compileguard.findings.wording import counted

HELP = "check that every file can be read; changes nothing"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trees", nargs="*", default=["."], help="folders, files or git revisions (default: .)"
    )


def run(arguments: argparse.Namespace) -> Output:
    problems: list[str] = []
    notes: list[str] = []
    files = entries = 0
    for name in arguments.trees:
        tree = read_tree(name)
        if not tree.files and not tree.problems:
            problems.append(f"{printable(name)}: holds no baselines, so there is nothing to check")
        problems += tree.problems
        notes += [
            f"{path}: schema {schema}; the next update writes schema {SCHEMA}"
            for path, schema in tree.schemas.items()
            if schema < SCHEMA
        ]
        files += len(tree.files)
        entries += len(tree.items())
    total = f"{counted(files, 'file')} with {counted(entries, 'entry', 'entries')} can be read"
    bad = counted(len(problems), "problem") if problems else "none is damaged"
    return Output(
        code=ERROR if problems else FINE,
        lines=(*problems, *notes, f"{total}, {bad}"),
        data={"schema": 1, "problems": problems, "notes": notes, "files": files},
    )
