"""Judges the comparison of compiled with eager."""

from __future__ import annotations

import re

from pytest_compileguard.code_origin import module_names
from pytest_compileguard.finding import Finding
from pytest_compileguard.findings.departure_text import (
    agrees_alone,
    departure_lines,
    reproduction_lines,
)
from pytest_compileguard.findings.limit import uncompiled_text
from pytest_compileguard.findings.wording import call_text, counted, first_of, frame_text
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
_SEEK = "seek code that asks whether it is compiled, torch.compiler.is_compiling()"
_TRACED = "Python code runs differently while it is traced"
_PERHAPS = "code may run differently while it is compiled"
_ASK = "torch.compiler.is_compiling(): let both branches do the same"
_MEND = "mend the target, which computes something else than the reference"
_MEND_REFERENCE = (
    "mend the reference, which is called with the same arguments as the target, or pass another one"
)
_REPORT = "keep this code out of the graph by torch.compiler.disable, and report it to PyTorch"
_OPERATOR = "seek a custom operator whose schema or fake kernel hides what it aliases or writes"
_IN_BACKEND = "mend the backend, which computes something else than the graph that it is given"
_BACKEND_RAISES = "mend the backend, which raises where the backward pass is compiled, or runs"
_BACKWARD = "Tensor.backward()"
_OPTIMIZERS = "torch.optim."
_BY_HAND = (
    "takes a step of training, which leaves no gradients to compare: guarded by "
    "compileguard.training, they are compared"
)
_AT_STAGE = {
    "eager": f"{_TRACED}: {_SEEK}, and what it reads of objects that no graph holds",
    "aot_eager": f"{_OPERATOR}; else {_REPORT}",
    "aot_eager_decomp_partition": f"{_OPERATOR}; else {_REPORT}",
    "inductor": _REPORT,
}
_TRACING = ("eager", "aot_eager")
"""Stages that lay nothing out by themselves."""
_LAYING_OUT = {
    None: "a decomposition or the backend",
    "aot_eager_decomp_partition": "a decomposition of torch",
    "inductor": "inductor",
}
_OF_FORM: dict[MismatchKind, str] = {
    "aliasing": "return a clone where callers must not see later writes",
    "exception": "raise by torch._check, which a graph keeps, or outside of what is compiled",
    "kind": "ask for the form that callers need: a dtype, contiguous(), detach()",
}
"""What to do about faults of form, where numbers agree."""
_LAYOUT = re.compile(r"^stride: .*; the values agree$")
_LAID_OUT = (
    "the values agree: {which} lays the result out otherwise in memory, on which view(), strides "
    "and kernels depend; let the target return it .contiguous(), and call that on what depends on "
    "the layout within"
)
_ITERATOR = re.compile(r"compiled gives \w+_iterator, eager gives ")
_RUN_OUT = (
    "return a list or a tuple: Dynamo runs a generator to its end while it traces, and hands out "
    "what it gave"
)
_MADE_AN_ARRAY = re.compile(r"compiled gives ndarray, eager gives (bool|u?int|float|complex)\d*_?$")
_NUMBER_OF_NUMPY = (
    "keep a tensor, or a number of Python, float(...): Dynamo makes an array of a number of numpy"
)


def parity_findings(
    seen: ParityObservation | NotObserved,
    compilation: CompileObservation | NotObserved,
    *,
    compiled: bool,
) -> tuple[Finding, ...]:
    """Judge parity; a comparison that compared nothing never passes."""
    if isinstance(seen, NotObserved):
        return (_nothing_compared(seen.reason, compilation, compiled=compiled),)
    # A sequence that was compared in part only must not look whole.
    calls = seen.calls
    if isinstance(compilation, CompileObservation):
        calls = max(calls, compilation.calls)
    if seen.mismatches:
        finding = _differs(seen, calls)
    elif seen.calls_compared < 1 or seen.leaves_compared < 1:
        finding = _nothing_compared("; ".join(seen.unchecked), compilation, compiled=compiled)
    elif seen.calls_compared < calls:
        finding = _partly_compared(seen, calls)
    else:
        finding = _agrees(seen, calls, training_place(seen, compilation))
    return (finding, *_isolation(seen, finding))


def _nothing_compared(
    reason: str, compilation: CompileObservation | NotObserved, *, compiled: bool
) -> Finding:
    message = f"nothing was compared: {reason}" if reason else "nothing was compared"
    if compiled:
        return Finding(metric="parity", status="failed", message=message)
    return Finding(
        metric="parity", status="not_checked", message=reason or uncompiled_text(compilation)
    )


def _differs(seen: ParityObservation, calls: int) -> Finding:
    message = _where_it_differs(seen.mismatches, calls)
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


def _where_it_differs(mismatches: tuple[Mismatch, ...], calls: int) -> str:
    """Count the calls; what the reference raises instead of a result differs from nothing."""
    found = {
        side: {m.call for m in mismatches if m.against == side and not m.reference_raises}
        for side in ("eager", "reference")
    }
    raising = {m.call for m in mismatches if m.reference_raises}
    of_all = f"of {counted(calls, 'call')}"
    differs = ", and ".join(
        f"{'' if side == 'eager' else 'the '}{side} in {len(which)} {of_all}"
        for side, which in found.items()
        if which
    )
    parts = [f"compiled differs from {differs}"] if differs else []
    parts += [f"the reference raised in {len(raising)} {of_all}"] if raising else []
    parts += [] if found["eager"] else ["eager agrees with compiled"]
    return "; ".join(parts)


