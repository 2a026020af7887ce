"""Judges an observation against limits and baseline. Pure: no torch, no files, no clock.

Each number has a room of its own (``compile_findings`` and so on); here stands what
follows from all of them: the outcome, and whether it may become a baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pytest_compileguard import speed
from pytest_compileguard.finding import Finding, Speed, Status, Verdict
from pytest_compileguard.findings.baseline import baseline_findings, update_finding
from pytest_compileguard.findings.baseline_advice import not_in_vain
from pytest_compileguard.findings.code_change import explained, generated_code, limits_explained
from pytest_compileguard.findings.compilation import compile_findings, compile_problem
from pytest_compileguard.findings.cost import cost_findings
from pytest_compileguard.findings.parity import parity_findings
from pytest_compileguard.findings.speed import speed_findings
from pytest_compileguard.observation import (
    Clock,
    CompileObservation,
    NotObserved,
    Observation,
    SpeedObservation,
)

if TYPE_CHECKING:
    from pytest_compileguard.baseline.look_up import Baseline
    from pytest_compileguard.environment import Environment
    from pytest_compileguard.plan import Plan


def judge(
    plan: Plan,
    observation: Observation,
    environment: Environment | None,
    baseline: Baseline | NotObserved,
) -> Verdict:
    """Judge one check.

    Args:
        plan: What was wanted, with all limits.
        observation: What was seen.
        environment: Where; ``None`` if nothing ran that could tell.
        baseline: What is stored, or why that is not known. Unused where all is recorded.
    """
    wall, device = _speed(plan, observation, "wall"), _speed(plan, observation, "device")
    gated = wall if plan.clock == "wall" else device
    compiled = compile_problem(observation.compile) is None
    findings = (
        *compile_findings(plan, observation.compile),
        *_compared(plan, observation, compiled=compiled),
        *speed_findings(
            plan,
            observation.speed,
            wall=wall,
            device=device,
            launches=observation.launches,
            memory=observation.memory,
        ),
        *cost_findings(plan, observation, compiled=compiled),
    )
    code = generated_code(plan, observation.compile, baseline)
    recordable = environment is not None and _is_recordable(observation, findings)
    if plan.update_baseline == "all":
        compared: tuple[Finding, ...] = (update_finding(recordable=recordable),)
    else:
        compared = baseline_findings(
            plan, observation, gated, device, baseline, recordable=recordable
        )
        compared = explained(compared, code, baseline, environment)
        findings = limits_explained(findings, compared, code, baseline, environment)
    told = not_in_vain((*findings, *compared))
    judged = tuple(_or_declined(finding, plan) for finding in told)
    return Verdict(
        nodeid=plan.nodeid,
        name=plan.name,
        backend=plan.arguments.backend_name,
        mode=plan.arguments.mode,
        outcome=_outcome(judged),
        strict=plan.strict,
        findings=judged,
        observation=observation,
        speed=gated,
        device_speed=device,
        environment=environment,
        recordable=recordable,
        limits=plan.limits,
        code=code,
    )


def _or_declined(finding: Finding, plan: Plan) -> Finding:
    if finding.status == "not_checked" and finding.metric in plan.declined:
        return msgspec.structs.replace(finding, declined=True)
    return finding


def _compared(plan: Plan, observation: Observation, *, compiled: bool) -> tuple[Finding, ...]:
    if plan.watched:  # there was no other side
        return ()
    return parity_findings(observation.parity, observation.compile, compiled=compiled)


def _speed(plan: Plan, observation: Observation, clock: Clock) -> Speed | None:
    """Derive the speed on one clock; ``None``: not timed, void, or not to be derived."""
    seen = observation.speed
    if plan.untimed is not None or not isinstance(seen, SpeedObservation):
        return None
    try:
        return speed.speed(seen, clock)
    except ValueError:  # a sample that is no time; `speed_findings` says so
        return None


def _outcome(findings: Sequence[Finding]) -> Status:
    statuses = {finding.status for finding in findings}
    order: tuple[Status, ...] = ("failed", "inconclusive", "passed")
    return next((status for status in order if status in statuses), "not_checked")


def _is_recordable(observation: Observation, findings: Sequence[Finding]) -> bool:
    """Whether all is known and all is well, so that later runs may be held to it."""
    seen = observation.compile
    reliable = isinstance(seen, CompileObservation) and not seen.unreliable
    return reliable and all(_may_be_recorded(finding) for finding in findings)


_MEASURED = ("compile_time", "peak_memory", "kernels_per_call", "speedup")
"""Not checked where nobody asked or a machine has no such number; facts don't depend on them."""


def _may_be_recorded(finding: Finding) -> bool:
    # What is shared with the test, a lock for instance, makes no fact less true.
    unneeded = finding.metric in _MEASURED or finding.metric == "isolation"
    # A mode may promise CUDA graphs that this machine or backend has none of.
    unneeded = unneeded or (finding.metric == "cudagraph_skips" and finding.limit is None)
    return finding.status == "passed" or (finding.status == "not_checked" and unneeded)
