"""Judges an observation against what is stored of an earlier run."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from pytest_compileguard.break_findings import site_lines
from pytest_compileguard.compile_findings import compile_problem
from pytest_compileguard.entries import FactsEntry, TimingEntry, printable
from pytest_compileguard.finding import Finding, Speed
from pytest_compileguard.metrics import FACTS, SPEEDUP, Metric, facts_of
from pytest_compileguard.observation import BreakSite, CompileObservation, NotObserved, Observation
from pytest_compileguard.plan import Plan
from pytest_compileguard.recompile_text import recompile_lines
from pytest_compileguard.speed_findings import speed_text
from pytest_compileguard.wording import counted, factor_text

if TYPE_CHECKING:
    from pytest_compileguard.baseline import Baseline

UPDATE = "--compileguard-update-baseline"
# A number that only one backend has says nothing about another one.
_OF_BACKEND = ("kernels",)
_BREAK_METRICS = ("graph_breaks", "break_events")
SHORT_CALL_MS = 1.0
"""Below this, what a call costs besides its kernels decides the wall clock."""
_SHORT_CALL_FACTOR = 3.0
_MOST_NOISE = 0.5
_STORED_SITE = re.compile(r"(?P<file>.*?):\d+ in (?P<rest>.*?)(?:, allowed)?")


def baseline_findings(
    plan: Plan,
    observation: Observation,
    speed: Speed | None,
    device_speed: Speed | None,
    baseline: Baseline | NotObserved,
) -> tuple[Finding, ...]:
    """Compare with the baseline, facts and timing apart; not in update mode."""
    seen = observation.compile
    if isinstance(seen, NotObserved) or compile_problem(seen) is not None:
        return (_unchecked("baseline", "nothing was compiled"),)
    if isinstance(baseline, NotObserved):
        return (_unchecked("baseline", baseline.reason),)
    if baseline.facts is None and baseline.timing is None:
        # The note about timings names the device, which facts do not depend on.
        note = baseline.facts_note if plan.untimed else baseline.timing_note
        return (_unrecorded(plan, "baseline", note or baseline.facts_note),)
    return (
        *_facts(plan, seen, baseline.facts, baseline.facts_note),
        *_timing(plan, speed, baseline.timing, baseline.timing_note),
        *_device_timing(plan, device_speed, baseline.timing),
    )


def update_finding(*, recordable: bool) -> Finding:
    """Say what update mode does with this check."""
    if recordable:
        return Finding(metric="baseline", status="passed", message="will be recorded")
    return _unchecked("baseline", "not recorded: only a check that passes in full is")


def update_command(plan: Plan) -> str:
    """Give the command that records one test as this run was made, ready for a shell."""
    return shlex.join(("pytest", *(plan.recording_arguments or (plan.nodeid, UPDATE))))


def _unchecked(metric: str, reason: str) -> Finding:
    return Finding(metric=metric, status="not_checked", message=reason)


def _unrecorded(plan: Plan, metric: str, note: str) -> Finding:
    return Finding(
        metric=metric,
        status="not_checked",
        message=f"{note or 'none'}; record with {UPDATE}",
        remedy=update_command(plan),
    )


def _facts(
    plan: Plan, seen: CompileObservation, stored: FactsEntry | None, note: str
) -> tuple[Finding, ...]:
    if stored is None:
        return (_unrecorded(plan, "baseline", note),)
    if seen.unreliable:
        return (_unchecked("baseline", "the numbers of the trace can't be trusted"),)
    if seen.calls != stored.calls:
        message = f"recorded with {counted(stored.calls, 'call')}, this run made {seen.calls}"
        return (_unrecorded(plan, "baseline", message),)
    origin = note or f"recorded with torch {stored.recorded.torch} on {stored.recorded.device}"
    gates = (metric for metric in FACTS if metric.policy == "gate")
    compared = [_compared(plan, metric, seen, stored, origin) for metric in gates]
    changed = tuple(finding for finding in compared if finding is not None)
    if any(finding.status == "failed" for finding in changed):
        return changed
    told = (*_told_changes(plan, seen, stored), *_new_site_lines(seen, stored))
    kept = Finding(metric="baseline", status="passed", message=f"kept, {origin}", evidence=told)
    return (*changed, kept)


def _compared(
    plan: Plan, metric: Metric, seen: CompileObservation, stored: FactsEntry, origin: str
) -> Finding | None:
    """Judge one number; ``None`` if it is as stored."""
    observed, expected = facts_of(seen)[metric.name], stored.numbers[metric.name]
    if observed == expected:
        return None
    command = update_command(plan)
    worse = observed > expected if metric.better == "lower" else observed < expected
    return Finding(
        metric=f"baseline.{metric.name}",
        status="failed" if worse else "passed",
        message=origin if worse else f"improved {expected} -> {observed}; record with {UPDATE}",
        observed=observed,
        baseline=expected,
        evidence=_proof(metric, seen, stored) if worse else (),
        remedy=f"if this is wanted, record it: {command}" if worse else command,
    )


def _proof(metric: Metric, seen: CompileObservation, stored: FactsEntry) -> tuple[str, ...]:
    if metric.name in _BREAK_METRICS:
        return _new_site_lines(seen, stored)
    return recompile_lines(seen.recompiles) if metric.name == "recompiles" else ()


def _told_changes(plan: Plan, seen: CompileObservation, stored: FactsEntry) -> tuple[str, ...]:
    """Tell of numbers that changed and gate nothing."""
    numbers = facts_of(seen)
    alike = _is_same_compiler(plan, stored)
    return tuple(
        f"{metric.label} {numbers[metric.name]}, baseline {stored.numbers[metric.name]}"
        for metric in FACTS
        if metric.policy == "show" and (alike or metric.name not in _OF_BACKEND)
        if numbers[metric.name] != stored.numbers[metric.name]
    )


def _is_same_compiler(plan: Plan, stored: FactsEntry | TimingEntry) -> bool:
    wanted = (printable(plan.arguments.backend_name), plan.arguments.mode)
    return wanted == (stored.backend, stored.mode)


def _new_site_lines(seen: CompileObservation, stored: FactsEntry) -> tuple[str, ...]:
    return site_lines(_new_sites(seen, stored), prefix="new: ")


def _new_sites(seen: CompileObservation, stored: FactsEntry) -> list[BreakSite]:
    """Find breaks that the baseline lacks; a line that only moved is not new."""
    known = [match for line in stored.breaks if (match := _STORED_SITE.fullmatch(line))]
    new = []
    for site in seen.break_sites:
        twin = next((match for match in known if _is_same_site(site, match)), None)
        if twin is not None:
            known.remove(twin)
        elif not site.allowed:
            new.append(site)
    return new


def _is_same_site(site: BreakSite, stored: re.Match[str]) -> bool:
    """Compare file, function and reason; stored paths are relative, observed ones are not."""
    reason = " ".join(site.reason.split())
    identifier = f" ({site.id})" if site.id else ""
    file = f"/{printable(site.file)}".replace("\\", "/")
    same_file = file.endswith(f"/{stored['file'].lstrip('/')}")
    return same_file and printable(f"{site.function}: {reason}{identifier}") == stored["rest"]


def _timing(
    plan: Plan, speed: Speed | None, stored: TimingEntry | None, note: str
) -> tuple[Finding, ...]:
    metric = f"baseline.{SPEEDUP.name}"
    if stored is None:
        # Without a number the finding about the speedup says so; nothing is missing here.
        return () if speed is None else (_unrecorded(plan, metric, note),)
    if speed is None:
        return (_unchecked(metric, plan.untimed or "no speedup was measured"),)
    if not _is_same_compiler(plan, stored) or stored.clock != speed.clock:
        mode = f", mode {stored.mode}" if stored.mode else ""
        message = f"recorded with backend {stored.backend}{mode}, {stored.clock} clock"
        return (_unrecorded(plan, metric, message),)
    return (_compared_speed(plan, speed, stored),)


def _compared_speed(plan: Plan, speed: Speed, stored: TimingEntry) -> Finding:
    """Fail only for a loss beyond both the noise threshold and the interval."""
    threshold = _noise(plan, speed)
    worse = speed.speedup_high < stored.speedup * (1 - threshold)
    better = speed.speedup_low > stored.speedup * (1 + threshold)
    command, remedy = update_command(plan), ""
    message = f"{speed_text(speed)}, baseline {factor_text(stored.speedup)}"
    if better:
        message, remedy = f"{message}: improved; record with {UPDATE}", command
    elif worse:
        remedy = f"if this is wanted, record it: {command}"
    beyond = f"beyond the noise threshold of {100 * threshold:g} %"
    return Finding(
        metric=f"baseline.{SPEEDUP.name}",
        status="failed" if worse else "passed",
        message=message,
        observed=speed.speedup,
        baseline=stored.speedup,
        evidence=(beyond,) if worse else (),
        remedy=remedy,
    )


def _noise(plan: Plan, speed: Speed) -> float:
    """Allow short calls more on the wall clock: what they cost differs from process to process.

    On an H200, calls of 0.03 to 0.05 ms were seen to move by 17 % between two processes of
    the same code, on the wall clock; on the device clock, by less than 1 %.
    """
    short = speed.clock == "wall" and min(speed.eager_ms, speed.compiled_ms) < SHORT_CALL_MS
    wider = min(_SHORT_CALL_FACTOR * plan.noise_threshold, _MOST_NOISE)
    return max(plan.noise_threshold, wider) if short else plan.noise_threshold


def _device_timing(
    plan: Plan, speed: Speed | None, stored: TimingEntry | None
) -> tuple[Finding, ...]:
    """Compare on the device clock too, where the kernels alone are seen."""
    if speed is None or stored is None or stored.device_speedup is None:
        return ()
    if not _is_same_compiler(plan, stored):
        return ()
    if speed.speedup_high >= stored.device_speedup * (1 - plan.noise_threshold):
        return ()
    return (
        Finding(
            metric="baseline.device_speedup",
            status="failed",
            message=f"{speed_text(speed)}, baseline {factor_text(stored.device_speedup)}",
            observed=speed.speedup,
            baseline=stored.device_speedup,
            evidence=(f"device time alone, noise threshold {100 * plan.noise_threshold:g} %",),
            remedy=f"if this is wanted, record it: {update_command(plan)}",
        ),
    )
