"""Judging: the speedup against what is stored."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from pytest_compileguard.baseline.entries import TimingEntry
from pytest_compileguard.finding import Finding, Speed
from pytest_compileguard.findings.baseline_speed import timing_findings
from pytest_compileguard.observation import (
    NotObserved,
)
from pytest_compileguard.options import Options
from pytest_compileguard.plan import make_plan
from pytest_compileguard.spec import CompileCheck
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
    make_speed,
    make_timing,
)


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


@pytest.mark.parametrize(
    ("speeds", "stored_ms", "said"),
    (
        ((0.11, 1.3, 16.1), 1.3, "worse, but its interval spans a factor of 146"),
        ((1.2, 1.3, 1.4), 147.8, "worse, but eager itself took 147.8 ms when it was recorded"),
        ((1.2, 1.3, 1.4), 1.5, ""),
        ((0.02, 0.03, 0.07), 1.3, ""),
        ((0.02, 0.03, 0.03), 5.2, ""),
    ),
)
def test_what_only_another_pace_explains_is_no_regression(
    speeds: tuple[float, float, float], stored_ms: float, said: str
) -> None:
    low, ratio, high = speeds
    measured = msgspec.structs.replace(speed(low, high), speedup=ratio)

    (finding,) = compared(measured, stored=make_timing(18.8, eager_ms=stored_ms))

    assert finding.status == ("inconclusive" if said else "failed")
    assert said in finding.message


@pytest.mark.parametrize(
    ("low", "high", "status"),
    (
        (0.8, 1.5, "passed"),
        (0.6, 1.8, "inconclusive"),
        (0.2, 20.0, "inconclusive"),
        (1.05, 20.0, "passed"),
    ),
)
def test_an_interval_that_could_hide_a_loss_of_half_passes_nothing(
    low: float, high: float, status: str
) -> None:
    (finding,) = compared(speed(low, high), stored=make_timing(1.1))

    assert finding.status == status
    assert ("a loss would not be seen" in finding.message) == (status == "inconclusive")
    assert bool(finding.remedy) == (status == "inconclusive")


def test_a_noisy_wall_clock_excuses_nothing_on_the_clock_of_the_device() -> None:
    found = compared(
        speed(0.9, 2.0), speed(1.49, 1.51, "device"), stored=make_timing(3.0, device_speedup=3.0)
    )

    assert [finding.status for finding in found] == ["inconclusive", "failed"]


def speed(low: float, high: float, clock: Literal["wall", "device"] = "wall") -> Speed:
    return Speed(
        clock=clock,
        speedup=(low * high) ** 0.5,
        speedup_low=low,
        speedup_high=high,
        confidence=0.99,
        eager_ms=1.3,
        compiled_ms=1.0,
        pairs=40,
    )


def compared(
    wall: Speed, device: Speed | None = None, *, stored: TimingEntry
) -> tuple[Finding, ...]:
    plan = make_plan(CompileCheck(), Options(), nodeid="t.py::t", name="t")
    speeds = (wall, device)
    return timing_findings(plan, make_compilation(), speeds, stored, "", recordable=True)
