"""Judging: each rule on both sides of its limit, and nothing green that measured nothing."""

from __future__ import annotations

import math
import shlex
from typing import Any, Literal, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_compileguard.baseline.look_up import Baseline
from pytest_compileguard.environment import Environment
from pytest_compileguard.finding import Finding, Verdict
from pytest_compileguard.observation import (
    CompileObservation,
    FallbackKind,
    NotObserved,
    Observation,
    ParityObservation,
    SpeedObservation,
)
from pytest_compileguard.plan import CompileArguments
from pytest_compileguard.verdict import judge
from tests.records import (
    NODEID,
    make_compilation,
    make_environment,
    make_facts,
    make_fallback,
    make_mismatch,
    make_parity,
    make_plan,
    make_recompile,
    make_site,
    make_speed,
    make_timing,
)

COMMAND = f"pytest {NODEID} --compileguard-update-baseline"
UNTIMED = "timing is off (--compileguard-no-timing)"
ENVIRONMENT = make_environment()


def make_baseline(**changes: Any) -> Baseline:
    baseline = Baseline(facts=make_facts(), facts_note="", timing=make_timing(), timing_note="")
    return msgspec.structs.replace(baseline, **changes)


def verdict_of(
    *,
    compilation: CompileObservation | NotObserved | None = None,
    parity: ParityObservation | NotObserved | None = None,
    speed: SpeedObservation | NotObserved | None = None,
    baseline: Baseline | NotObserved | None = None,
    environment: Environment | None = ENVIRONMENT,
    **limits: Any,
) -> Verdict:
    """Judge a check that is fine in all that is not given."""
    observation = Observation(
        compile=compilation or make_compilation(),
        parity=parity or make_parity(),
        speed=speed or make_speed(),
    )
    return judge(make_plan(**limits), observation, environment, baseline or make_baseline())


def finding_of(verdict: Verdict, metric: str) -> Finding:
    (found,) = [finding for finding in verdict.findings if finding.metric == metric]
    return found


def statuses_of(verdict: Verdict) -> dict[str, str]:
    return {finding.metric: finding.status for finding in verdict.findings}


# --- the whole -------------------------------------------------------------------------------


def test_a_check_without_fault_passes_in_every_finding() -> None:
    verdict = verdict_of()
    assert statuses_of(verdict) == {
        "compiled": "passed",
        "fallbacks": "passed",
        "graph_breaks": "passed",
        "recompiles": "passed",
        "parity": "passed",
        "speedup": "passed",
        "baseline": "passed",
        "baseline.speedup": "passed",
    }
    assert (verdict.outcome, verdict.fails, verdict.recordable) == ("passed", False, True)
    assert verdict.speed is not None
    assert verdict.speed.speedup == pytest.approx(1.3)


def test_one_call_with_one_operator_and_one_leaf_is_enough() -> None:
    verdict = verdict_of(
        compilation=make_compilation(calls=1, ops=1),
        parity=make_parity(calls=1, calls_compared=1, leaves_compared=1),
        baseline=make_baseline(facts=make_facts(calls=1, ops=1)),
    )
    assert set(statuses_of(verdict).values()) == {"passed"}


def test_one_failed_finding_outweighs_an_inconclusive_one() -> None:
    verdict = verdict_of(
        compilation=make_compilation(break_sites=(make_site(),)), speed=make_speed(1.2, 0.05)
    )
    assert finding_of(verdict, "speedup").status == "inconclusive"
    assert verdict.outcome == "failed"


def test_strict_fails_what_is_unclear() -> None:
    speed = make_speed(1.2, 0.05)
    assert not verdict_of(speed=speed).fails
    assert verdict_of(speed=speed, strict=True).fails


