"""Judging: what holds for a verdict as a whole, and nothing green that measured nothing."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_compileguard.observation import (
    CompileObservation,
    NotObserved,
    Observation,
    ParityObservation,
    SpeedObservation,
)
from pytest_compileguard.options import Options
from pytest_compileguard.plan import Plan, make_plan
from pytest_compileguard.spec import CompileCheck
from pytest_compileguard.verdict import judge
from tests.judged import (
    ENVIRONMENT,
    UNTIMED,
    finding_of,
    make_baseline,
    statuses_of,
    verdict_of,
)
from tests.records import (
    NODEID,
    make_compilation,
    make_facts,
    make_fallback,
    make_mismatch,
    make_parity,
    make_recompile,
    make_site,
    make_speed,
    make_timing,
)

# --- the whole --------------------------------------------------------------------------------


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


# --- the trace --------------------------------------------------------------------------------


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


# --- update mode and recording ----------------------------------------------------------------


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


# --- nothing green that measured nothing ------------------------------------------------------

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


def test_strict_does_not_ask_for_what_the_options_switch_off() -> None:
    spec = CompileCheck(max_graph_breaks=0, min_speedup=1.2, max_kernels=3)
    off = make_plan_of(spec, Options(no_timing=True, backend="aot_eager", strict=True))
    nothing = NotObserved(reason=UNTIMED)
    seen = Observation(compile=make_compilation(), parity=make_parity(), speed=nothing)
    baseline = make_baseline(facts=make_facts(backend="aot_eager"))

    verdict = judge(off, seen, ENVIRONMENT, baseline)
    assert statuses_of(verdict)["speedup"] == statuses_of(verdict)["kernels"] == "not_checked"
    assert not verdict.fails

    by_the_test = make_plan_of(
        CompileCheck(max_kernels=3, backend="aot_eager"), Options(no_timing=True, strict=True)
    )
    assert judge(by_the_test, seen, ENVIRONMENT, baseline).fails


def make_plan_of(spec: CompileCheck, options: Options) -> Plan:
    return make_plan(spec, options, nodeid=NODEID, name="ToyModel")
