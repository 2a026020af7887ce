"""Judges the speedup against what is stored of an earlier run on the same device model."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pytest_compileguard.baseline.entries import TimingEntry, printable
from pytest_compileguard.baseline.storable import inputs_of
from pytest_compileguard.finding import Finding, Speed
from pytest_compileguard.findings.baseline_advice import (
    Moved,
    compared,
    incomparable,
    missing,
    other_inputs,
    unchecked,
    update_command,
)
from pytest_compileguard.findings.speed import QUIETER, speed_text
from pytest_compileguard.findings.wording import factor_text
from pytest_compileguard.metrics import DEVICE_SPEEDUP, SPEEDUP, TIMINGS, Metric, noise_threshold
from pytest_compileguard.observation import CompileObservation
from pytest_compileguard.plan import TIMING_OFF, Plan

_WIDEST = 2.0
"""Highest / lowest end of an interval from which on it proves nothing about a baseline that lies in
it, or less than another such step above it: half the speedup could be lost unseen."""
_OTHER_PACE = 2.5
"""Change of eager's own time from which on it may explain a loss up to its own size; in slow and
fast phases of one machine, 2.3 was seen."""
_TIMES = tuple(metric for metric in TIMINGS if metric.policy == "show")


def timing_findings(  # noqa: PLR0913  # each is a fact of the check
    plan: Plan,
    seen: CompileObservation,
    speeds: tuple[Speed | None, Speed | None],
    stored: TimingEntry | None,
    note: str,
    *,
    recordable: bool,
    disturbed: str = "",
) -> tuple[Finding, ...]:
    """Compare on both clocks, as far as this run and the stored one were made alike.

    Args:
        plan: What was wanted.
        seen: What was compiled, with its inputs.
        speeds: On the wall clock, and on the device clock.
        stored: What is stored for this device model and torch.
        note: Why there is nothing.
        recordable: Whether this result could be recorded.
        disturbed: What disturbed the samples: then what is worse may not be.
    """
    speed, device = speeds
    metric = f"baseline.{SPEEDUP.name}"
    if stored is None:
        # Without a number the finding about the speedup says so; nothing is missing here.
        missed = missing(plan, metric, note, recordable=recordable)
        return () if speed is None else (missed,)
    if speed is None and plan.untimed == TIMING_OFF:
        return ()  # as the user asked for, which is nothing that strictness is about
    if speed is None:
        return (unchecked(metric, plan.untimed or "no speedup was measured"),)
    if (printable(plan.arguments.backend_name), plan.arguments.mode, speed.clock) != (
        stored.backend,
        stored.mode,
        stored.clock,
    ):
        mode = f", mode {stored.mode}" if stored.mode else ""
        message = f"recorded with backend {stored.backend}{mode}, {stored.clock} clock"
        return (incomparable(plan, metric, message),)
    if message := other_inputs(stored.inputs, inputs_of(seen.inputs)):
        return (incomparable(plan, metric, message),)
    wall = _wall(plan, speed, stored)
    doubt = _Doubt(f"disturbed: {disturbed}") if disturbed else None
    # The clock of the device hides what makes the other one noisy, so only a disturbance counts.
    devices = tuple(_doubted(finding, doubt) for finding in _device(plan, device, stored))
    return (_doubted(wall, doubt or _other_machine(plan, speed, stored)), *devices)


class _Doubt(NamedTuple):
    """Why a loss proves nothing, and what to do."""

    reason: str
    remedy: str = QUIETER


def _other_machine(plan: Plan, speed: Speed, stored: TimingEntry) -> _Doubt | None:
    """Say why two ratios tell nothing of each other, though the device model is the same."""
    width = _width(speed)
    if width > _WIDEST and speed.speedup_high * width > stored.speedup:
        return _Doubt(f"its interval spans a factor of {width:.3g}")
    moved = max(speed.eager_ms / stored.eager_ms, stored.eager_ms / speed.eager_ms)
    if moved < _OTHER_PACE or speed.speedup_high * moved < stored.speedup:
        return None
    return _Doubt(
        f"eager itself took {stored.eager_ms:.4g} ms when it was recorded, {speed.eager_ms:.4g} ms "
        "now: one of the two machines was busy, or the eager code is another one",
        f"{QUIETER}; if the eager code was changed, record it: {update_command(plan)}",
    )


def _width(speed: Speed) -> float:
    return speed.speedup_high / speed.speedup_low


def _doubted(finding: Finding, doubt: _Doubt | None) -> Finding:
    """Take back that a speedup is worse, as something else may have made it so."""
    observed, stored = finding.observed, finding.baseline
    worse = isinstance(observed, float) and isinstance(stored, float) and observed < stored
    # Better fails too, if it is to be recorded.
    if doubt is None or finding.status != "failed" or not worse:
        return finding
    message = f"{finding.message}: worse, but {doubt.reason}"
    return msgspec.structs.replace(
        finding, status="inconclusive", message=message, remedy=doubt.remedy
    )


def _wall(plan: Plan, speed: Speed, stored: TimingEntry) -> Finding:
    threshold = noise_threshold(plan.noise_threshold, speed)
    metric = SPEEDUP.tolerating(threshold)
    message = f"{speed_text(speed)}, baseline {factor_text(stored.speedup)}"
    change = metric.change(speed.speedup_low, speed.speedup_high, stored.speedup)
    told = _told_times(plan, speed, stored)
    if change == "same":
        return _unchanged(metric, speed, stored, message, told)
    beyond = f"beyond the noise threshold of {100 * threshold:g} %"
    found = compared(
        plan,
        Moved(metric=metric, change=change, observed=speed.speedup, stored=stored.speedup),
        message=f"{message}: tighten" if change == "better" else message,
        evidence=(beyond, *told),
    )
    assert found is not None, "the speedup is gated"  # noqa: S101
    return found


def _unchanged(
    metric: Metric, speed: Speed, stored: TimingEntry, message: str, told: tuple[str, ...]
) -> Finding:
    """Pass a speedup whose interval holds the stored one, if it is narrow enough to say so."""
    width, low = _width(speed), speed.speedup_low
    wide = width > _WIDEST and metric.change(low, low, stored.speedup) == "worse"
    unseen = f": its interval spans a factor of {width:.3g}, so a loss would not be seen"
    return Finding(
        metric=f"baseline.{SPEEDUP.name}",
        status="inconclusive" if wide else "passed",
        message=message + unseen if wide else message,
        observed=speed.speedup,
        baseline=stored.speedup,
        evidence=told,
        remedy=QUIETER if wide else "",
    )


def _device(plan: Plan, speed: Speed | None, stored: TimingEntry) -> tuple[Finding, ...]:
    """Compare on the device clock too, where the kernels alone are seen."""
    if speed is None or stored.device_speedup is None or plan.clock == "device":
        return ()  # where it is the gated clock, it was compared as such
    metric = DEVICE_SPEEDUP.tolerating(plan.noise_threshold)
    change = metric.change(speed.speedup_low, speed.speedup_high, stored.device_speedup)
    if change != "worse":
        return ()
    threshold = f"noise threshold {100 * plan.noise_threshold:g} %"
    stored_speedup = stored.device_speedup
    moved = Moved(metric=metric, change=change, observed=speed.speedup, stored=stored_speedup)
    found = compared(
        plan,
        moved,
        message=f"{speed_text(speed)}, baseline {factor_text(stored.device_speedup)}",
        evidence=(f"device time alone, {threshold}",),
    )
    return () if found is None else (found,)


def _told_times(plan: Plan, speed: Speed, stored: TimingEntry) -> tuple[str, ...]:
    """Tell of absolute times that moved: they advise, they judge nothing."""
    told = []
    for metric in _TIMES:
        observed, expected = getattr(speed, metric.name), getattr(stored, metric.name)
        moved = metric.tolerating(plan.noise_threshold).change(observed, observed, expected)
        if moved != "same":
            told.append(f"{metric.label} {observed:.4g} ms, baseline {expected:.4g} ms")
    return tuple(told)
