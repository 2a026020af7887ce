"""Judging: facts against what is stored."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec
import pytest

from pytest_compileguard.baseline.look_up import Baseline
from pytest_compileguard.observation import (
    NotObserved,
)
from pytest_compileguard.report.failure import failure_text
from tests.judged import (
    COMMAND,
    UNTIMED,
    finding_of,
    make_baseline,
    statuses_of,
    verdict_of,
)
from tests.records import (
    make_compilation,
    make_facts,
    make_recompile,
    make_site,
    make_timing,
)


@pytest.mark.parametrize(
    ("metric", "stored", "status"),
    (
        ("graph_breaks", 0, "failed"),
        ("graph_breaks", 2, "passed"),
        ("break_events", 0, "failed"),
        ("break_events", 2, "passed"),
        ("recompiles", 0, "failed"),
        ("recompiles", 2, "passed"),
        ("graphs", 2, "failed"),
        ("graphs", 4, "passed"),
    ),
)
def test_each_gated_fact_on_both_sides_of_its_baseline(
    metric: str, stored: int, status: str
) -> None:
    seen = make_compilation(break_sites=(make_site(),), recompiles=(make_recompile(),))
    facts = make_facts(seen, **{metric: stored})
    verdict = verdict_of(
        compilation=seen,
        baseline=make_baseline(facts=facts),
        max_graph_breaks=None,
        max_recompiles=None,
    )
    finding = finding_of(verdict, f"baseline.{metric}")
    assert (finding.status, finding.baseline) == (status, stored)
    assert ("baseline" in statuses_of(verdict)) is (status == "passed")
    assert COMMAND in finding.remedy
    assert verdict.outcome == status
    if status == "failed":
        assert finding.message == "recorded with torch 2.13.0 on NVIDIA H200"
    else:
        assert finding.message == f"tighten: {stored} -> {finding.observed}"
        assert finding.remedy == f"{COMMAND}=improved"


def test_equal_facts_are_one_finding() -> None:
    finding = finding_of(verdict_of(), "baseline")
    assert finding.message == "kept, recorded with torch 2.13.0 on NVIDIA H200"
    assert finding.evidence == ()


def test_a_note_about_the_baseline_is_passed_on() -> None:
    baseline = make_baseline(facts_note="recorded with torch 2.12, this is 2.13")
    finding = finding_of(verdict_of(baseline=baseline), "baseline")
    assert finding.message == "kept, recorded with torch 2.12, this is 2.13"


def test_a_change_that_gates_nothing_is_told() -> None:
    facts = make_facts(ops=14, kernels=3)
    finding = finding_of(verdict_of(baseline=make_baseline(facts=facts)), "baseline")
    assert finding.status == "passed"
    assert finding.evidence == ("captured ops 12, baseline 14", "kernels 2, baseline 3")


def test_kernels_of_another_backend_are_not_compared() -> None:
    facts = make_facts(kernels=3, backend="aot_eager")
    finding = finding_of(verdict_of(baseline=make_baseline(facts=facts)), "baseline")
    assert finding.evidence == ()


STORED_SITE = "models/mlp.py:12 in forward: Failed to trace builtin operator (GB0059)"


@pytest.mark.parametrize(
    ("stored", "new"),
    (
        (STORED_SITE, False),
        (f"{STORED_SITE}, allowed", True),  # the site is not, any more
        (STORED_SITE.replace("models/", "sub/models/"), True),
        (STORED_SITE.replace("models/", ""), True),
        (STORED_SITE.replace("forward", "backward"), True),
        (STORED_SITE.replace("mlp.py", "cnn.py"), True),
        (STORED_SITE.replace("mlp.py", "lp.py").replace("models/", ""), True),
        (STORED_SITE.replace("GB0059", "GB0001"), True),
        ("", True),
    ),
)
def test_a_break_that_moved_is_known_and_another_one_is_named(*, stored: str, new: bool) -> None:
    seen = make_compilation(break_sites=(make_site(),))
    baseline = make_baseline(facts=make_facts(seen, breaks=(stored,)))
    verdict = verdict_of(compilation=seen, baseline=baseline, max_graph_breaks=1)
    assert finding_of(verdict, "baseline").status == "passed"
    assert verdict.outcome == "passed"
    found = [f for f in verdict.findings if f.metric == "baseline.new_break_sites"]
    assert bool(found) is new
    if new:
        expected = "new: /repo/models/mlp.py:41 in forward    print(x.shape)"
        assert found[0].evidence[0] == expected
        assert (found[0].warns, found[0].observed) == (True, 1)


def test_a_break_that_came_is_named_beside_a_number_that_fails() -> None:
    seen = make_compilation(break_sites=(make_site(),))
    facts = make_facts(seen, breaks=("other.py:1 in f: no",), graphs=1)
    verdict = verdict_of(
        compilation=seen, baseline=make_baseline(facts=facts), max_graph_breaks=None
    )
    assert finding_of(verdict, "baseline.graphs").status == "failed"
    assert finding_of(verdict, "baseline.new_break_sites").warns


@pytest.mark.parametrize(
    ("observed", "note", "warns"),
    (
        ({"kernels": 4}, "", True),
        ({"kernels": 2}, "", False),
        ({"kernels": 4}, "recorded with torch 2.12, this is 2.13", False),
    ),
)
def test_more_kernels_of_the_same_torch_warn(
    observed: dict[str, int], note: str, *, warns: bool
) -> None:
    baseline = make_baseline(facts=make_facts(kernels=3), facts_note=note)
    verdict = verdict_of(compilation=make_compilation(**observed), baseline=baseline)
    assert verdict.outcome == "passed"
    assert any(f.warns for f in verdict.findings) is warns


def test_improvements_fail_where_that_is_wanted_until_they_are_recorded() -> None:
    baseline = make_baseline(facts=make_facts(graphs=4), timing=make_timing(1.0))
    offered = verdict_of(baseline=baseline)
    assert offered.outcome == "passed"
    verdict = verdict_of(baseline=baseline, improvements="fail")
    assert verdict.outcome == "failed"
    assert verdict.recordable
    for metric in ("baseline.graphs", "baseline.speedup"):
        finding = finding_of(verdict, metric)
        assert finding.status == "failed"
        assert f"tightened: {COMMAND}=improved" in finding.remedy
    kept = verdict_of(baseline=baseline, improvements="fail", update_baseline="improved")
    assert kept.outcome == "passed"


@pytest.mark.parametrize("changes", ({"backend": "aot_eager"}, {"mode": "max-autotune"}))
def test_better_than_what_was_compiled_otherwise_is_recorded_anew(changes: dict[str, Any]) -> None:
    """Another backend or mode is no improvement of the entry: that mode would keep it."""
    baseline = make_baseline(facts=make_facts(graphs=4, **changes))
    verdict = verdict_of(baseline=baseline, improvements="fail")
    assert finding_of(verdict, "baseline.graphs").remedy.endswith(f"tightened: {COMMAND}")


def test_better_than_an_older_torch_is_recorded_as_new_and_never_fails() -> None:
    note = "recorded with torch 2.12, this is 2.13"
    baseline = make_baseline(facts=make_facts(graphs=4), facts_note=note)
    verdict = verdict_of(baseline=baseline, improvements="fail")
    assert verdict.outcome == "passed"
    assert finding_of(verdict, "baseline.graphs").remedy == f"{COMMAND}=new"


def test_absolute_times_advise_and_never_fail() -> None:
    baseline = make_baseline(timing=make_timing(eager_ms=0.001, compiled_ms=0.001))
    finding = finding_of(verdict_of(baseline=baseline), "baseline.speedup")
    assert finding.status == "passed"
    assert [line.split(" ms")[0].rpartition(" ")[0] for line in finding.evidence] == [
        "eager time",
        "compiled time",
    ]


def test_a_worse_number_of_breaks_names_the_new_ones() -> None:
    seen = make_compilation(break_sites=(make_site(), make_site(line=50)))
    facts = make_facts(make_compilation(break_sites=(make_site(),)), breaks=(STORED_SITE,))
    verdict = verdict_of(
        compilation=seen, baseline=make_baseline(facts=facts), max_graph_breaks=None
    )
    evidence = finding_of(verdict, "baseline.graph_breaks").evidence
    assert evidence[0] == "new: /repo/models/mlp.py:50 in forward    print(x.shape)"


def test_a_worse_number_of_recompiles_shows_the_guards() -> None:
    seen = make_compilation(recompiles=(make_recompile(),))
    facts = make_facts(graphs=2)
    verdict = verdict_of(compilation=seen, baseline=make_baseline(facts=facts), max_recompiles=None)
    (line,) = finding_of(verdict, "baseline.recompiles").evidence
    assert "x.size(0) 32 -> 48" in line


INPUTS = ("float32[32, 64]", "float32[32, 64]", "float32[48, 64]")


@pytest.mark.parametrize(
    ("stored", "said"),
    (
        (("2 x float32[32, 64]", "float32[48, 64]"), None),
        (None, None),
        (
            ("3 x float32[32, 64]",),
            "recorded with other inputs: 3 x float32[32, 64], this run 2 x float32[32, 64]",
        ),
        (
            ("2 x float32[32, 64]", "float64[48, 64]"),
            "recorded with other inputs: float64[48, 64], this run float32[48, 64]",
        ),
        ((), "recorded with other inputs: none, this run 2 x float32[32, 64]"),
    ),
)
def test_inputs_of_another_shape_make_a_baseline_incomparable(
    stored: tuple[str, ...] | None, said: str | None
) -> None:
    seen = make_compilation(inputs=INPUTS)
    baseline = make_baseline(
        facts=make_facts(seen, graphs=0, inputs=stored), timing=make_timing(9.0, inputs=stored)
    )
    verdict = verdict_of(compilation=seen, baseline=baseline)
    statuses = statuses_of(verdict)
    if said is None:
        assert statuses["baseline.graphs"] == "failed"
        assert statuses["baseline.speedup"] == "failed"
        return
    assert verdict.outcome == "passed"
    for metric in ("baseline", "baseline.speedup"):
        finding = finding_of(verdict, metric)
        assert finding.status == "not_checked"
        assert finding.message == f"{said}; record with --compileguard-update-baseline"
    assert verdict_of(compilation=seen, baseline=baseline, strict=True).fails


@pytest.mark.parametrize("changed", ({"calls": 4}, {"inputs": ("float64[1]",)}))
def test_a_new_break_fails_whatever_the_calls(changed: dict[str, Any]) -> None:
    """Else a change of the inputs would hide a break that comes with it."""
    site = make_site()
    broken = make_compilation(site, inputs=INPUTS)
    for before, statuses in ((make_compilation(), ["failed", "not_checked"]), (broken, [])):
        stored = make_facts(before, inputs=("3 x float32[32, 64]",))
        baseline = make_baseline(facts=msgspec.structs.replace(stored, **changed))
        verdict = verdict_of(compilation=broken, baseline=baseline, max_graph_breaks=None)
        found = [f for f in verdict.findings if f.metric.startswith("baseline")]
        assert [f.status for f in found][: len(statuses)] == statuses
        assert verdict.fails is bool(statuses)
        if statuses:
            assert (found[0].observed, found[0].baseline) == (1, 0)
            assert any(site.function in line for line in found[0].evidence)
            assert found[0].message.startswith("recorded with")


def test_facts_of_another_call_sequence_are_not_compared() -> None:
    facts = make_facts(calls=4, graphs=0)
    verdict = verdict_of(baseline=make_baseline(facts=facts))
    finding = finding_of(verdict, "baseline")
    assert finding.status == "not_checked"
    assert finding.message.startswith("recorded with 4 calls, this run made 3; record with")


@pytest.mark.parametrize(
    ("untimed", "message"),
    (
        (None, "none for NVIDIA H200, torch 2.13; record with --compileguard-update-baseline"),
        (UNTIMED, "none for cuda, torch 2.13; record with --compileguard-update-baseline"),
    ),
)
def test_a_missing_baseline_is_visible_and_says_how_to_make_it(
    untimed: str | None, message: str
) -> None:
    baseline = Baseline(
        facts=None,
        facts_note="none for cuda, torch 2.13",
        timing=None,
        timing_note="none for NVIDIA H200, torch 2.13",
    )
    verdict = verdict_of(baseline=baseline, untimed=untimed)
    finding = finding_of(verdict, "baseline")
    assert (finding.status, finding.message) == ("not_checked", message)
    assert finding.remedy == COMMAND
    assert (verdict.outcome, verdict.recordable) == ("passed", True)
    assert verdict_of(baseline=baseline, strict=True).fails


def test_missing_facts_beside_a_timing_are_visible() -> None:
    baseline = make_baseline(facts=None, facts_note="none for cuda, torch 2.13")
    verdict = verdict_of(baseline=baseline)
    finding = finding_of(verdict, "baseline")
    assert finding.status == "not_checked"
    assert finding.message.startswith("none for cuda, torch 2.13; record with")
    assert finding_of(verdict, "baseline.speedup").status == "passed"


def test_a_baseline_that_was_not_read_says_why() -> None:
    verdict = verdict_of(baseline=NotObserved(reason="the file is damaged"))
    finding = finding_of(verdict, "baseline")
    assert (finding.status, finding.message) == ("not_checked", "the file is damaged")


def test_the_command_is_safe_in_a_shell() -> None:
    nodeid = "tests/test_x.py::test_x[$(rm -rf ~)'; \"]"
    facts = make_facts(graphs=0)
    verdict = verdict_of(baseline=make_baseline(facts=facts), nodeid=nodeid)
    command = finding_of(verdict, "baseline.graphs").remedy.partition(": ")[2]
    assert shlex.split(command) == ["pytest", nodeid, "--compileguard-update-baseline"]


def test_nobody_is_told_to_record_what_can_not_be_recorded() -> None:
    seen = make_compilation(make_site())
    baseline = make_baseline(facts=make_facts(make_compilation()))
    for limit, advice in ((0, "mend, or change the limit of, graph breaks"), (None, COMMAND)):
        verdict = verdict_of(compilation=seen, baseline=baseline, max_graph_breaks=limit)
        assert advice in finding_of(verdict, "baseline.graph_breaks").remedy
        assert (COMMAND in failure_text([verdict], rootpath=None)) is (limit is None)


def test_evidence_that_a_limit_and_the_baseline_share_is_shown_once() -> None:
    site = make_site()
    baseline = make_baseline(facts=make_facts(make_compilation()))
    verdict = verdict_of(compilation=make_compilation(site), baseline=baseline, max_graph_breaks=0)
    text = failure_text([verdict], rootpath=None)
    assert text.count(site.source) == 1
    assert text.count("as above") == 2