# --- compiled and fallbacks ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compilation", "message"),
    (
        (NotObserved(reason="the test never called it"), "nothing was compiled: the test never"),
        (make_compilation(graphs=0), "nothing was compiled: 0 graphs in 3 calls"),
        (make_compilation(ops=0), "nothing was compiled: 0 operators in 1 graph"),
        (make_compilation(calls=0, graphs=0), "nothing was compiled: the target was not called"),
        (make_compilation(error="BackendCompilerFailed: no"), "BackendCompilerFailed: no"),
        (make_compilation(error=" "), "compiling failed"),
    ),
)
def test_nothing_compiled_fails_without_any_limit(
    compilation: CompileObservation | NotObserved, message: str
) -> None:
    verdict = verdict_of(
        compilation=compilation, max_graph_breaks=None, max_recompiles=None, min_speedup=None
    )
    compiled = finding_of(verdict, "compiled")
    assert compiled.status == "failed"
    assert compiled.message.startswith(message)
    assert verdict.outcome == "failed"
    assert not verdict.recordable


@pytest.mark.parametrize("limit", (None, 0))
def test_nothing_compiled_is_never_zero_graph_breaks(limit: int | None) -> None:
    verdict = verdict_of(
        compilation=make_compilation(graphs=0), max_graph_breaks=limit, max_recompiles=limit
    )
    assert finding_of(verdict, "graph_breaks").status == "not_checked"
    assert finding_of(verdict, "recompiles").status == "not_checked"
    assert finding_of(verdict, "baseline").status == "not_checked"


def test_the_error_of_the_compiler_comes_with_its_remedy() -> None:
    compilation = make_compilation(error="Unsupported: print\n\nin forward", error_remedy="drop it")
    compiled = finding_of(verdict_of(compilation=compilation), "compiled")
    assert (compiled.message, compiled.evidence) == ("Unsupported: print", ("in forward",))
    assert compiled.remedy == "drop it"


def test_why_nothing_was_compiled_is_said_once() -> None:
    disabled = make_fallback(kind="nothing_compiled", call=None, file="", frame="", reason="off")
    verdict = verdict_of(compilation=make_compilation(graphs=0, fallbacks=(disabled,)))
    assert finding_of(verdict, "compiled").evidence == ("nothing compiled: off",)
    assert "TORCH_COMPILE_DISABLE" in finding_of(verdict, "compiled").remedy
    assert finding_of(verdict, "fallbacks").status == "passed"


@pytest.mark.parametrize(
    "changes", ({"break_sites": (make_site(),)}, {"fallbacks": (make_fallback(),)})
)
def test_a_shown_cause_needs_no_search_for_a_switch(changes: dict[str, Any]) -> None:
    compilation = make_compilation(**changes, graphs=0)
    assert finding_of(verdict_of(compilation=compilation), "compiled").remedy == ""


def test_breaks_that_no_limit_shows_stand_with_nothing_compiled() -> None:
    compilation = make_compilation(graphs=0, break_sites=(make_site(),))
    unlimited = finding_of(verdict_of(compilation=compilation, max_graph_breaks=None), "compiled")
    assert unlimited.evidence[0] == "/repo/models/mlp.py:41 in forward    print(x.shape)"
    assert (unlimited.file, unlimited.line) == ("/repo/models/mlp.py", 41)
    limited = verdict_of(compilation=compilation, max_graph_breaks=0)
    assert finding_of(limited, "compiled").evidence == ()
    assert finding_of(limited, "graph_breaks").status == "failed"


@pytest.mark.parametrize("kind", get_args(FallbackKind))
def test_every_fallback_fails_without_any_limit(kind: str) -> None:
    compilation = make_compilation(fallbacks=(make_fallback(kind=kind),))
    verdict = verdict_of(compilation=compilation, max_graph_breaks=None, max_recompiles=None)
    fallbacks = finding_of(verdict, "fallbacks")
    assert (fallbacks.status, fallbacks.observed, verdict.outcome) == ("failed", 1, "failed")
    assert fallbacks.evidence == (
        (
            f"{kind.replace('_', ' ')}, /repo/models/mlp.py:40 in forward, call 1: "
            "graph break in a loop"
        ),
    )
    assert (fallbacks.file, fallbacks.line) == ("/repo/models/mlp.py", 40)
    assert fallbacks.remedy
    assert not verdict.recordable


