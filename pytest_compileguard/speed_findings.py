"""Judges the speedup: three answers, as noise may hide which side of the limit it is on."""

from __future__ import annotations

import math

import msgspec

from pytest_compileguard.cost_findings import launches_text
from pytest_compileguard.finding import Finding, Speed, Status
from pytest_compileguard.observation import LaunchObservation, NotObserved, SpeedObservation
from pytest_compileguard.plan import CompileArguments, Plan
from pytest_compileguard.wording import counted, factor_digits, factor_text

_LAUNCH_BOUND = "the call is bound by launches: "
_QUIETER = "raise max_time_s, or time on a quieter machine"


def speed_findings(
    plan: Plan,
    seen: SpeedObservation | NotObserved,
    *,
    wall: Speed | None,
    device: Speed | None,
    launches: LaunchObservation | NotObserved | None = None,
) -> tuple[Finding, ...]:
    """Judge the speedup on the wall clock; a limit that could not be judged never passes."""
    limit = plan.min_speedup
    if plan.untimed is not None:
        return () if limit is None else (_without_number("not_checked", plan.untimed, limit),)
    # Where nothing was promised, nothing is unclear: the number is only missing.
    status: Status = "not_checked" if limit is None else "inconclusive"
    if isinstance(seen, NotObserved):
        return (_without_number(status, seen.reason, limit),)
    if seen.void is not None:
        return (_without_number(status, f"the samples don't count: {seen.void}", limit),)
    if wall is None:
        return (_without_number(status, _why_undefined(seen), limit),)
    finding = _judged(plan, seen, wall, device)
    return (_with_launches(finding, launches),)


def _with_launches(finding: Finding, seen: LaunchObservation | NotObserved | None) -> Finding:
    """Show how many kernels there are beside how long they take."""
    if not isinstance(seen, LaunchObservation):
        return finding
    evidence = (*finding.evidence, f"  {launches_text(seen)}")
    return msgspec.structs.replace(finding, evidence=evidence)


def _why_undefined(seen: SpeedObservation) -> str:
    if all(0 < sample_s < math.inf for sample_s in (*seen.eager_s, *seen.compiled_s)):
        return f"{counted(len(seen.eager_s), 'pair')} of samples give no interval"
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
    remedy = _QUIETER if status == "inconclusive" else ""
    return Finding(metric="speedup", status=status, message=reason, limit=limit, remedy=remedy)


def _judged(plan: Plan, seen: SpeedObservation, wall: Speed, device: Speed | None) -> Finding:
    limit = plan.min_speedup
    status = _status(wall, limit)
    remedy = _QUIETER if status == "inconclusive" else ""
    if status == "failed" and device is not None and _gaps_cost(wall, device):
        remedy = _launch_remedy(plan.arguments)
    return Finding(
        metric="speedup",
        status=status,
        message=_sentence(status, wall, limit),
        observed=wall.speedup,
        limit=limit,
        evidence=_evidence(seen, wall, device),
        remedy=remedy,
    )


def _sentence(status: Status, wall: Speed, limit: float | None) -> str:
    numbers = speed_text(wall, limit)
    if limit is None:
        return f"{numbers}, no limit"
    digits = speed_digits(wall, limit)
    if status == "inconclusive":
        return f"{numbers}: the limit {factor_text(limit, digits)} lies inside"
    return f"{numbers}, limit {factor_text(limit, digits)}"


def _status(wall: Speed, limit: float | None) -> Status:
    if limit is None or wall.speedup_low >= limit:
        return "passed"
    return "failed" if wall.speedup_high < limit else "inconclusive"


def _evidence(seen: SpeedObservation, wall: Speed, device: Speed | None) -> tuple[str, ...]:
    times = (
        f"  eager {wall.eager_ms:.3f} ms, compiled {wall.compiled_ms:.3f} ms, {wall.pairs} pairs"
    )
    if device is not None:
        times += f"; device time alone: {factor_text(device.speedup)}"
    return (times, *(f"  {note}" for note in seen.notes))


def _gaps_cost(wall: Speed, device: Speed) -> bool:
    """Whether the kernels are faster by more than the call is, beyond noise."""
    return device.speedup_low > max(wall.speedup_high, 1.0)


def _launch_remedy(arguments: CompileArguments) -> str:
    graphs_unused = arguments.mode in (None, "default") and arguments.options is None
    if arguments.backend_name == "inductor" and graphs_unused:
        return f'{_LAUNCH_BOUND}try mode="reduce-overhead"'
    return f"{_LAUNCH_BOUND}time a larger batch, or compile more of the code around it"
