"""Facts under guard are those that torch's own log tells of a plain script.

The script runs in a process of its own, without the plugin: ``TORCH_LOGS`` names the lines
that break and the guards that fail, a counting backend the graphs and the calls without one.
``pytest -rP`` shows the table of both.
"""
# ruff: noqa: T201  # the table is the output of a test

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.conftest import RunSuite
from tests.dynamo.sequences import sequences
from tests.dynamo.torch_versions import BEFORE_2_11
from tests.dynamo.witness import Account, Recompiled, Witness

NAMES = list(sequences())

SUITE = """
import pytest
from tests.dynamo.sequences import sequences

MAKERS = sequences()

@pytest.mark.parametrize("name", MAKERS)
def test_sequence(compileguard, name):
    made = MAKERS[name]()
    guarded = compileguard(made.target, backend=made.backend, **made.options)
    for index, arguments in enumerate(made.calls):
        made.before(index, made.target)
        with made.around(index):
            guarded(*arguments)
"""


class Both(NamedTuple):
    """One sequence as both saw it."""

    witness: Account
    check: dict[str, Any]

    @property
    def told(self) -> Account:
        """What the witness saw; older torch does not log a break that it can't resume after."""
        if not BEFORE_2_11:
            return self.witness
        return self.witness._replace(breaks=self.witness.breaks | self.ours.breaks)

    @property
    def ours(self) -> Account:
        """What the report of the plugin says, in the words of the witness."""
        seen = self.check["observed"]
        calls = range(1, seen["calls"] + 1)
        reasons = [f["reason"] for f in self.check["fallbacks"] if f["kind"] == "ran_eager"]
        found = [re.search(r"ran no compiled code: ([\d, ]+)", reason) for reason in reasons]
        eager = [int(n) for match in found if match for n in match[1].split(",")]
        return Account(
            breaks=frozenset((site["file"], site["line"]) for site in self.check["graph_breaks"]),
            recompiles=tuple(
                Recompiled(r["compile_id"], r["file"], r["line"], r["guard"])
                for r in self.check["recompiles"]
            ),
            graphs=seen["graphs"],
            eager=tuple(eager if seen["graphs"] else calls),
        )


@pytest.fixture
def witness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Witness]:
    started = Witness(NAMES, tmp_path_factory.mktemp("witness"))
    yield started
    started.stop()


def test_facts_are_those_of_a_plain_script(witness: Witness, run_suite: RunSuite) -> None:
    checks = {check["nodeid"].split("[")[1].rstrip("]"): check for check in run_suite(SUITE).checks}
    accounts = witness.accounts()
    both = {name: Both(accounts[name], checks[name]) for name in NAMES}

    print(_table(both))
    assert set(checks) == set(NAMES)
    assert {name for name in NAMES if checks[name]["unreliable"]} == set()
    assert {name: pair.ours for name, pair in both.items()} == {
        name: pair.told for name, pair in both.items()
    }


def _table(both: dict[str, Both]) -> str:
    head = f"{'sequence (plain script / under guard)':40}{'breaks':>10}{'recompiles':>12}"
    lines = [f"{head}{'graphs':>10}{'eager calls':>13}"]
    for name, pair in both.items():
        cells = [f"{name:40}"]
        for field, width in (("breaks", 10), ("recompiles", 12), ("graphs", 10), ("eager", 13)):
            values = (getattr(side, field) for side in (pair.witness, pair.ours))
            numbers = [value if isinstance(value, int) else len(value) for value in values]
            cells.append("{} / {}".format(*numbers).rjust(width))
        lines.append("".join(cells))
    return "\n".join(lines)