def test_a_frame_given_up_at_an_accepted_break_passes_and_is_shown() -> None:
    compilation = make_compilation(break_sites=(make_site(),), fallbacks=(make_fallback(),))
    accepted = finding_of(verdict_of(compilation=compilation, max_graph_breaks=1), "fallbacks")
    assert accepted.status == "passed"
    assert accepted.message == "1 frame given up at accepted graph breaks"
    assert accepted.evidence
    for limit in (None, 0):
        verdict = verdict_of(compilation=compilation, max_graph_breaks=limit)
        assert finding_of(verdict, "fallbacks").status == "failed"


def test_a_skipped_frame_is_shown_beside_nothing_compiled() -> None:
    compilation = make_compilation(graphs=0, fallbacks=(make_fallback(),))
    verdict = verdict_of(compilation=compilation)
    assert finding_of(verdict, "fallbacks").status == "failed"
    assert finding_of(verdict, "compiled").evidence == ()


def test_a_fallback_in_many_calls_is_one_line() -> None:
    fallbacks = tuple(make_fallback(kind="ran_eager", call=call) for call in range(4, 9))
    finding = finding_of(verdict_of(compilation=make_compilation(fallbacks=fallbacks)), "fallbacks")
    assert finding.observed == 5
    assert finding.evidence == (
        (
            "ran eager, /repo/models/mlp.py:40 in forward, 5 times, first in call 5: "
            "graph break in a loop"
        ),
    )


def test_a_limit_hit_fails_though_no_fallback_names_it() -> None:
    refused = make_recompile(call=8, compile_id="0/8", kind="size", refused=True)
    compilation = make_compilation(limit_hit=True, recompiles=(refused,))
    finding = finding_of(verdict_of(compilation=compilation), "fallbacks")
    assert finding.status == "failed"
    assert finding.evidence == (
        "limit hit: the recompile limit was hit",
        (
            "call 9, 0/8 forward: x.size(0) 32 -> 48 (refused by the recompile limit)"
            "    /repo/models/mlp.py:40"
        ),
    )


def test_a_named_limit_hit_is_told_once() -> None:
    hit = make_fallback(kind="limit_hit", reason="Dynamo recompile limit exceeded")
    compilation = make_compilation(limit_hit=True, fallbacks=(hit,))
    finding = finding_of(verdict_of(compilation=compilation), "fallbacks")
    assert (finding.observed, len(finding.evidence)) == (1, 1)


# --- the trace -------------------------------------------------------------------------------


def test_a_limit_on_an_untrusted_number_fails() -> None:
    compilation = make_compilation(unreliable=("counters say 2 graphs, the trace 1",))
    verdict = verdict_of(compilation=compilation)
    for metric in ("graph_breaks", "recompiles"):
        finding = finding_of(verdict, metric)
        assert finding.status == "failed"
        assert finding.message == "can't be trusted: counters say 2 graphs, the trace 1"
    assert "trace" not in statuses_of(verdict)


def test_an_untrusted_number_without_limit_is_inconclusive() -> None:
    compilation = make_compilation(unreliable=("they disagree",))
    verdict = verdict_of(compilation=compilation, max_graph_breaks=None, max_recompiles=None)
    trace = finding_of(verdict, "trace")
    assert trace.status == "inconclusive"
    assert trace.message == "graph breaks and recompiles can't be trusted: they disagree"
    assert not {"graph_breaks", "recompiles"} & statuses_of(verdict).keys()
    assert (verdict.outcome, verdict.recordable) == ("inconclusive", False)


def test_an_untrusted_number_is_not_compared_with_the_baseline() -> None:
    verdict = verdict_of(compilation=make_compilation(unreliable=("they disagree",)))
    assert finding_of(verdict, "baseline").status == "not_checked"


# --- graph breaks ----------------------------------------------------------------------------


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


# --- recompiles ------------------------------------------------------------------------------


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
                "mark the dimension with torch._dynamo.mark_dynamic, "
                "or allow one with max_recompiles=1"
            ),
        ),
        ({"kind": "size", "after": "1"}, "sizes 0 and 1 are always specialised"),
        ({"kind": "stride"}, "keep one memory layout: call .contiguous()"),
        ({"kind": "dtype"}, "keep one dtype for all calls"),
        ({"kind": "value"}, "pass a tensor instead of the number"),
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


