"""Judges the speedup: three answers, as noise may hide which side of the limit it is on."""

from __future__ import annotations

import math

import msgspec

from pytest_compileguard.finding import Finding, Speed, Status
from pytest_compileguard.findings.bottleneck import Bottleneck, bottleneck, launch_remedy, remedy
from pytest_compileguard.findings.cost import launches_text
from pytest_compileguard.findings.wording import counted, factor_digits, factor_text, first_of
from pytest_compileguard.observation import (
    Clock,
    LaunchObservation,
    MemoryObservation,
    NotObserved,
    SpeedObservation,
)
from pytest_compileguard.plan import Plan
from pytest_compileguard.timing.stats import Decision, side_of

_SHORT_CALL_MS = 0.1
_US_PER_MS = 1e3
QUIETER = "raise max_time_s, or time on a quieter machine"
"""What to do where the samples leave it open."""
_NO_INTERVAL = "of samples give no interval"
_AGAIN = "when it was called again"
_SET_UP = (
    "timing makes the last call again and again: mend what raises, or have setup= make anew what a "
    "call uses up"
)
_MEND_SETUP = (
    "mend what the test gives as setup=: it is called without arguments before each timed call, "
    "and returns None, or new arguments for the call: (args, kwargs)"
)


def speed_findings(
    plan: Plan,
    seen: SpeedObservation | NotObserved,
    *,
    wall: Speed | None,
    device: Speed | None,
    launches: LaunchObservation | NotObserved | None = None,
    memory: MemoryObservation | NotObserved | None = None,
) -> tuple[Finding, ...]:
    """Judge the speedup on the gated clock; a limit that could not be judged never passes."""
    limit = plan.min_speedup
    if plan.untimed is not None:
        return () if limit is None else (_without_number("not_checked", plan.untimed, limit),)
    # Where nothing was promised, nothing is unclear: the number is only missing.
    status: Status = "not_checked" if limit is None else "inconclusive"
    if isinstance(seen, NotObserved) and seen.in_the_test:
        finding = _without_number("failed", seen.reason, limit)
        return (msgspec.structs.replace(finding, remedy=_MEND_SETUP),)
    if isinstance(seen, NotObserved):
        # Nor is it where this machine has no such number.
        missing: Status = "not_checked" if seen.unavailable else status
        return (_without_number(missing, seen.reason, limit),)
    if seen.void is not None:
        return (_without_number(status, f"the samples don't count: {seen.void}", limit),)
    gated, other = (wall, device) if plan.clock == "wall" else (device, wall)
    if gated is None:
        return (_undefined(status, seen, plan),)
    finding = _judged(plan, seen, gated, other)
    finding = _with_launches(finding, launches)
    return (_explained(finding, bottleneck(wall, device, memory), plan),)


def _explained(finding: Finding, found: Bottleneck | None, plan: Plan) -> Finding:
    """Say what bounds the call, and what helps if that is asked for."""
    if found is None:
        return finding
    advice = finding.remedy
    if finding.status == "failed" and not advice:
        advice = remedy(found, plan.arguments)
    evidence = (*finding.evidence, f"  {found.text}")
    return msgspec.structs.replace(finding, evidence=evidence, remedy=advice)


def _with_launches(finding: Finding, seen: LaunchObservation | NotObserved | None) -> Finding:
    """Show how many kernels there are beside how long they take."""
    if not isinstance(seen, LaunchObservation):
        return finding
    evidence = (*finding.evidence, f"  {launches_text(seen)}")
    return msgspec.structs.replace(finding, evidence=evidence)


def _why_undefined(seen: SpeedObservation, clock: Clock) -> str:
    device = (*seen.device_eager_s, *seen.device_compiled_s)
    samples_s = device if clock == "device" else (*seen.eager_s, *seen.compiled_s)
    if clock == "device" and not samples_s:
        return next((note for note in seen.notes if "device clock" in note), "no device clock")
    if all(0 < sample_s < math.inf for sample_s in samples_s):
        return f"{counted(len(samples_s) // 2, 'pair')} {_NO_INTERVAL}"
    return "a sample is no finite time above 0"


def speed_text(speed: Speed, limit: float | None = None) -> str:
    """Say a speedup with its interval: ``1.31x [1.29, 1.33]``."""
    digits = speed_digits(speed, limit)
    return f"{factor_text(speed.speedup, digits)} {interval_text(speed, limit)}"


def interval_text(speed: Speed, limit: float | None = None) -> str:
    """Say the interval alone: ``[1.29, 1.33]``."""
    digits = speed_digits(speed, limit)
    return f"[{speed.speedup_low:.{digits}f}, {speed.speedup_high:.{digits}f}]"