def _remedies(seen: ParityObservation) -> tuple[str, ...]:
    raising = any(m.reference_raises for m in seen.mismatches)
    own = [m for m in seen.mismatches if m.eager_agrees is False and not m.reference_raises]
    others = [m for m in seen.mismatches if m.eager_agrees is not False]
    of_own = (*([_MEND_REFERENCE] if raising else ()), *([_if_rounding(own, _MEND)] if own else ()))
    return (*of_own, *(_of_others(others, seen) if others else ()))


def _of_others(mismatches: list[Mismatch], seen: ParityObservation) -> tuple[str, ...]:
    """Advise on what is not the target's own doing, by where it departs and by what differs."""
    if agrees_alone(seen.departure):
        return ()
    if all(_ITERATOR.match(m.message) for m in mismatches):
        return (_RUN_OUT,)
    if all(_MADE_AN_ARRAY.match(m.message) for m in mismatches):
        return (_NUMBER_OF_NUMPY,)
    stage = seen.departure.stage if seen.departure else None
    by_compiler = stage not in _TRACING and not (stage is None and seen.asking)
    if by_compiler and all(_LAYOUT.match(m.message) for m in mismatches):
        return (_LAID_OUT.format(which=_LAYING_OUT.get(stage, "the backend")),)
    in_backend = _BACKEND_RAISES if all(map(_is_of_backward, mismatches)) else _IN_BACKEND
    otherwise = _AT_STAGE.get(stage, in_backend) if stage else _SEEK
    if stage in (None, "eager") and seen.asking:
        places = [frame_text(line.file, line.line, line.function) for line in seen.asking]
        asks = "asks" if len(places) == 1 else "ask"
        otherwise = f"{_TRACED if stage else _PERHAPS}: {', '.join(first_of(places))} {asks} {_ASK}"
    if stage == "eager" and seen.asking:
        return (otherwise,)
    return (*_of_form(mismatches), _if_rounding(mismatches, otherwise))


def _of_form(mismatches: list[Mismatch]) -> tuple[str, ...]:
    """Advise on differences that are all of one form: then no number is wrong besides."""
    kinds = {m.kind for m in mismatches}
    known = _OF_FORM.get(mismatches[0].kind)
    if known is None or len(kinds) > 1 or all(map(_is_of_backward, mismatches)):
        return ()
    results = all(m.part == "output" for m in mismatches)
    return (known,) if results or kinds != {"kind"} else ()


def _is_of_backward(mismatch: Mismatch) -> bool:
    """Whether differentiating raised: the call itself did not."""
    return mismatch.kind == "exception" and mismatch.path == "the gradients"


def _if_rounding(mismatches: list[Mismatch], otherwise: str) -> str:
    """Name rounding only where it may be the cause."""
    found = [m for m in mismatches if m.kind in _OF_NUMBERS]
    may_be = bool(found) and all(m.rounding for m in found)
    return f"{_IF_ROUNDING}; else {otherwise}" if may_be else otherwise


def _whose_fault(mismatches: tuple[Mismatch, ...]) -> tuple[str, ...]:
    """Say of a difference from the reference whether it is there before anything is compiled."""
    departing = {m.call for m in mismatches if m.against == "eager"}
    of_reference = [m for m in mismatches if m.against == "reference" and not m.reference_raises]
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


def training_place(seen: ParityObservation, compilation: CompileObservation | NotObserved) -> str:
    """Name where a target differentiates in a step of training that leaves no gradients.

    Both are known where the graph breaks: at ``backward``, and within an optimizer of torch's.
    """
    if seen.gradients_compared or isinstance(compilation, NotObserved):
        return ""
    sites = compilation.break_sites
    steps = any(name.startswith(_OPTIMIZERS) for s in sites for name in module_names(s.file))
    places = (frame_text(s.file, s.line, s.function) for s in sites if _BACKWARD in s.reason)
    return next(places, "") if steps else ""


def _agrees(seen: ParityObservation, calls: int, training: str) -> Finding:
    message = f"{seen.calls_compared} of {counted(calls, 'call')}"
    if not seen.gradients_compared:
        message += ", without gradients"
    if seen.disputed:
        leaves = counted(seen.disputed, "disputed leaf", "disputed leaves")
        message += f" ({leaves} acquitted by a float64 reference)"
    evidence = (f"{training} {_BY_HAND}",) if training else ()
    return Finding(metric="parity", status="passed", message=message, evidence=evidence)


def _isolation(seen: ParityObservation, parity: Finding) -> tuple[Finding, ...]:
    """Make visible what could not be isolated, unless ``parity`` is unclear for that reason."""
    if not seen.unchecked or parity.status in ("inconclusive", "not_checked"):
        return ()
    message = "; ".join(seen.unchecked)
    return (Finding(metric="isolation", status="not_checked", message=message),)