# --- parity ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parity", "message"),
    (
        (NotObserved(reason="no phase ran"), "nothing was compared: no phase ran"),
        (make_parity(calls_compared=0), "nothing was compared"),
        (make_parity(leaves_compared=0), "nothing was compared"),
        (
            make_parity(calls_compared=0, unchecked=("a file handle",)),
            "nothing was compared: a file handle",
        ),
    ),
)
def test_a_comparison_of_nothing_fails(
    parity: ParityObservation | NotObserved, message: str
) -> None:
    finding = finding_of(verdict_of(parity=parity), "parity")
    assert (finding.status, finding.message) == ("failed", message)


def test_parity_is_not_checked_where_compiling_failed() -> None:
    compilation = make_compilation(error="no compiler")
    parity = NotObserved(reason="compiling failed")
    verdict = verdict_of(compilation=compilation, parity=parity)
    assert finding_of(verdict, "parity").status == "not_checked"
    assert verdict.outcome == "failed"


def test_parity_of_all_calls_passes() -> None:
    finding = finding_of(verdict_of(), "parity")
    assert (finding.status, finding.message) == ("passed", "3 of 3 calls")


def test_leaves_that_the_reference_acquitted_are_told() -> None:
    finding = finding_of(verdict_of(parity=make_parity(disputed=2)), "parity")
    assert finding.status == "passed"
    assert finding.message == "3 of 3 calls (2 disputed leaves acquitted by a float64 reference)"


@pytest.mark.parametrize("calls", (2, 3))
def test_a_sequence_compared_in_part_is_inconclusive(calls: int) -> None:
    # Three calls were compiled, whatever the comparison believes.
    parity = make_parity(calls=calls, calls_compared=2, unchecked=("a generator",))
    verdict = verdict_of(parity=parity)
    finding = finding_of(verdict, "parity")
    assert (finding.status, verdict.outcome) == ("inconclusive", "inconclusive")
    assert finding.message == "only 2 of 3 calls compared: a generator"
    assert "isolation" not in statuses_of(verdict)
    assert not verdict.recordable


def test_a_mismatch_fails_even_where_little_was_compared() -> None:
    parity = make_parity(calls_compared=0, leaves_compared=0, mismatches=(make_mismatch(),))
    finding = finding_of(verdict_of(parity=parity), "parity")
    assert finding.status == "failed"
    assert finding.message == "compiled differs from eager in 1 of 3 calls"
    assert finding.evidence == ("call 2, output['var']: differs by 0.5",)
    assert "rtol" in finding.remedy


def test_many_mismatches_are_cut_with_their_number() -> None:
    mismatches = tuple(make_mismatch(path=f"output[{n}]") for n in range(7))
    finding = finding_of(verdict_of(parity=make_parity(mismatches=mismatches)), "parity")
    assert len(finding.evidence) == 6
    assert finding.evidence[-1] == "and 2 more"


def test_what_could_not_be_isolated_is_visible_and_fails_when_strict() -> None:
    parity = make_parity(unchecked=("argument 1 is a file",))
    verdict = verdict_of(parity=parity)
    assert finding_of(verdict, "parity").status == "passed"
    isolation = finding_of(verdict, "isolation")
    assert (isolation.status, isolation.message) == ("not_checked", "argument 1 is a file")
    # The facts are none the less true.
    assert (verdict.outcome, verdict.recordable) == ("passed", True)
    assert verdict_of(parity=parity, strict=True).fails


# --- speedup ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "spread", "status", "message"),
    (
        (1.3, 0.05, "passed", "1.30x [1.25, 1.35], limit 1.20x"),
        (1.1, 0.05, "failed", "1.10x [1.05, 1.15], limit 1.20x"),
        (1.2, 0.05, "inconclusive", "1.20x [1.15, 1.25]: the limit 1.20x lies inside"),
    ),
)
def test_speedup_at_its_limit(ratio: float, spread: float, status: str, message: str) -> None:
    verdict = verdict_of(speed=make_speed(ratio, spread))
    finding = finding_of(verdict, "speedup")
    assert (finding.status, finding.message, finding.limit) == (status, message, 1.2)
    assert finding.observed == pytest.approx(ratio, rel=0.01)
    assert verdict.recordable is (status == "passed")


