"""Judging: parity."""

from __future__ import annotations

from typing import get_args

import pytest

from pytest_compileguard.observation import (
    CodeLine,
    Departure,
    Mismatch,
    MismatchKind,
    NotObserved,
    ParityObservation,
    Reproduction,
    Trial,
)
from tests.judged import (
    finding_of,
    statuses_of,
    verdict_of,
)
from tests.records import (
    make_compilation,
    make_mismatch,
    make_parity,
)


@pytest.mark.parametrize(
    ("parity", "message"),
    (
        (NotObserved(reason="no phase ran"), "nothing was compared: no phase ran"),
        (make_parity(calls_compared=0), "nothing was compared"),
        (make_parity(leaves_compared=0), "nothing was compared"),
        (
            make_parity(calls_compared=0, unchecked=("a file handle",)),
            "nothing was compared: a file handle",
        ),
    ),
)
def test_a_comparison_of_nothing_fails(
    parity: ParityObservation | NotObserved, message: str
) -> None:
    finding = finding_of(verdict_of(parity=parity), "parity")
    assert (finding.status, finding.message) == ("failed", message)


def test_parity_is_not_checked_where_compiling_failed() -> None:
    compilation = make_compilation(error="no compiler")
    parity = NotObserved(reason="compiling failed")
    verdict = verdict_of(compilation=compilation, parity=parity)
    assert finding_of(verdict, "parity").status == "not_checked"
    assert verdict.outcome == "failed"


def test_parity_of_all_calls_passes() -> None:
    finding = finding_of(verdict_of(), "parity")
    assert (finding.status, finding.message) == ("passed", "3 of 3 calls")


def test_leaves_that_the_reference_acquitted_are_told() -> None:
    finding = finding_of(verdict_of(parity=make_parity(disputed=2)), "parity")
    assert finding.status == "passed"
    assert finding.message == "3 of 3 calls (2 disputed leaves acquitted by a float64 reference)"


@pytest.mark.parametrize("calls", (2, 3))
def test_a_sequence_compared_in_part_is_inconclusive(calls: int) -> None:
    # Three calls were compiled, whatever the comparison believes.
    parity = make_parity(calls=calls, calls_compared=2, unchecked=("a generator",))
    verdict = verdict_of(parity=parity)
    finding = finding_of(verdict, "parity")
    assert (finding.status, verdict.outcome) == ("inconclusive", "inconclusive")
    assert finding.message == "only 2 of 3 calls compared: a generator"
    assert "isolation" not in statuses_of(verdict)
    assert not verdict.recordable


def test_a_mismatch_fails_even_where_little_was_compared() -> None:
    parity = make_parity(calls_compared=0, leaves_compared=0, mismatches=(make_mismatch(),))
    finding = finding_of(verdict_of(parity=parity), "parity")
    assert finding.status == "failed"
    assert finding.message == "compiled differs from eager in 1 of 3 calls"
    assert finding.evidence == ("call 2, output['var']: differs by 0.5",)
    assert finding.remedy == SEEK


SEEK = "seek code that asks whether it is compiled, torch.compiler.is_compiling()"
TRACED = "Python code runs differently while it is traced"
ROUNDED = make_mismatch(rounding=True)
OTHER_FORM = make_mismatch(kind="kind", part="output")
OTHER_LAYOUT = make_mismatch(
    kind="kind", part="output", message="stride: compiled (1, 2), eager (2, 1); the values agree"
)
SAVED = Reproduction(file="saved/reproduce.py")
ALONE = Departure(call=1, stage=None, trials=(Trial(name="inductor", outcome="agrees"),))
IN_BACKEND = Departure(call=1, stage="mine", path="output", message="m")
ASKING = CodeLine(file="net.py", line=7, function="forward", source="if is_compiling():")


def located(stage: str) -> Departure:
    return Departure(call=1, stage=stage, path="output", message="m")


