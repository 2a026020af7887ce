"""Generated code against the baseline on the page: said where it is known, and escaped."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
import pytest

from pytest_compileguard.finding import Artifacts, ComparedCode, GeneratedCode, SavedText, Verdict
from pytest_compileguard.report.page import page
from tests.unit import test_report as made
from tests.unit.test_page import HOSTILE, report_of

ONE, TWO = "1" * 16, "2" * 16


def graph(number: int, baseline: str | None, part: str = "forward") -> ComparedCode:
    return ComparedCode(
        graph=number, compile_id=f"{number}/0", part=part, digest=ONE, baseline=baseline
    )


def shown(*graphs: ComparedCode, same: bool | None, verdict: Verdict | None = None) -> str:
    verdict = verdict or made.verdict_of("t.py::test_a")
    code = GeneratedCode(graphs=graphs, same=same)
    return page(report_of(msgspec.structs.replace(verdict, code=code)))


def section(text: str) -> str:
    """The words of the section, without marks; empty if there is none."""
    found = re.search(r"<h3>Generated code</h3>(.*?)</ul>", text, re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", found[1]).split()) if found else ""


@pytest.mark.parametrize(
    ("graphs", "same", "words"),
    (
        (
            (graph(1, ONE), graph(2, ONE, "")),
            True,
            (
                "The generated code is the same as in the baseline. "
                f"graph 1/0 (forward): the generated code is the same as in the baseline {ONE} "
                f"graph 2/0: the generated code is the same as in the baseline {ONE}"
            ),
        ),
        (
            (graph(1, ONE), graph(2, TWO), graph(3, None)),
            False,
            (
                "The generated code changed since the baseline. "
                f"graph 1/0 (forward): the generated code is the same as in the baseline {ONE} "
                "graph 2/0 (forward): the generated code changed since the baseline "
                f"{ONE}, baseline {TWO}"
            ),
        ),
        (
            (graph(1, ONE), graph(2, None)),
            None,
            f"graph 1/0 (forward): the generated code is the same as in the baseline {ONE}",
        ),
        ((graph(1, None),), None, ""),
    ),
)
def test_the_page_says_what_is_known_of_each_graph(
    graphs: tuple[ComparedCode, ...], *, same: bool | None, words: str
) -> None:
    assert section(shown(*graphs, same=same)) == words


def test_a_check_without_generated_code_says_nothing() -> None:
    assert "Generated code" not in page(report_of(made.verdict_of("t.py::test_a")))


def test_saved_code_is_marked_by_graph_and_part() -> None:
    told: tuple[tuple[int, Literal["code", "graph"]], ...]
    told = ((1, "code"), (1, "graph"), (2, "code"), (3, "code"))
    texts = tuple(
        SavedText(kind=kind, compile_id=f"{number}/0", call=0, file="x", part="forward")
        for number, kind in told
    )
    saved = Artifacts(folder="f", trace="t", texts=texts)
    verdict = msgspec.structs.replace(made.verdict_of("t.py::test_a"), artifacts=saved)
    text = shown(graph(1, ONE), graph(2, TWO), graph(3, None), same=False, verdict=verdict)
    assert [" ".join(s.split()) for s in re.findall(r"call 1([^<]*)</span>", text)] == [
        ", the generated code is the same as in the baseline",
        "",
        ", the generated code changed since the baseline",
        "",
    ]


def test_a_report_from_anywhere_is_escaped() -> None:
    evil = ComparedCode(graph=1, compile_id="0/0", part=HOSTILE, digest=HOSTILE, baseline=HOSTILE)
    changed = msgspec.structs.replace(evil, baseline=f"{HOSTILE}!")
    text = shown(evil, changed, same=False)
    assert section(text)
    for mark in ("<script>window", "<img src=x", "<svg/onload", "\x1b", "\u202e"):
        assert mark not in text
