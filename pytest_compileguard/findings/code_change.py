"""Whether the generated code is that of the baseline: the cause of what became worse, or none.

It only advises. What is not known on both sides is neither the same nor changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from pytest_compileguard.baseline.entries import FactsEntry, TimingEntry, printable
from pytest_compileguard.baseline.storable import inputs_of
from pytest_compileguard.finding import ComparedCode, Finding, GeneratedCode
from pytest_compileguard.metrics import DEVICE_SPEEDUP, SPEEDUP
from pytest_compileguard.observation import CompileObservation, NotObserved
from pytest_compileguard.plan import Plan

if TYPE_CHECKING:
    from pytest_compileguard.baseline.look_up import Baseline
    from pytest_compileguard.environment import Environment

SAME = "the generated code is the same as in the baseline"
CHANGED = "the generated code changed since the baseline"
_LOOK = "look at the machine, its driver, or the guards' overhead"
_SLOWER = tuple(f"baseline.{metric.name}" for metric in (SPEEDUP, DEVICE_SPEEDUP))
_MORE = ("baseline.kernels",)
_COSTS = ("kernels", "speedup", "compile_time", "peak_memory", "kernels_per_call")
"""Limits on what other code may cost more of."""
_VERSIONS = {
    "torch": "torch",
    "triton": "Triton",
    "cuda": "CUDA",
    "driver": "driver",
    "python": "Python",
}
_MOST_NAMED = 4


def generated_code(
    plan: Plan, seen: CompileObservation | NotObserved, baseline: Baseline | NotObserved
) -> GeneratedCode | None:
    """Compare digest by digest; ``None``: of this run no generated code is known."""
    if isinstance(seen, NotObserved) or not seen.code:
        return None
    timing = None if isinstance(baseline, NotObserved) else baseline.timing
    stored = _stored(plan, seen, timing)
    compared = tuple(
        ComparedCode(
            graph=code.graph,
            compile_id=code.compile_id,
            part=code.part,
            digest=code.digest,
            baseline=stored.get(code.key),
        )
        for code in seen.code
    )
    differs = any(code.same is False for code in compared)
    whole = {code.key for code in seen.code} == stored.keys()
    return GeneratedCode(graphs=compared, same=False if differs else True if whole else None)


def _stored(plan: Plan, seen: CompileObservation, timing: TimingEntry | None) -> Mapping[str, str]:
    """Give the stored digests, if that code was made of the same call, compiled alike."""
    if timing is None or timing.code is None:
        return {}
    alike = (printable(plan.arguments.backend_name), plan.arguments.mode, inputs_of(seen.inputs))
    return timing.code if alike == (timing.backend, timing.mode, timing.inputs) else {}


def explained(
    findings: Iterable[Finding],
    code: GeneratedCode | None,
    baseline: Baseline | NotObserved,
    environment: Environment | None,
) -> tuple[Finding, ...]:
    """Give what is worse than the baseline its cause, as far as it is known, as evidence."""
    if isinstance(baseline, NotObserved):
        return tuple(findings)
    timing, facts = baseline.timing, baseline.facts
    of_times = (*_code_lines(code), *_version_lines(timing, environment))
    # More kernels are other code, whatever the digests of an entry recorded apart say.
    changed = _code_lines(code) if code is not None and code.same is False else ()
    of_facts = (*changed, *_version_lines(facts, environment))
    return tuple(_with_cause(finding, of_times, of_facts) for finding in findings)


def limits_explained(
    findings: Iterable[Finding],
    compared: Sequence[Finding],
    code: GeneratedCode | None,
    baseline: Baseline | NotObserved,
    environment: Environment | None,
) -> tuple[Finding, ...]:
    """Tell at the first limit that fails what changed since the baseline, unless told there.

    Args:
        findings: About limits.
        compared: About the baseline, which are explained already.
        code: Of this run.
        baseline: What is stored.
        environment: Of this run.
    """
    found = tuple(findings)
    broken = next((one for one in found if one.status == "failed" and one.metric in _COSTS), None)
    told = any(line.startswith((SAME, CHANGED)) for one in compared for line in one.evidence)
    if broken is None or told or isinstance(baseline, NotObserved):
        return found
    # Not where to look: the limit may never have been kept.
    known = () if code is None or not code.same else (SAME,)
    kept = (one.evidence for one in compared if (one.metric, one.status) == ("baseline", "passed"))
    lines = (
        *(known or _code_lines(code)),
        *_version_lines(baseline.timing or baseline.facts, environment),
        *next(kept, ()),
    )
    evidence = (*broken.evidence, *(f"  {line}" for line in lines))
    explained = msgspec.structs.replace(broken, evidence=evidence)
    return tuple(explained if one is broken else one for one in found)


def _with_cause(finding: Finding, of_times: Sequence[str], of_facts: Sequence[str]) -> Finding:
    observed, stored = finding.observed, finding.baseline
    if not isinstance(observed, float | int) or not isinstance(stored, float | int):
        return finding
    if finding.metric in _SLOWER and finding.status != "passed" and observed < stored:
        lines = of_times
    elif finding.metric in _MORE and observed > stored:
        lines = of_facts
    else:
        return finding
    return msgspec.structs.replace(finding, evidence=(*finding.evidence, *lines))


def _code_lines(code: GeneratedCode | None) -> tuple[str, ...]:
    if code is None or code.same is None:
        return ()
    if code.same:
        return (f"{SAME}: {_LOOK}",)
    names = [one.name for one in code.graphs if one.same is False]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (f"{CHANGED}: {', '.join(names[:_MOST_NAMED])}{more}",)


def _version_lines(
    stored: FactsEntry | TimingEntry | None, environment: Environment | None
) -> tuple[str, ...]:
    """Name the versions that are other ones, where both are known."""
    if stored is None or environment is None:
        return ()
    pairs = (
        (label, getattr(environment, name), getattr(stored.recorded, name))
        for name, label in _VERSIONS.items()
    )
    told = [
        f"{label} {now}, baseline {printable(before)}"
        for label, now, before in pairs
        if now is not None and before is not None and now != before
    ]
    return (f"other versions: {'; '.join(told)}",) if told else ()
