"""Judging: the speedup against its limit."""

from __future__ import annotations

import math

import pytest

from pytest_compileguard.observation import (
    NotObserved,
    SpeedObservation,
)
from pytest_compileguard.plan import CompileArguments
from tests.judged import (
    UNTIMED,
    finding_of,
    statuses_of,
    verdict_of,
)
from tests.records import (
    make_speed,
)


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


@pytest.mark.parametrize(
    ("speed", "remedy"),
    (
        (NotObserved(reason="compiled raised OSError when it was called again: gone"), "setup="),
        (NotObserved(reason="the timed call runs no compiled code"), ""),
        (make_speed(void="compiled 2 time(s) while sampling"), ""),
        (make_speed(eager_s=(1.3,) * 3, compiled_s=(1.0,) * 3), "raise max_time_s"),
    ),
)
def test_nor_is_it_one_where_no_time_gives_a_number(
    speed: SpeedObservation | NotObserved, remedy: str
) -> None:
    finding = finding_of(verdict_of(speed=speed), "speedup")
    assert finding.status == "inconclusive"
    assert remedy in finding.remedy
    assert bool(remedy) is bool(finding.remedy)
    assert ("quieter" in finding.remedy) is ("max_time_s" in remedy)


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
