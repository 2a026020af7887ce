"""Generated code held against the baseline: the cause of a slowdown, as far as it is known."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytest_compileguard.baseline.entries import FactsEntry, TimingEntry
from pytest_compileguard.finding import Verdict
from pytest_compileguard.observation import CompileObservation, GraphCode, NotObserved
from tests.judged import finding_of, make_baseline, verdict_of
from tests.records import RECORDED, make_compilation, make_facts, make_speed, make_timing

ONE, TWO, OTHER = "1" * 16, "2" * 16, "f" * 16
SAME = (
    "the generated code is the same as in the baseline: "
    "look at the machine, its driver, or the guards' overhead"
)
CHANGED = "the generated code changed since the baseline: "


def seen_of(**digests: str) -> CompileObservation:
    return make_compilation(
        code=tuple(
            GraphCode(graph=number, compile_id=f"{number - 1}/0", part=part, digest=digest)
            for number, (part, digest) in enumerate(digests.items(), 1)
        )
    )


SEEN = seen_of(forward=ONE, backward=TWO)
STORED = {"1 forward": ONE, "2 backward": TWO}


def timing_of(code: dict[str, str] | None, speedup: float = 5.0, **changes: Any) -> TimingEntry:
    return make_timing(speedup, code=code, **{"inputs": (), **changes})


def slow(
    code: dict[str, str] | None, seen: CompileObservation = SEEN, **changes: Any
) -> tuple[Verdict, tuple[str, ...]]:
    """Judge a check that became slow; give the causes that it names, too."""
    verdict = verdict_of(
        compilation=seen, baseline=make_baseline(timing=timing_of(code, **changes))
    )
    finding = finding_of(verdict, "baseline.speedup")
    assert finding.status == "failed"
    told = ("the generated code", "other versions")
    return verdict, tuple(line for line in finding.evidence if line.startswith(told))


def same_of(verdict: Verdict) -> bool | None:
    assert verdict.code is not None
    return verdict.code.same


def test_equal_code_points_at_the_machine() -> None:
    verdict, causes = slow(STORED)
    assert causes == (SAME,)
    assert same_of(verdict) is True


@pytest.mark.parametrize(
    ("stored", "named"),
    (
        ({**STORED, "2 backward": OTHER}, "graph 1/0 (backward)"),
        ({"1 forward": OTHER, "2 backward": OTHER}, "graph 0/0 (forward), graph 1/0 (backward)"),
        ({"1 forward": OTHER}, "graph 0/0 (forward)"),
        ({**STORED, "1 forward": OTHER, "3 forward": ONE}, "graph 0/0 (forward)"),
    ),
)
def test_changed_code_is_named_graph_by_graph(stored: dict[str, str], named: str) -> None:
    verdict, causes = slow(stored)
    assert causes == (CHANGED + named,)
    assert same_of(verdict) is False


def test_very_many_changed_graphs_are_counted() -> None:
    seen = make_compilation(
        code=tuple(
            GraphCode(graph=n, compile_id=f"{n}/0", part="", digest=ONE) for n in range(1, 10)
        )
    )
    _, causes = slow({str(n): TWO for n in range(1, 10)}, seen)
    assert causes == (CHANGED + "graph 1/0, graph 2/0, graph 3/0, graph 4/0 and 5 more",)


@pytest.mark.parametrize(
    ("stored", "changes"),
    (
        (None, {}),
        ({"1 forward": ONE}, {}),
        ({**STORED, "3 forward": ONE}, {}),
        (STORED, {"inputs": None}),
    ),
    ids=("older entry", "a graph not stored", "a graph not seen", "inputs not stored"),
)
def test_what_is_not_known_on_both_sides_is_no_cause(
    stored: dict[str, str] | None, changes: dict[str, Any]
) -> None:
    verdict, causes = slow(stored, **changes)
    assert causes == ()
    assert same_of(verdict) is None


@pytest.mark.parametrize(
    "changes", ({"backend": "other"}, {"mode": "max-autotune"}, {"inputs": ("float32[9]",)})
)
def test_what_was_compiled_otherwise_is_not_compared(changes: dict[str, Any]) -> None:
    timing = timing_of({"1 forward": OTHER, "2 backward": OTHER}, **changes)
    verdict = verdict_of(compilation=SEEN, baseline=make_baseline(timing=timing))
    assert same_of(verdict) is None


def test_a_check_without_generated_code_has_none() -> None:
    verdict, causes = slow(STORED, make_compilation())
    assert (verdict.code, causes) == (None, ())
    nothing = verdict_of(compilation=NotObserved(reason="nothing"))
    assert nothing.code is None


def test_other_code_that_is_as_fast_fails_nothing_and_is_told_apart() -> None:
    timing = timing_of({**STORED, "1 forward": OTHER}, 1.3)
    verdict = verdict_of(compilation=SEEN, baseline=make_baseline(timing=timing), strict=True)
    assert (verdict.outcome, verdict.fails) == ("passed", False)
    assert finding_of(verdict, "baseline.speedup").evidence == ()
    assert same_of(verdict) is False


def test_the_device_clock_and_disturbed_samples_get_the_cause_too() -> None:
    timing = timing_of(STORED, device_speedup=9.0)
    baseline = make_baseline(timing=timing)
    speed = make_speed(device=2.0, disturbed=("another process computed",))
    verdict = verdict_of(compilation=SEEN, speed=speed, baseline=baseline)
    for metric in ("baseline.speedup", "baseline.device_speedup"):
        finding = finding_of(verdict, metric)
        assert finding.status == "inconclusive"
        assert finding.evidence[-1] == SAME


def test_versions_that_differ_are_named_where_both_are_known() -> None:
    older = msgspec.structs.replace(
        RECORDED, torch="2.13.1\n", triton="3.5.1", driver=None, cuda="13.0"
    )
    _, causes = slow(STORED, recorded=older)
    assert causes == (
        SAME,
        "other versions: torch 2.13.0, baseline 2.13.1\\n; Triton 3.6.0, baseline 3.5.1",
    )


def test_more_kernels_are_explained_by_changed_code_but_never_by_equal_code() -> None:
    fewer = make_facts(kernels=1)
    changed = timing_of({**STORED, "1 forward": OTHER}, 1.3)
    slow_ones = ((changed, CHANGED + "graph 0/0 (forward)"), (timing_of(STORED, 1.3), None))
    for timing, last in slow_ones:
        baseline = make_baseline(facts=fewer, timing=timing)
        finding = finding_of(verdict_of(compilation=SEEN, baseline=baseline), "baseline.kernels")
        assert finding.warns
        assert finding.evidence == ((last,) if last else ())


def test_what_became_better_needs_no_cause() -> None:
    verdict = verdict_of(compilation=SEEN, baseline=make_baseline(timing=timing_of(STORED, 0.5)))
    assert SAME not in finding_of(verdict, "baseline.speedup").evidence


def evidence_of_limit(
    code: dict[str, str] | None,
    metric: str = "speedup",
    *,
    facts: FactsEntry | None = None,
    min_speedup: float | None = 2.0,
    max_kernels: int | None = None,
) -> tuple[str, ...]:
    """Judge a check that keeps its baseline, but not its limit on speed or kernels."""
    if metric == "kernels":
        max_kernels = 0
    verdict = verdict_of(
        compilation=SEEN,
        speed=make_speed(1.3),
        baseline=make_baseline(timing=timing_of(code, 1.2), facts=facts or make_facts(inputs=())),
        min_speedup=min_speedup,
        max_kernels=max_kernels,
    )
    finding = finding_of(verdict, metric)
    assert finding.status == "failed"
    return tuple(line for line in finding.evidence if "baseline" in line)


def test_a_limit_that_fails_alone_says_whether_code_and_ops_changed() -> None:
    changed = {**STORED, "1 forward": OTHER}
    same = ("  the generated code is the same as in the baseline",)
    assert evidence_of_limit(STORED) == same
    assert evidence_of_limit(changed) == (f"  {CHANGED}graph 0/0 (forward)",)
    # Once, at the first limit that fails.
    assert evidence_of_limit(changed, "kernels", min_speedup=None) == evidence_of_limit(changed)
    assert evidence_of_limit(changed, "speedup", max_kernels=0) == ()
    assert evidence_of_limit(None) == ()
    other_ops = make_facts(inputs=(), ops=SEEN.ops + 2, kernels=SEEN.kernels + 1)
    assert evidence_of_limit(changed, facts=other_ops) == (
        f"  {CHANGED}graph 0/0 (forward)",
        f"  captured ops {SEEN.ops}, baseline {SEEN.ops + 2}",
        f"  kernels {SEEN.kernels}, baseline {SEEN.kernels + 1}",
    )


def test_the_cause_stands_once_where_the_baseline_is_missed_too() -> None:
    baseline = make_baseline(timing=timing_of(STORED))
    verdict = verdict_of(
        compilation=SEEN, speed=make_speed(1.3), baseline=baseline, min_speedup=2.0
    )
    told = [line for found in verdict.findings for line in found.evidence if "generated" in line]
    assert told == [SAME]
