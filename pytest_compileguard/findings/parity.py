"""Judges the comparison of compiled with eager."""

from __future__ import annotations

from pytest_compileguard.finding import Finding
from pytest_compileguard.findings.departure_text import (
    agrees_alone,
    departure_lines,
    reproduction_lines,
)
from pytest_compileguard.findings.limit import NOTHING_COMPILED
from pytest_compileguard.findings.wording import call_text, counted, first_of
from pytest_compileguard.observation import (
    CompileObservation,
    Mismatch,
    MismatchKind,
    NotObserved,
    ParityObservation,
)

_MOST_MISMATCHES = 5
_OF_NUMBERS: tuple[MismatchKind, ...] = ("value", "gradient", "mutation")
_IF_ROUNDING = "if this is rounding, widen rtol= and atol="
_SEEK = "seek code that asks whether it is compiled"
_MEND = "mend the target, which computes something else than the reference"
_REMEDIES: dict[MismatchKind, str] = {
    "aliasing": "return a clone where callers must not see later writes",
    "exception": "one side raised: make it compile, or make both sides raise the same",
}


def parity_findings(
    seen: ParityObservation | NotObserved,
    compilation: CompileObservation | NotObserved,
    *,
    compiled: bool,
) -> tuple[Finding, ...]:
    """Judge parity; a comparison that compared nothing never passes."""
    if isinstance(seen, NotObserved):
        return (_nothing_compared(seen.reason, compiled=compiled),)
    # A sequence that was compared in part only must not look whole.
    calls = seen.calls
    if isinstance(compilation, CompileObservation):
        calls = max(calls, compilation.calls)
    if seen.mismatches:
        finding = _differs(seen, calls)
    elif seen.calls_compared < 1 or seen.leaves_compared < 1:
        finding = _nothing_compared("; ".join(seen.unchecked), compiled=compiled)
    elif seen.calls_compared < calls:
        finding = _partly_compared(seen, calls)
    else:
        finding = _agrees(seen, calls)
    return (finding, *_isolation(seen, finding))


def _nothing_compared(reason: str, *, compiled: bool) -> Finding:
    message = f"nothing was compared: {reason}" if reason else "nothing was compared"
    if compiled:
        return Finding(metric="parity", status="failed", message=message)
    return Finding(metric="parity", status="not_checked", message=reason or NOTHING_COMPILED)


def _differs(seen: ParityObservation, calls: int) -> Finding:
    by_side = {
        side: {m.call for m in seen.mismatches if m.against == side}
        for side in ("eager", "reference")
    }
    message = ", and ".join(
        f"{'' if side == 'eager' else 'the '}{side} in {len(found)} of {counted(calls, 'call')}"
        for side, found in by_side.items()
        if found
    )
    message = f"compiled differs from {message}"
    if not by_side["eager"]:
        message += "; eager agrees with compiled"
    return Finding(
        metric="parity",
        status="failed",
        message=message,
        evidence=(
            *first_of([_line(m) for m in seen.mismatches], _MOST_MISMATCHES),
            *(departure_lines(seen.departure) if seen.departure else ()),
            *_whose_fault(seen.mismatches),
            *(reproduction_lines(seen.reproduction, seen.departure) if seen.reproduction else ()),
        ),
        remedy="\n".join(_remedies(seen)),
    )


def _remedies(seen: ParityObservation) -> tuple[str, ...]:
    own = [m for m in seen.mismatches if m.eager_agrees is False]
    others = [m for m in seen.mismatches if m.eager_agrees is not False]
    of_own = (_of_numbers(own, _MEND) or (_MEND,)) if own else ()
    stage = seen.departure.stage if seen.departure else None
    # Where the stage is known, nothing is left to guess.
    open_question = stage in (None, "eager") and not agrees_alone(seen.departure)
    of_others = _of_numbers(others, _SEEK if open_question else "")
    of_form = (_REMEDIES[m.kind] for m in others if m.kind in _REMEDIES)
    return tuple(dict.fromkeys((*of_own, *of_others, *of_form)))


def _of_numbers(mismatches: list[Mismatch], otherwise: str) -> tuple[str, ...]:
    """Advise on other numbers: rounding is named only where it may be the cause."""
    found = [m for m in mismatches if m.kind in _OF_NUMBERS]
    if found and all(m.rounding for m in found):
        return (f"{_IF_ROUNDING}; else {otherwise}" if otherwise else _IF_ROUNDING,)
    values = [m for m in found if m.kind != "mutation"]
    return (otherwise,) if values and otherwise else ()


def _whose_fault(mismatches: tuple[Mismatch, ...]) -> tuple[str, ...]:
    """Say of a difference from the reference whether it is there before anything is compiled."""
    departing = {m.call for m in mismatches if m.against == "eager"}
    of_reference = [m for m in mismatches if m.against == "reference"]
    own = dict.fromkeys(m.path for m in of_reference if not m.eager_agrees)
    added_up = dict.fromkeys(
        m.path for m in of_reference if m.eager_agrees and m.call not in departing
    )
    lines = []
    if own:
        where = "there" if len(own) == len({m.path for m in of_reference}) else f"in {_few(own)}"
        lines.append(
            f"eager differs from the reference {where} too: the fault lies in the target's own "
            "code, not in the compiler"
        )
    if added_up:
        lines.append(
            f"in {_few(added_up)} eager agrees with both compiled and the reference: two "
            "differences, each within the tolerance, add up"
        )
    return tuple(lines)


def _few(paths: dict[str, None]) -> str:
    more = len(paths) - _MOST_MISMATCHES
    return ", ".join([*paths][:_MOST_MISMATCHES]) + (f" and {more} more" if more > 0 else "")


def _line(mismatch: Mismatch) -> str:
    after = " after the call" if mismatch.kind == "mutation" else ""
    against = " against the reference" if mismatch.against == "reference" else ""
    return f"{call_text(mismatch.call)}, {mismatch.path}{after}{against}: {mismatch.message}"


def _partly_compared(seen: ParityObservation, calls: int) -> Finding:
    message = f"only {seen.calls_compared} of {counted(calls, 'call')} compared"
    if seen.unchecked:
        message += f": {'; '.join(seen.unchecked)}"
    return Finding(metric="parity", status="inconclusive", message=message)


def _agrees(seen: ParityObservation, calls: int) -> Finding:
    message = f"{seen.calls_compared} of {counted(calls, 'call')}"
    if not seen.gradients_compared:
        message += ", without gradients"
    if seen.disputed:
        leaves = counted(seen.disputed, "disputed leaf", "disputed leaves")
        message += f" ({leaves} acquitted by a float64 reference)"
    return Finding(metric="parity", status="passed", message=message)


def _isolation(seen: ParityObservation, parity: Finding) -> tuple[Finding, ...]:
    """Make visible what could not be isolated, unless ``parity`` is unclear for that reason."""
    if not seen.unchecked or parity.status in ("inconclusive", "not_checked"):
        return ()
    message = "; ".join(seen.unchecked)
    return (Finding(metric="isolation", status="not_checked", message=message),)