@pytest.mark.parametrize(("call_s", "told"), ((14e-6, True), (14e-3, False)))
def test_a_short_call_on_a_processor_is_told_what_it_pays_for(call_s: float, *, told: bool) -> None:
    seen = make_speed(
        clock="perf_counter",
        eager_s=(call_s / 2,) * 40,
        compiled_s=(call_s,) * 40,
    )
    finding = finding_of(verdict_of(speed=seen), "speedup")
    assert finding.status == "failed"
    assert ("at 14 us a call, the guards before compiled code" in finding.remedy) is told


def test_the_limit_itself_passes_and_the_next_number_above_it_fails() -> None:
    measured = verdict_of(min_speedup=None).speed
    assert measured is not None
    limit = measured.speedup_low
    assert limit == measured.speedup_high
    assert finding_of(verdict_of(min_speedup=limit), "speedup").status == "passed"
    above = math.nextafter(limit, math.inf)
    assert finding_of(verdict_of(min_speedup=above), "speedup").status == "failed"


def test_an_interval_that_ends_at_the_limit_is_inconclusive() -> None:
    measured = verdict_of(speed=make_speed(1.3, 0.05), min_speedup=None).speed
    assert measured is not None
    verdict = verdict_of(speed=make_speed(1.3, 0.05), min_speedup=measured.speedup_high)
    assert finding_of(verdict, "speedup").status == "inconclusive"


def test_a_quieter_machine_is_no_remedy_for_a_slow_call() -> None:
    assert finding_of(verdict_of(speed=make_speed(1.0)), "speedup").remedy == ""
    assert finding_of(verdict_of(), "speedup").remedy == ""


def test_a_noisy_machine_does_not_fail_the_test() -> None:
    verdict = verdict_of(speed=make_speed(1.2, 0.05))
    assert (verdict.outcome, verdict.fails) == ("inconclusive", False)
    assert "max_time_s" in finding_of(verdict, "speedup").remedy


def test_digits_tell_a_number_from_its_limit() -> None:
    finding = finding_of(verdict_of(speed=make_speed(1.199)), "speedup")
    assert finding.status == "failed"
    assert finding.message == "1.199x [1.199, 1.199], limit 1.200x"


UNJUDGED: tuple[tuple[SpeedObservation | NotObserved, str], ...] = (
    (NotObserved(reason="the target draws random numbers"), "the target draws random numbers"),
    (make_speed(void="a recompile while sampling"), "the samples don't count: a recompile"),
    (make_speed(eager_s=(1.3,) * 3, compiled_s=(1.0,) * 3), "3 pairs of samples give no interval"),
    (make_speed(eager_s=(), compiled_s=()), "0 pairs of samples give no interval"),
    (make_speed(eager_s=(math.nan,) * 40), "a sample is no finite time above 0"),
    (make_speed(eager_s=(math.inf,) * 40), "a sample is no finite time above 0"),
    (make_speed(compiled_s=(0.0,) * 40), "a sample is no finite time above 0"),
)


@pytest.mark.parametrize(("speed", "message"), UNJUDGED)
def test_a_speedup_limit_that_could_not_be_judged_never_passes(
    speed: SpeedObservation | NotObserved, message: str
) -> None:
    verdict = verdict_of(speed=speed)
    finding = finding_of(verdict, "speedup")
    assert finding.status == "inconclusive"
    assert finding.message.startswith(message)
    assert (verdict.speed, verdict.recordable) == (None, False)


@pytest.mark.parametrize(("speed", "message"), UNJUDGED)
def test_without_a_limit_a_missing_speedup_is_told_and_facts_may_be_recorded(
    speed: SpeedObservation | NotObserved, message: str
) -> None:
    verdict = verdict_of(speed=speed, min_speedup=None)
    finding = finding_of(verdict, "speedup")
    assert finding.status == "not_checked"
    assert finding.message.startswith(message)
    assert (verdict.speed, verdict.recordable) == (None, True)