@pytest.mark.parametrize("kind", get_args(MismatchKind))
def test_code_that_asks_whether_it_is_compiled_is_named(kind: MismatchKind) -> None:
    asked = "net.py:7 in forward asks torch.compiler.is_compiling(): let both branches do the same"
    mismatches = (make_mismatch(kind=kind),)
    parity = make_parity(mismatches=mismatches, departure=located("eager"), asking=(ASKING,))
    assert finding_of(verdict_of(parity=parity), "parity").remedy == f"{TRACED}: {asked}"
    parity = make_parity(mismatches=mismatches, asking=(ASKING,))
    assert asked in finding_of(verdict_of(parity=parity), "parity").remedy
    parity = make_parity(mismatches=mismatches, departure=located("inductor"), asking=(ASKING,))
    assert "is_compiling" not in finding_of(verdict_of(parity=parity), "parity").remedy


@pytest.mark.parametrize(
    ("mismatches", "departure", "remedy"),
    (
        (
            (ROUNDED,),
            None,
            f"if this is rounding, widen rtol= and atol=; else {SEEK}",
        ),
        (
            (ROUNDED,),
            IN_BACKEND,
            "if this is rounding, widen rtol= and atol=; else mend the backend",
        ),
        ((ROUNDED, make_mismatch()), None, SEEK),
        ((make_mismatch(),), IN_BACKEND, "mend the backend"),
        ((make_mismatch(),), located("inductor"), "keep this code out of the graph"),
        ((make_mismatch(),), located("aot_eager"), "seek a custom operator whose schema"),
        ((make_mismatch(),), located("eager"), f"{TRACED}: {SEEK}"),
        ((make_mismatch(),), ALONE, ""),
        ((make_mismatch(kind="mutation"),), None, SEEK),
        ((make_mismatch(kind="kind", path="gradient of y"),), None, SEEK),
        ((make_mismatch(kind="kind", path="gradient of y"),), located("eager"), TRACED),
        ((OTHER_FORM,), located("inductor"), "ask for the form that callers need"),
        ((OTHER_LAYOUT,), located("inductor"), "the values agree: inductor lays the result out"),
        ((OTHER_LAYOUT,), IN_BACKEND, "the values agree: the backend lays"),
        ((OTHER_LAYOUT,), None, "the values agree: a decomposition or the backend lays"),
        ((OTHER_LAYOUT,), located("aot_eager"), "ask for the form that callers need"),
        ((OTHER_LAYOUT, make_mismatch()), located("inductor"), "keep this code out of the graph"),
        ((make_mismatch(kind="kind", part="structure"),), None, SEEK),
        ((make_mismatch(kind="exception"),), None, "raise by torch._check"),
        ((make_mismatch(kind="aliasing"),), None, "return a clone where callers must not see"),
        ((make_mismatch(kind="aliasing"), make_mismatch()), IN_BACKEND, "mend the backend"),
    ),
)
def test_the_remedy_fits_the_difference(
    mismatches: tuple[Mismatch, ...], departure: Departure | None, remedy: str
) -> None:
    parity = make_parity(mismatches=mismatches, departure=departure)
    told = finding_of(verdict_of(parity=parity), "parity").remedy
    assert told.startswith(remedy)
    assert bool(told) is bool(remedy)


def test_a_call_that_agrees_alone_is_not_offered_as_a_reproduction() -> None:
    parity = make_parity(mismatches=(make_mismatch(),), departure=ALONE, reproduction=SAVED)
    finding = finding_of(verdict_of(parity=parity), "parity")
    assert finding.evidence[-1] == "the call alone, which agrees, is saved: saved/reproduce.py"


def test_many_mismatches_are_cut_with_their_number() -> None:
    mismatches = tuple(make_mismatch(path=f"output[{n}]") for n in range(7))
    finding = finding_of(verdict_of(parity=make_parity(mismatches=mismatches)), "parity")
    assert len(finding.evidence) == 6
    assert finding.evidence[-1] == "and 2 more"


def test_what_could_not_be_isolated_is_visible_and_fails_when_strict() -> None:
    parity = make_parity(unchecked=("argument 1 is a file",))
    verdict = verdict_of(parity=parity)
    assert finding_of(verdict, "parity").status == "passed"
    isolation = finding_of(verdict, "isolation")
    assert (isolation.status, isolation.message) == ("not_checked", "argument 1 is a file")
    # The facts are none the less true.
    assert (verdict.outcome, verdict.recordable) == ("passed", True)
    assert verdict_of(parity=parity, strict=True).fails
