"""Judges an observation against what is stored of an earlier run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_compileguard.baseline.entries import FactsEntry, printable
from pytest_compileguard.baseline.storable import inputs_of, portable
from pytest_compileguard.finding import Finding, Speed
from pytest_compileguard.findings.baseline_advice import (
    Moved,
    compared,
    incomparable,
    missing,
    other_inputs,
    unchecked,
)
from pytest_compileguard.findings.baseline_speed import timing_findings
from pytest_compileguard.findings.breaks import NEW, site_lines
from pytest_compileguard.findings.compilation import compile_problem
from pytest_compileguard.findings.limit import uncompiled_text
from pytest_compileguard.findings.recompile_text import recompile_lines
from pytest_compileguard.findings.speed import disturbed_text
from pytest_compileguard.findings.wording import counted
from pytest_compileguard.metrics import FACTS, GRAPH_BREAKS, NEW_BREAK_SITES, Metric, facts_of
from pytest_compileguard.observation import BreakSite, CompileObservation, NotObserved, Observation
from pytest_compileguard.plan import Plan

if TYPE_CHECKING:
    from pytest_compileguard.baseline.look_up import Baseline

# A number that only one backend has says nothing about another one.
_OF_BACKEND = ("kernels",)
_BREAK_METRICS = ("graph_breaks", "break_events")
_STORED_SITE = re.compile(r"(?P<file>.*?):\d+ in (?P<rest>.*?)(?P<allowed>, allowed)?")


def baseline_findings(
    plan: Plan,
    observation: Observation,
    speed: Speed | None,
    device_speed: Speed | None,
    baseline: Baseline | NotObserved,
    *,
    recordable: bool,
) -> tuple[Finding, ...]:
    """Compare with the baseline, facts and timing apart; not where all is being recorded."""
    seen = observation.compile
    if isinstance(seen, NotObserved) or compile_problem(seen) is not None:
        return (unchecked("baseline", uncompiled_text(seen)),)
    if isinstance(baseline, NotObserved):
        return (unchecked("baseline", baseline.reason),)
    if baseline.facts is None and baseline.timing is None:
        # The note about timings names the device, which facts do not depend on.
        note = baseline.facts_note if plan.untimed else baseline.timing_note
        note = note or baseline.facts_note
        return (missing(plan, "baseline", note, recordable=recordable),)
    facts = _facts(plan, seen, baseline.facts, baseline.facts_note, recordable=recordable)
    timing, note = baseline.timing, baseline.timing_note
    speeds = (speed, device_speed)
    timings = timing_findings(
        plan,
        seen,
        speeds,
        timing,
        note,
        recordable=recordable,
        disturbed=_disturbed(observation),
    )
    return (*facts, *timings)


def _disturbed(observation: Observation) -> str:
    seen = observation.speed
    return "" if isinstance(seen, NotObserved) else disturbed_text(seen)


def update_finding(*, recordable: bool) -> Finding:
    """Say what update mode does with this check."""
    if recordable:
        return Finding(metric="baseline", status="passed", message="will be recorded")
    return unchecked("baseline", "not recorded: only a check that passes in full is")


def _facts(
    plan: Plan, seen: CompileObservation, stored: FactsEntry | None, note: str, *, recordable: bool
) -> tuple[Finding, ...]:
    if stored is None:
        return (missing(plan, "baseline", note, recordable=recordable),)
    if seen.unreliable:
        return (unchecked("baseline", "the numbers of the trace can't be trusted"),)
    if seen.calls != stored.calls:
        message = f"recorded with {counted(stored.calls, 'call')}, this run made {seen.calls}"
        return _breaks_in_other_calls(plan, seen, stored, message)
    if message := other_inputs(stored.inputs, inputs_of(seen.inputs)):
        return _breaks_in_other_calls(plan, seen, stored, message)
    origin = note or f"recorded with torch {stored.recorded.torch} on {stored.recorded.device}"
    origin += f", baseline of {printable(plan.baseline_ref)}" if plan.baseline_ref else ""
    found = tuple(
        finding
        for metric in FACTS
        if _is_comparable(plan, metric, stored, note)
        if (finding := _compared(plan, metric, seen, stored, origin, older=bool(note))) is not None
    )
    failed = {finding.metric for finding in found if finding.status == "failed"}
    named = failed & {f"baseline.{name}" for name in _BREAK_METRICS}
    sites = () if named else _exchanged_sites(plan, seen, stored)
    if failed:
        return (*found, *sites)
    told = _told_changes(plan, seen, stored)
    kept = Finding(metric="baseline", status="passed", message=f"kept, {origin}", evidence=told)
    return (*found, *sites, kept)


def _breaks_in_other_calls(
    plan: Plan, seen: CompileObservation, stored: FactsEntry, message: str
) -> tuple[Finding, ...]:
    """Fail for a break at a new place where their number rose too, whatever the calls.

    Else a change of the inputs would hide a break that came with it.
    """
    anyway = incomparable(plan, "baseline", message)
    found = _compared(plan, GRAPH_BREAKS, seen, stored, message, older=False)
    if found is None or found.status != "failed" or not _new_sites(plan, seen, stored):
        return (*_exchanged_sites(plan, seen, stored), anyway)
    return (found, anyway)


def _is_comparable(plan: Plan, metric: Metric, stored: FactsEntry, note: str) -> bool:
    """Whether the number of this backend can be held against the stored one."""
    return metric.name not in _OF_BACKEND or (_is_same_compiler(plan, stored) and not note)


def _compared(
    plan: Plan,
    metric: Metric,
    seen: CompileObservation,
    stored: FactsEntry,
    origin: str,
    *,
    older: bool,
) -> Finding | None:
    """Judge one number; ``None`` if nothing is to be said of it."""
    observed, expected = facts_of(seen)[metric.name], stored.numbers[metric.name]
    change = metric.change(observed, observed, expected)
    if change == "same":
        return None
    worse = change == "worse"
    return compared(
        plan,
        Moved(
            metric=metric,
            change=change,
            observed=observed,
            stored=expected,
            older=older,
            alike=_is_same_compiler(plan, stored),
        ),
        message=origin if worse else f"tighten: {expected} -> {observed}",
        evidence=_proof(plan, metric, seen, stored) if worse else (),
    )


def _proof(
    plan: Plan, metric: Metric, seen: CompileObservation, stored: FactsEntry
) -> tuple[str, ...]:
    if metric.name in _BREAK_METRICS:
        return _new_site_lines(plan, seen, stored)
    return recompile_lines(seen.recompiles) if metric.name == "recompiles" else ()


def _told_changes(plan: Plan, seen: CompileObservation, stored: FactsEntry) -> tuple[str, ...]:
    """Tell of numbers that changed and gate nothing."""
    numbers = facts_of(seen)
    alike = _is_same_compiler(plan, stored)
    return tuple(
        f"{metric.label} {numbers[metric.name]}, baseline {stored.numbers[metric.name]}"
        for metric in FACTS
        if metric.policy != "gate" and (alike or metric.name not in _OF_BACKEND)
        if numbers[metric.name] != stored.numbers[metric.name]
    )


def _is_same_compiler(plan: Plan, stored: FactsEntry) -> bool:
    wanted = (printable(plan.arguments.backend_name), plan.arguments.mode)
    return wanted == (stored.backend, stored.mode)


def _exchanged_sites(
    plan: Plan, seen: CompileObservation, stored: FactsEntry
) -> tuple[Finding, ...]:
    """Name breaks that came where others went: the count alone would hide them."""
    new = _new_sites(plan, seen, stored)
    if not new:
        return ()
    return (
        Finding(
            metric=f"baseline.{NEW_BREAK_SITES.name}",
            status="passed",
            message=f"{counted(len(new), 'graph break')} that the baseline does not know, "
            "though there are not more of them",
            observed=len(new),
            baseline=0,
            evidence=site_lines(new, prefix=NEW),
            warns=NEW_BREAK_SITES.policy == "warn",
        ),
    )


def _new_site_lines(plan: Plan, seen: CompileObservation, stored: FactsEntry) -> tuple[str, ...]:
    return site_lines(_new_sites(plan, seen, stored), prefix=NEW)


def _new_sites(plan: Plan, seen: CompileObservation, stored: FactsEntry) -> list[BreakSite]:
    """Find breaks that the baseline lacks; a line that only moved is not new."""
    known = [match for line in stored.breaks if (match := _STORED_SITE.fullmatch(line))]
    new = []
    for site in seen.break_sites:
        twin = next((match for match in known if _is_same_site(plan, site, match)), None)
        if twin is not None:
            known.remove(twin)
        elif not site.allowed:
            new.append(site)
    return new


def _is_same_site(plan: Plan, site: BreakSite, stored: re.Match[str]) -> bool:
    """Compare file, function and reason; one that was allowed and no longer is, is another."""
    if stored["allowed"] and not site.allowed:
        return False
    reason = " ".join(site.reason.split())
    identifier = f" ({site.id})" if site.id else ""
    same_file = printable(portable(site.file, plan.rootpath)) == stored["file"]
    return same_file and printable(f"{site.function}: {reason}{identifier}") == stored["rest"]
