"""Judges a check that is fine in all that a test does not change."""

from __future__ import annotations

from typing import Any

import msgspec

from pytest_compileguard.baseline.look_up import Baseline
from pytest_compileguard.environment import Environment
from pytest_compileguard.finding import Finding, Verdict
from pytest_compileguard.observation import (
    CompileObservation,
    NotObserved,
    Observation,
    ParityObservation,
    SpeedObservation,
)
from pytest_compileguard.verdict import judge
from tests.records import (
    NODEID,
    make_compilation,
    make_environment,
    make_facts,
    make_parity,
    make_plan,
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
