"""``compileguard show``: what is stored."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

import msgspec

from pytest_compileguard.baseline.entries import FactsEntry, TimingEntry
from pytest_compileguard.cli.output import FINE, Output, Table
from pytest_compileguard.cli.tree import Item, read_tree
from pytest_compileguard.findings.wording import counted, factor_text
from pytest_compileguard.metrics import FACTS

HELP = "show what is stored"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "tree", nargs="?", default=".", help="a folder, a file or a git revision (default: .)"
    )


def run(arguments: argparse.Namespace) -> Output:
    tree = read_tree(arguments.tree)
    tree.refuse_problems()
    tree.refuse_empty(unless_emptied=True)
    items = tree.items().values()
    total = f"{counted(len(items), 'entry', 'entries')} in {counted(len(tree.files), 'file')}"
    return Output(
        code=FINE,
        tables=(_facts(items), _timings(items)),
        lines=("nothing stored" if tree.emptied else total,),
        data={"schema": 1, "entries": [item_data(item) for item in items]},
    )


def item_data(item: Item) -> dict[str, Any]:
    """Give an entry for programs."""
    kind = "facts" if isinstance(item.entry, FactsEntry) else "timings"
    entry = msgspec.to_builtins(item.entry)
    return {"check": item.check, "column": item.column, "kind": kind, "entry": entry}


def _facts(items: Iterable[Item]) -> Table:
    return Table(
        title="facts",
        columns=("check", "for", *(metric.label for metric in FACTS), "recorded with"),
        rows=tuple(
            (item.check, item.column, *map(str, entry.numbers.values()), _recorded(entry))
            for item in items
            if isinstance(entry := item.entry, FactsEntry)
        ),
    )


def _timings(items: Iterable[Item]) -> Table:
    return Table(
        title="timings",
        columns=(
            "check",
            "for",
            "speedup",
            "interval",
            "eager ms",
            "compiled ms",
            "code",
            "recorded with",
        ),
        rows=tuple(
            (
                item.check,
                item.column,
                factor_text(entry.speedup),
                f"[{entry.speedup_low:.2f}, {entry.speedup_high:.2f}]",
                f"{entry.eager_ms:g}",
                f"{entry.compiled_ms:g}",
                _code(entry),
                _recorded(entry),
            )
            for item in items
            if isinstance(entry := item.entry, TimingEntry)
        ),
    )


def _code(entry: TimingEntry) -> str:
    """Tell the digest of the code of one graph, or that of more how many are known."""
    digests = tuple((entry.code or {}).values())
    return digests[0] if len(digests) == 1 else counted(len(digests), "digest") if digests else "-"


def _recorded(entry: FactsEntry | TimingEntry) -> str:
    seen = entry.recorded
    commit = f", commit {seen.commit}" if seen.commit else ""
    return f"torch {seen.torch}, Python {seen.python}{commit}"