def test_without_a_limit_the_speedup_is_shown() -> None:
    finding = finding_of(verdict_of(min_speedup=None), "speedup")
    assert (finding.status, finding.message) == ("passed", "1.30x [1.30, 1.30], no limit")


def test_timing_that_is_off_leaves_a_limit_visibly_unchecked() -> None:
    speed = NotObserved(reason="not timed")
    limited = finding_of(verdict_of(speed=speed, untimed=UNTIMED), "speedup")
    assert (limited.status, limited.message) == ("not_checked", UNTIMED)
    unlimited = verdict_of(speed=speed, untimed=UNTIMED, min_speedup=None)
    assert "speedup" not in statuses_of(unlimited)
    assert unlimited.recordable


def test_evidence_gives_times_pairs_and_the_device_clock() -> None:
    speed = make_speed(1.04, device=1.61, notes=("clocks were throttled",))
    finding = finding_of(verdict_of(speed=speed), "speedup")
    assert finding.evidence == (
        "  eager 1.040 ms, compiled 1.000 ms, 40 pairs; device time alone: 1.61x",
        "  clocks were throttled",
    )


@pytest.mark.parametrize(
    ("arguments", "device", "remedy"),
    (
        (
            CompileArguments(),
            1.61,
            'the call is bound by launches: try mode="reduce-overhead"',
        ),
        (
            CompileArguments(mode="reduce-overhead"),
            1.61,
            (
                "the call is bound by launches: time a larger batch, "
                "or compile more of the code around it"
            ),
        ),
        (CompileArguments(), 1.04, ""),
        (CompileArguments(), 0.9, ""),
    ),
)
def test_the_remedy_of_a_call_bound_by_launches(
    arguments: CompileArguments, device: float, remedy: str
) -> None:
    speed = make_speed(1.04, device=device)
    verdict = verdict_of(speed=speed, arguments=arguments)
    assert finding_of(verdict, "speedup").remedy == remedy
    assert verdict.device_speed is not None


# --- baseline: facts -------------------------------------------------------------------------


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


# --- baseline: speedup -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "spread", "status"),
    ((1.79, 0.0, "failed"), (1.81, 0.0, "passed"), (1.75, 0.1, "passed"), (2.5, 0.0, "passed")),
)
def test_a_speedup_fails_beyond_noise_threshold_and_interval(
    ratio: float, spread: float, status: str
) -> None:
    baseline = make_baseline(timing=make_timing(2.0))
    verdict = verdict_of(speed=make_speed(ratio, spread), baseline=baseline)
    finding = finding_of(verdict, "baseline.speedup")
    assert (finding.status, finding.baseline) == (status, 2.0)
    assert finding.observed == pytest.approx(ratio, rel=1e-2)
    assert (COMMAND in finding.remedy) is (status == "failed" or ratio > 2.2)


@pytest.mark.parametrize(("seconds", "status"), (((1.0), "failed"), ((0.05), "passed")))
def test_short_calls_get_three_times_the_noise_threshold(seconds: float, status: str) -> None:
    seen = make_speed(1.3)
    scaled = msgspec.structs.replace(
        seen,
        eager_s=tuple(seconds * s for s in seen.eager_s),
        compiled_s=tuple(seconds * s for s in seen.compiled_s),
    )
    verdict = verdict_of(speed=scaled, baseline=make_baseline(timing=make_timing(1.6)))
    assert finding_of(verdict, "baseline.speedup").status == status


@pytest.mark.parametrize(("now", "failed"), ((2.0, False), (1.85, False), (1.7, True)))
def test_a_loss_on_the_device_clock_fails_though_the_wall_clock_hides_it(
    *, now: float, failed: bool
) -> None:
    stored = make_timing(1.3, device_speedup=2.0)
    verdict = verdict_of(speed=make_speed(1.3, device=now), baseline=make_baseline(timing=stored))
    found = [f for f in verdict.findings if f.metric == "baseline.device_speedup"]
    assert bool(found) is failed
    assert (verdict.outcome == "failed") is failed


