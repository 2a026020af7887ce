"""Judging: graph breaks and recompiles, on both sides of their limits."""

from __future__ import annotations

import pytest

from pytest_compileguard.plan import CompileArguments
from tests.judged import (
    finding_of,
    verdict_of,
)
from tests.records import (
    make_compilation,
    make_recompile,
    make_site,
)

# --- graph breaks -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sites", "limit", "status", "message"),
    (
        (0, 0, "passed", "0 of 0"),
        (1, 0, "failed", "1, limit 0"),
        (1, 1, "passed", "1 of 1"),
        (2, 1, "failed", "2, limit 1"),
        (2, None, "passed", "2, no limit"),
    ),
)
def test_graph_breaks_at_their_limit(
    sites: int, limit: int | None, status: str, message: str
) -> None:
    breaks = tuple(make_site(line=line) for line in range(1, sites + 1))
    compilation = make_compilation(break_sites=breaks)
    finding = finding_of(
        verdict_of(compilation=compilation, max_graph_breaks=limit), "graph_breaks"
    )
    assert (finding.status, finding.message) == (status, message)
    assert (finding.observed, finding.limit) == (sites, limit)


def test_a_break_is_shown_with_place_reason_and_hint() -> None:
    compilation = make_compilation(break_sites=(make_site(),))
    finding = finding_of(verdict_of(compilation=compilation), "graph_breaks")
    assert finding.evidence == (
        "/repo/models/mlp.py:41 in forward    print(x.shape)",
        "  Failed to trace builtin operator (GB0059): move the call out of the compiled region",
    )
    assert (finding.file, finding.line) == ("/repo/models/mlp.py", 41)


def test_the_first_hint_is_shown_whole_and_others_as_far_as_they_are_short() -> None:
    long = f"Consider {'something ' * 20}else. Or {'another ' * 20}thing."
    site = make_site(hints=(long, "Then do that."), hint=f"{long} Then do that.")
    finding = finding_of(
        verdict_of(compilation=make_compilation(break_sites=(site,))), "graph_breaks"
    )
    assert finding.evidence[1].endswith(f"(GB0059): {long}")


def test_a_long_hint_is_cut_after_a_sentence() -> None:
    long = f"First {'one ' * 100}ends. Second {'two ' * 100}ends."
    site = make_site(hints=(long,), hint=long)
    finding = finding_of(
        verdict_of(compilation=make_compilation(break_sites=(site,))), "graph_breaks"
    )
    assert finding.evidence[1].endswith("one one ends.")


def test_allowed_breaks_do_not_count_and_do_not_hide() -> None:
    sites = (make_site(allowed=True, line=7), make_site())
    verdict = verdict_of(compilation=make_compilation(break_sites=sites), max_graph_breaks=1)
    finding = finding_of(verdict, "graph_breaks")
    assert (finding.status, finding.observed) == ("passed", 1)
    assert finding.message == "1 of 1 (1 allowed)"
    assert finding.line == 41


def test_other_ways_to_count_breaks_are_shown_where_they_differ() -> None:
    compilation = make_compilation(break_sites=(make_site(events=3),), graphs=4)
    finding = finding_of(verdict_of(compilation=compilation), "graph_breaks")
    assert finding.evidence[-1] == "3 break events, explain-style 3"


def test_graphs_of_recompiles_are_no_explain_style_breaks() -> None:
    compilation = make_compilation(recompiles=(make_recompile(),))
    verdict = verdict_of(compilation=compilation, max_recompiles=1)
    assert finding_of(verdict, "graph_breaks").message == "0 of 0"


@pytest.mark.parametrize("told", (True, False))
def test_rewritten_asserts_are_named_as_the_cause(*, told: bool) -> None:
    compilation = make_compilation(break_sites=(make_site(rewritten_assert=told),))
    finding = finding_of(verdict_of(compilation=compilation), "graph_breaks")
    assert ("pytest rewrites the asserts" in finding.remedy) is told


def test_many_breaks_are_cut_with_their_number() -> None:
    sites = tuple(make_site(line=line) for line in range(1, 16))
    finding = finding_of(
        verdict_of(compilation=make_compilation(break_sites=sites)), "graph_breaks"
    )
    assert finding.observed == 15
    assert len(finding.evidence) == 2 * 10 + 1
    assert finding.evidence[-1] == "and 5 more"
    ten = finding_of(
        verdict_of(compilation=make_compilation(break_sites=sites[:10])), "graph_breaks"
    )
    assert ten.evidence == finding.evidence[:-1]


# --- recompiles -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "limit", "status", "message"),
    (
        (0, 0, "passed", "0 of 0"),
        (1, 0, "failed", "1, limit 0"),
        (
            1,
            1,
            "passed",
            "1 of 1 (call 2, 0/1 forward: x.size(0) 32 -> 48, then dynamic)",
        ),
        (2, 1, "failed", "2, limit 1"),
        (
            2,
            None,
            "passed",
            "2, no limit (call 2, 0/1 forward: x.size(0) 32 -> 48, then dynamic, and 1 more)",
        ),
    ),
)
def test_recompiles_at_their_limit(
    count: int, limit: int | None, status: str, message: str
) -> None:
    recompiles = tuple(make_recompile(compile_id=f"0/{n}") for n in range(1, count + 1))
    compilation = make_compilation(recompiles=recompiles)
    finding = finding_of(verdict_of(compilation=compilation, max_recompiles=limit), "recompiles")
    assert (finding.status, finding.message) == (status, message)
    assert (finding.observed, finding.limit) == (count, limit)