def speed_digits(speed: Speed, limit: float | None) -> int:
    """Find how many digits keep the ends of the interval apart from the limit."""
    return factor_digits(limit, speed.speedup_low, speed.speedup_high)


def _without_number(status: Status, reason: str, limit: float | None) -> Finding:
    """Tell that there is no number; neither time nor quiet gives one to a side that raises."""
    again = status == "inconclusive" and _AGAIN in reason
    return Finding(
        metric="speedup",
        status=status,
        message=reason,
        limit=limit,
        remedy=_SET_UP if again else "",
    )


def _undefined(status: Status, seen: SpeedObservation, plan: Plan) -> Finding:
    """Tell why samples give no number; where they are too few, more of them do."""
    finding = _without_number(status, _why_undefined(seen, plan.clock), plan.min_speedup)
    few = status == "inconclusive" and finding.message.endswith(_NO_INTERVAL)
    return msgspec.structs.replace(finding, remedy=QUIETER) if few else finding


def _judged(plan: Plan, seen: SpeedObservation, gated: Speed, other: Speed | None) -> Finding:
    limit = plan.min_speedup
    status = _status(gated, limit)
    doubtful = status == "failed" and bool(seen.disturbed)
    if doubtful:
        # What slowed the GPU down may have met one side more than the other.
        status = "inconclusive"
    advice = QUIETER if status == "inconclusive" else ""
    if status == "failed" and other is not None and _gaps_cost(gated, other):
        advice = launch_remedy(plan.arguments)
    if status == "failed" and seen.clock == "perf_counter":
        advice = _entering_costs(gated)
    return Finding(
        metric="speedup",
        status=status,
        message=_disturbed(seen, gated, limit) if doubtful else _sentence(status, gated, limit),
        observed=gated.speedup,
        limit=limit,
        evidence=_evidence(seen, gated, other),
        remedy=advice,
    )


def _entering_costs(gated: Speed) -> str:
    """Say what a short call is made of: guards and wrappers stand before each compiled call."""
    if gated.compiled_ms > _SHORT_CALL_MS:
        return ""
    return (
        f"at {gated.compiled_ms * _US_PER_MS:.0f} us a call, the guards before compiled code may "
        "cost more than what it computes: time a larger input, or compile more of the code around"
    )


def _sentence(status: Status, speed: Speed, limit: float | None) -> str:
    numbers = speed_text(speed, limit)
    if limit is None:
        return f"{numbers}, no limit"
    digits = speed_digits(speed, limit)
    if status == "inconclusive":
        return f"{numbers}: the limit {factor_text(limit, digits)} lies inside"
    return f"{numbers}, limit {factor_text(limit, digits)}"


def _disturbed(seen: SpeedObservation, speed: Speed, limit: float | None) -> str:
    return f"{_sentence('failed', speed, limit)}: below, but disturbed: {disturbed_text(seen)}"


def disturbed_text(seen: SpeedObservation) -> str:
    """Say what disturbed the samples, and how often that was tried; empty: nothing did."""
    if not seen.disturbed:
        return ""
    tried = f", in {seen.attempts} attempts" if seen.attempts > 1 else ""
    return f"{' and '.join(seen.disturbed)}{tried}"


def _status(speed: Speed, limit: float | None) -> Status:
    if limit is None:
        return "passed"
    return _STATUSES[side_of(speed.speedup_low, speed.speedup_high, limit)]


_STATUSES: dict[Decision, Status] = {
    "above": "passed",
    "below": "failed",
    "undecided": "inconclusive",
}
_OTHER = {"device": "device time alone", "wall": "on the wall clock"}


def _evidence(seen: SpeedObservation, gated: Speed, other: Speed | None) -> tuple[str, ...]:
    times = (
        f"  eager {gated.eager_ms:.3f} ms, compiled {gated.compiled_ms:.3f} ms, {gated.pairs} pairs"
    )
    if other is not None:
        times += f"; {_OTHER[other.clock]}: {factor_text(other.speedup)}"
    return (times, *(f"  {note}" for note in (*_conditions(seen), *seen.notes)))


def _conditions(seen: SpeedObservation) -> tuple[str, ...]:
    """Say what was done between samples."""
    found = ["the L2 cache was flushed before each call"] if seen.cache == "cold" else []
    if text := disturbed_text(seen):
        found.append(f"disturbed: {text}")
    if seen.restored:
        found.append(f"restored before each block: {', '.join(first_of(seen.restored, 3))}")
    return tuple(found)


def _gaps_cost(gated: Speed, other: Speed) -> bool:
    """Whether the kernels are faster by more than the call is, beyond noise."""
    return gated.clock == "wall" and other.speedup_low > max(gated.speedup_high, 1.0)