@pytest.mark.parametrize(
    "changes", ({"backend": "cudagraphs"}, {"mode": "max-autotune"}, {"clock": "device"})
)
def test_a_speedup_of_another_way_to_compile_is_not_compared(changes: dict[str, str]) -> None:
    baseline = make_baseline(timing=make_timing(9.0, **changes))
    finding = finding_of(verdict_of(baseline=baseline), "baseline.speedup")
    assert finding.status == "not_checked"
    assert finding.message.startswith("recorded with backend ")


def test_a_stored_speedup_is_not_forgotten_when_nothing_is_timed() -> None:
    speed = NotObserved(reason="not timed")
    of_eager = "backend aot_eager runs eager kernels; its speed says nothing"
    untimed = finding_of(verdict_of(speed=speed, untimed=of_eager), "baseline.speedup")
    assert (untimed.status, untimed.message) == ("not_checked", of_eager)
    missing = finding_of(verdict_of(speed=speed, min_speedup=None), "baseline.speedup")
    assert missing.status == "not_checked"


def test_strictness_does_not_ask_for_the_timing_that_was_switched_off() -> None:
    speed = NotObserved(reason="not timed")
    off = verdict_of(speed=speed, untimed=UNTIMED, min_speedup=None, strict=True)
    assert not [f for f in off.findings if f.metric == "baseline.speedup"]
    assert off.outcome == "passed"


def test_a_missing_timing_beside_facts_is_visible() -> None:
    baseline = make_baseline(timing=None, timing_note="none for NVIDIA H200, torch 2.13")
    finding = finding_of(verdict_of(baseline=baseline), "baseline.speedup")
    assert finding.status == "not_checked"
    assert finding.message.startswith("none for NVIDIA H200, torch 2.13; record with")
    untimed = verdict_of(baseline=baseline, untimed=UNTIMED, min_speedup=None)
    assert "baseline.speedup" not in statuses_of(untimed)


# --- update mode and recording ---------------------------------------------------------------


def test_update_mode_compares_nothing_and_says_what_it_will_do() -> None:
    baseline = make_baseline(facts=make_facts(graphs=0), timing=make_timing(9.0))
    verdict = verdict_of(baseline=baseline, update_baseline="all")
    finding = finding_of(verdict, "baseline")
    assert (finding.status, finding.message) == ("passed", "will be recorded")
    assert not [m for m in statuses_of(verdict) if m.startswith("baseline.")]
    assert (verdict.outcome, verdict.recordable) == ("passed", True)


@pytest.mark.parametrize(
    "changes",
    (
        {"compilation": make_compilation(break_sites=(make_site(),))},
        {"compilation": make_compilation(fallbacks=(make_fallback(),))},
        {"parity": make_parity(calls_compared=2)},
        {"parity": make_parity(mismatches=(make_mismatch(),))},
        {"speed": make_speed(1.2, 0.05)},
        {"speed": make_speed(1.0)},
        {"environment": None},
    ),
)
def test_only_a_fully_passing_check_is_recorded(changes: dict[str, Any]) -> None:
    verdict = verdict_of(update_baseline="all", **changes)
    assert not verdict.recordable
    finding = finding_of(verdict, "baseline")
    assert finding.status == "not_checked"
    assert finding.message.startswith("not recorded")


# --- nothing green that measured nothing -----------------------------------------------------

COMPILE_FAULTS: tuple[dict[str, Any], ...] = (
    {"calls": 0},
    {"calls": 4},
    {"graphs": 0},
    {"ops": 0},
    {"error": ""},
    {"limit_hit": True},
    {"unreliable": ("no",)},
    {"fallbacks": (make_fallback(),)},
    {"fallbacks": (make_fallback(kind="nothing_compiled"),)},
    {"break_sites": (make_site(),)},
    {"recompiles": (make_recompile(),)},
)
PARITY_FAULTS: tuple[dict[str, Any], ...] = (
    {"calls": 4},
    {"calls_compared": 0},
    {"calls_compared": 2},
    {"leaves_compared": 0},
    {"mismatches": (make_mismatch(),)},
    {"unchecked": ("no",)},
)