def test_the_refused_recompile_is_shown_and_not_counted() -> None:
    recompiles = (
        make_recompile(),
        make_recompile(
            call=2, compile_id="0/2", kind="size", before="48", after="64", refused=True
        ),
    )
    compilation = make_compilation(recompiles=recompiles)
    finding = finding_of(verdict_of(compilation=compilation), "recompiles")
    assert finding.observed == 1
    assert finding.evidence == (
        "call 2, 0/1 forward: x.size(0) 32 -> 48 (automatic dynamic)    /repo/models/mlp.py:40",
        (
            "call 3, 0/2 forward: x.size(0) 48 -> 64 (refused by the recompile limit)"
            "    /repo/models/mlp.py:40"
        ),
    )


def test_recompiles_of_several_frames_are_told_as_such() -> None:
    recompiles = tuple(make_recompile(compile_id=f"{frame}/1") for frame in range(4))
    finding = finding_of(
        verdict_of(compilation=make_compilation(recompiles=recompiles)), "recompiles"
    )
    assert finding.evidence[0] == "4 recompiles in 4 frames"
    assert "mend the graph breaks first" in finding.remedy


@pytest.mark.parametrize(
    ("changes", "text"),
    (
        ({"subject": ""}, "tensor 'x' size mismatch at index 0. expected 32, actual 48"),
        ({"after": ""}, "x.size(0) (tensor 'x' size mismatch at index 0. expected 32, actual 48)"),
        ({"after": "", "guard": ""}, "x.size(0)"),
        ({"subject": "n", "before": "2", "after": ""}, "n was 2"),
    ),
)
def test_a_guard_that_tells_less_is_quoted(changes: dict[str, str], text: str) -> None:
    compilation = make_compilation(recompiles=(make_recompile(file="?", **changes),))
    finding = finding_of(verdict_of(compilation=compilation), "recompiles")
    assert finding.evidence == (f"call 2, 0/1 forward: {text} (automatic dynamic)",)
    assert finding.file == ""


@pytest.mark.parametrize(
    ("changes", "remedy"),
    (
        (
            {},
            (
                "mark the dimension with torch._dynamo.mark_dynamic(x, 0), "
                "or allow one with max_recompiles=1"
            ),
        ),
        (
            {"kind": "size", "subject": "argument 0.size(1)"},
            (
                "mark dimension 1 of argument 0 with torch._dynamo.mark_dynamic(tensor, 1), "
                "or allow one with max_recompiles=1"
            ),
        ),
        ({"kind": "size", "after": "1"}, "sizes 0 and 1 are always specialised"),
        ({"kind": "stride"}, "keep one memory layout: call .contiguous()"),
        ({"kind": "dtype"}, "keep one dtype for all calls"),
        ({"kind": "value", "subject": "n", "before": "2"}, "pass a tensor instead of the number"),
        ({"kind": "value", "subject": "n", "before": "-1.5e-3"}, "pass a tensor instead of the"),
        ({"kind": "value", "subject": "self.step", "before": "0"}, "keep the number in a tensor"),
        ({"kind": "value", "subject": "len(xs)", "before": "2"}, "each length is compiled apart"),
        ({"kind": "value", "subject": "on", "before": "True"}, "a flag is compiled once for each"),
        ({"kind": "value", "subject": "way", "before": "'a'"}, "a string is compiled once for"),
        ({"kind": "value", "subject": "way", "before": "Way.up"}, "the value is constant in the"),
        (
            {"kind": "size", "before": ">= 2, <= 20", "after": "30"},
            "code branches on x.size(0): what was compiled holds while it is 2 to 20; keep all",
        ),
        (
            {"kind": "size", "subject": "x.size(0) % 2", "before": "0", "after": "", "guard": "g"},
            "code branches on x.size(0) % 2: what was compiled holds while it is == 0",
        ),
        (
            {"kind": "size", "subject": "y.size(0)", "before": "x.size(0)", "after": ""},
            "code branches on y.size(0): what was compiled holds while it is == x.size(0)",
        ),
        ({"kind": "identity"}, "pass the same object in every call"),
        ({"kind": "grad_mode"}, "keep one grad mode for all calls"),
        ({"kind": "other"}, ""),
    ),
)
def test_the_remedy_fits_the_guard(changes: dict[str, str], remedy: str) -> None:
    compilation = make_compilation(recompiles=(make_recompile(**changes),))
    finding = finding_of(verdict_of(compilation=compilation), "recompiles")
    assert finding.remedy.startswith(remedy)
    assert "dynamic=True" not in finding.remedy
    assert bool(finding.remedy) is bool(remedy)


def test_static_shapes_that_were_asked_for_are_the_cause() -> None:
    compilation = make_compilation(recompiles=(make_recompile(kind="size"),))
    arguments = CompileArguments(dynamic=False)
    finding = finding_of(verdict_of(compilation=compilation, arguments=arguments), "recompiles")
    assert finding.remedy.startswith("dynamic=False specialises every size")
