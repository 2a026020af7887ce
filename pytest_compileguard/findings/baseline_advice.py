"""What a comparison with the baseline says: better, worse, or that there is nothing to compare."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from pytest_compileguard.baseline.entries import printable
from pytest_compileguard.finding import Finding
from pytest_compileguard.metrics import Change, Metric, Policy
from pytest_compileguard.observation import Record
from pytest_compileguard.options import UpdateMode
from pytest_compileguard.plan import Plan

UPDATE = "--compileguard-update-baseline"
TIGHTEN = f"{UPDATE}=improved"


def update_command(plan: Plan, mode: UpdateMode = "all") -> str:
    """Give the command that records one test as this run was made, ready for a shell."""
    option = UPDATE if mode == "all" else f"{UPDATE}={mode}"
    return shlex.join(("pytest", *(plan.recording_arguments or (plan.nodeid,)), option))


def not_in_vain(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Take back the advice to record where it can't be followed: only what passes is recorded."""
    first = next((f for f in findings if f.status == "failed" and not _is_baseline(f)), None)
    if first is None:
        return tuple(findings)
    mend = "mend, or change the limit of," if first.limit is not None else "mend"
    name = first.metric.replace("_", " ")
    advice = f"only a check that passes is recorded: first {mend} {name}"
    return tuple(
        msgspec.structs.replace(f, remedy=advice if f.status == "failed" else "")
        if _is_baseline(f) and UPDATE in f.remedy
        else f
        for f in findings
    )


def _is_baseline(finding: Finding) -> bool:
    return finding.metric.partition(".")[0] == "baseline"


def unchecked(metric: str, reason: str) -> Finding:
    """Say why a number was not compared where recording would not help."""
    return Finding(metric=metric, status="not_checked", message=reason)


def missing(plan: Plan, metric: str, note: str, *, recordable: bool) -> Finding:
    """Say that nothing is stored; in the mode that records what is new, that it will be."""
    if plan.update_baseline == "new" and recordable:
        return Finding(metric=metric, status="passed", message=f"{note}: will be recorded")
    return incomparable(plan, metric, note)


def incomparable(plan: Plan, metric: str, note: str) -> Finding:
    """Say why what is stored can't be compared with, and how to record it anew."""
    ref = printable(plan.baseline_ref or "")
    message = f"{note or 'none'}; record with {UPDATE}"
    if ref:
        message = f"{note or 'none'} at {ref}; record with {UPDATE}, and have it merged there"
    return Finding(
        metric=metric,
        status="not_checked",
        message=message,
        remedy=update_command(plan),
    )


def other_inputs(stored: tuple[str, ...] | None, observed: tuple[str, ...]) -> str:
    """Say where the inputs differ from those of the baseline; empty if they do not.

    An entry that is older than the record of inputs is taken as it always was.
    """
    if stored is None or stored == observed:
        return ""
    pairs = zip_longest(stored, observed, fillvalue="none")
    before, now = next((old, new) for old, new in pairs if old != new)
    return f"recorded with other inputs: {printable(before)}, this run {printable(now)}"


class Moved(Record):
    """A number that changed beyond its tolerance."""

    metric: Metric
    change: Change
    observed: float
    stored: float
    older: bool = False
    """Whether the stored number is one of an older torch, which stays as it is."""
    alike: bool = True
    """Whether both were compiled alike; else no stored entry is improved, only recorded anew."""


def compared(
    plan: Plan, moved: Moved, *, message: str, evidence: tuple[str, ...] = ()
) -> Finding | None:
    """Make the finding of a number that changed; ``None`` if it is only to be told."""
    policy, better = moved.metric.policy, moved.change == "better"
    if policy == "show" or (policy == "warn" and better):
        return None
    refused = plan.improvements == "fail" and plan.update_baseline is None and not moved.older
    fails = policy == "gate" and (refused or not better)
    return Finding(
        metric=f"baseline.{moved.metric.name}",
        status="failed" if fails else "passed",
        message=message,
        observed=moved.observed,
        baseline=moved.stored,
        evidence=evidence,
        remedy=_tighten(plan, moved, fails=fails) if better else _accept(plan, policy),
        warns=policy == "warn",
    )


def _tighten(plan: Plan, moved: Moved, *, fails: bool) -> str:
    # For this torch nothing is stored yet, so there is nothing to improve.
    mode: UpdateMode = "improved" if moved.alike else "all"
    command = update_command(plan, "new" if moved.older else mode)
    return f"better than the baseline, which is to be tightened: {command}" if fails else command


def _accept(plan: Plan, policy: Policy) -> str:
    if policy == "warn":
        return ""
    if plan.baseline_ref:
        command = update_command(plan)
        return (
            f"the baseline of {printable(plan.baseline_ref)} counts here, whatever this branch "
            f"stores; if this is wanted, record it and let the change be approved: {command}"
        )
    return f"if this is wanted, record it: {update_command(plan)}"