def at_most_two(faults: tuple[dict[str, Any], ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Combine faults, none of them most of the time."""
    some = st.lists(st.sampled_from(faults), min_size=1, max_size=2)
    return st.one_of(
        st.just({}), some.map(lambda chosen: {k: v for fault in chosen for k, v in fault.items()})
    )


NOTHING = NotObserved(reason="no")
COMPILATIONS = st.one_of(
    at_most_two(COMPILE_FAULTS).map(lambda faults: make_compilation(**faults)), st.just(NOTHING)
)
PARITIES = st.one_of(
    at_most_two(PARITY_FAULTS).map(lambda faults: make_parity(**faults)), st.just(NOTHING)
)
SPEEDS = st.sampled_from((make_speed(), make_speed(1.0), make_speed(void="no"), NOTHING))
LIMIT = st.sampled_from((None, 0))


@settings(max_examples=300, deadline=None)
@given(
    compilation=COMPILATIONS,
    parity=PARITIES,
    speed=SPEEDS,
    limit=LIMIT,
    update=st.booleans(),
)
def test_a_green_verdict_has_compiled_compared_and_timed(
    *,
    compilation: CompileObservation | NotObserved,
    parity: ParityObservation | NotObserved,
    speed: SpeedObservation | NotObserved,
    limit: Literal[0] | None,
    update: bool,
) -> None:
    verdict = verdict_of(
        compilation=compilation,
        parity=parity,
        speed=speed,
        max_graph_breaks=limit,
        max_recompiles=limit,
        update_baseline="all" if update else None,
    )
    if verdict.outcome != "passed":
        assert not (verdict.recordable and update)
        return
    assert isinstance(compilation, CompileObservation)
    assert min(compilation.calls, compilation.graphs, compilation.ops) > 0
    assert compilation.error is None
    assert not (compilation.limit_hit)
    assert not (compilation.fallbacks)
    assert not (compilation.unreliable)
    assert isinstance(parity, ParityObservation)
    assert parity.calls_compared >= compilation.calls
    assert parity.leaves_compared > 0
    assert not parity.mismatches
    assert verdict.speed is not None
    assert verdict.speed.speedup_low >= 1.2


# --- kernels and CUDA graphs ------------------------------------------------------------------


def cudagraphs(compilation: CompileObservation, **limits: Any) -> Finding:
    arguments = CompileArguments(mode="reduce-overhead")
    verdict = verdict_of(compilation=compilation, arguments=arguments, **limits)
    return finding_of(verdict, "cudagraph_skips")


def test_more_kernels_than_allowed_fail_and_are_named() -> None:
    seen = make_compilation(kernels=3, kernel_names=("triton_a_0", "triton_b_1", "triton_c_2"))
    found = finding_of(verdict_of(compilation=seen, max_kernels=2), "kernels")
    assert (found.status, found.observed, found.limit) == ("failed", 3, 2)
    assert "triton_c_2" in found.evidence


def test_a_skipped_cuda_graph_fails_its_limit_and_is_told_without_one() -> None:
    seen = make_compilation(cudagraph_skips=("mutated inputs", "mutated inputs"))
    assert cudagraphs(seen, max_cudagraph_skips=1).status == "failed"
    assert cudagraphs(seen, max_cudagraph_skips=2).status == "passed"
    told = cudagraphs(seen)
    assert told.status == "inconclusive"
    assert told.message == "reduce-overhead promises CUDA graphs, they were skipped 2 times"
    assert told.evidence == ("mutated inputs",)


@pytest.mark.parametrize("limits", ({}, {"max_cudagraph_skips": 0}))
def test_a_promise_that_no_call_could_keep_is_not_checked(limits: dict[str, Any]) -> None:
    found = cudagraphs(make_compilation(calls=1), **limits)
    assert found.status == "not_checked"
    assert "no CUDA graph was recorded or skipped in 1 call" in found.message


def test_recordings_are_shown() -> None:
    seen = make_compilation(cudagraph_recordings=3, cudagraph_rerecordings=2)
    found = cudagraphs(seen)
    assert found.status == "passed"
    assert found.evidence == (
        "3 CUDA graphs recorded, 2 of them again, for inputs of another size or at another address",
    )


def test_no_mode_promises_cuda_graphs_by_default() -> None:
    assert "cudagraph_skips" not in statuses_of(verdict_of())
