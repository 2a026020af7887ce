"""``compileguard diff A B``: what changed between two trees of baselines."""

from __future__ import annotations

import argparse
from typing import Any, Literal

from pytest_compileguard.baseline.change import change_of, difference, is_comparable, is_equal
from pytest_compileguard.cli.output import DIFFERENT, FINE, Output, Table
from pytest_compileguard.cli.show import item_data
from pytest_compileguard.cli.tree import Item, Tree, read_tree
from pytest_compileguard.findings.wording import counted
from pytest_compileguard.metrics import NOISE_THRESHOLD
from pytest_compileguard.observation import Record

HELP = "show what changed between two trees: folders, files or git revisions"

_Kind = Literal["added", "removed", "worse", "better", "changed"]


class _Difference(Record):
    kind: _Kind
    check: str
    column: str
    told: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="a folder, a file, or REV, or REV:FOLDER")
    parser.add_argument("after", metavar="B", help="the same")
    parser.add_argument(
        "--regressions",
        action="store_true",
        help="show only what became worse, and give exit code 1 for nothing else",
    )


def run(arguments: argparse.Namespace) -> Output:
    trees = read_tree(arguments.before), read_tree(arguments.after)
    empty = _empty(trees)
    found = _differences(trees[0].items(), trees[1].items())
    if arguments.regressions:
        found = [difference for difference in found if difference.kind == "worse"]
    nothing = "no regression" if arguments.regressions else "no difference"
    counts = ", ".join(f"{sum(d.kind == kind for d in found)} {kind}" for kind in _ORDER)
    rows = tuple((d.kind, d.check, d.column, d.told) for d in found)
    return Output(
        code=DIFFERENT if found else FINE,
        tables=(Table(title="differences", columns=("", "check", "for", "what"), rows=rows),),
        lines=(
            *(f"{tree.revision} holds no baselines yet: compared with nothing" for tree in empty),
            f"{counted(len(found), 'difference')}: {counts}" if found else nothing,
        ),
        data={
            "schema": 1,
            "differences": [_data(difference) for difference in found],
            "empty": [tree.name for tree in empty],
        },
    )


def _empty(trees: tuple[Tree, Tree]) -> list[Tree]:
    """Give the revision that holds nothing yet, as on the first day of a repository.

    Raises:
        BaselineError: A file can't be read, a folder holds nothing, or neither side does.
    """
    for tree in trees:
        tree.refuse_problems()
        if tree.revision is None:
            tree.refuse_empty()
    empty = [tree for tree in trees if not tree.files]
    if len(empty) == len(trees):
        empty[0].refuse_empty()
    return empty


_ORDER: tuple[_Kind, ...] = ("worse", "removed", "changed", "added", "better")


def _differences(
    before: dict[tuple[str, str], Item], after: dict[tuple[str, str], Item]
) -> list[_Difference]:
    pairs = ((before.get(name), after.get(name)) for name in sorted({*before, *after}))
    found = [one for old, new in pairs if (one := _difference(old, new)) is not None]
    return sorted(found, key=lambda one: _ORDER.index(one.kind))


def _difference(old: Item | None, new: Item | None) -> _Difference | None:
    item = new or old
    assert item is not None, "a name comes from one of them"  # noqa: S101
    if old is None or new is None:
        kind: _Kind = "removed" if new is None else "added"
        told = str(item_data(item)["kind"])
        return _Difference(kind=kind, check=item.check, column=item.column, told=told)
    if is_equal(old.entry, new.entry):
        return None
    kind = _kind(old, new)
    told = difference(old.entry, new.entry)
    return _Difference(kind=kind, check=item.check, column=item.column, told=told)


def _kind(old: Item, new: Item) -> _Kind:
    if not is_comparable(old.entry, new.entry):
        return "changed"
    change = change_of(old.entry, new.entry, NOISE_THRESHOLD)
    return "changed" if change == "same" else change


def _data(difference: _Difference) -> dict[str, Any]:
    return {name: getattr(difference, name) for name in difference.__struct_fields__}
