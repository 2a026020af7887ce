"""Says which guard failed, what changed, and what to do so that it does not."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_compileguard.findings.wording import (
    call_text,
    counted,
    first_of,
    frame_text,
    place_text,
)
from pytest_compileguard.observation import Recompile, RecompileKind
from pytest_compileguard.plan import CompileArguments
from pytest_compileguard.trace.frames import WRAPPER_FILE

_SIZES: tuple[RecompileKind, ...] = ("automatic_dynamic", "size")
_REMEDIES: dict[RecompileKind, str] = {
    "stride": "keep one memory layout: call .contiguous() before the target, or keep strides equal",
    "dtype": "keep one dtype for all calls",
    "rank": "keep one number of dimensions: unsqueeze or flatten before the call",
    "requires_grad": "keep requires_grad of each argument the same for all calls",
    "training": "keep one of train() and eval() for all calls",
    "presence": "always pass the argument, or never: None and a value are compiled apart",
    "identity": "pass the same object in every call, or compile once and keep the result",
    "grad_mode": "keep one grad mode for all calls: always or never in torch.no_grad()",
}
_VALUE_REMEDIES = {
    "length": "each length is compiled apart: pad to one length, stack the items into one tensor, "
    "or allow the lengths in use with max_recompiles",
    "keywords": "that length is the number of keyword arguments: pass the same ones in each call, "
    "also those that only some calls need, or allow the sets in use with max_recompiles",
    "positions": "that length is the number of positional arguments: pass as many in each call, or "
    "allow the numbers in use with max_recompiles",
    "flag": "a flag is compiled once for each value: allow the other one with max_recompiles=1, "
    "or make two functions",
    "string": "a string is compiled once for each value: allow those in use with max_recompiles, "
    "or make a function for each",
    "number": "pass a tensor instead of the number, or hoist what is constant out of the calls",
    "attribute": "keep the number in a tensor (a buffer), or hoist it out of the calls; whole "
    "numbers of a module become dynamic with "
    "torch._dynamo.config.allow_unspec_int_on_nn_module = True",
    "other": "the value is constant in the compiled code: keep one for all calls, or compile "
    "once for each",
}
_NUMBER_REMEDY = (
    "the first change of a number makes it dynamic: allow that one with max_recompiles=1, "
    "or pass a tensor"
)
_LEARNING_RATE_REMEDY = (
    "give the optimizer its learning rate as a tensor, lr=torch.tensor(...), as torch advises for "
    "compiled optimizers; schedulers then change it in place, by hand that is "
    "group['lr'].fill_(...)"
)
_GROUP_REMEDY = (
    "a number in param_groups is compiled once for each value: keep {name} for all steps, or pass "
    "it as a tensor if the optimizer takes one, and change that in place"
)
_OF_GROUP = re.compile(r"\bparam_groups\[\d+\]\['(\w+)'\]")
_ARGUMENTS = {
    "len(args)": "positions",
    "len(kwargs)": "keywords",
    "len(kwds)": "keywords",
    "len(kw)": "keywords",
}
"""By names that by convention stand for nothing else: torch does not say that they are no list."""
_NUMBER = re.compile(r"-?(?:\d[\d_]*\.?\d*|\.\d+|inf|nan)(?:e[+-]?\d+)?j?")
_RANGE = re.compile(r">= (-?\d+), <= (-?\d+)")
_SIZE = re.compile(r"(?P<tensor>argument \d+|[A-Za-z_][\w.\[\]'\"]*)\.size\((?P<index>\d+)\)")
_MARKED = "with torch._dynamo.mark_dynamic"
_KEPT_STATIC = re.compile(r"consider using (?P<setting>torch\._dynamo\.config\.\w+ = \w+)")
"""Torch's advice where it specialises sizes on purpose, whatever is marked: those of parameters."""


def recompile_phrase(recompile: Recompile) -> str:
    """Say one recompile in a few words, for a line that is not about it alone."""
    then = ", then dynamic" if recompile.kind == "automatic_dynamic" else ""
    return f"{_what_changed(recompile)}{then}"


def recompile_lines(recompiles: Sequence[Recompile]) -> tuple[str, ...]:
    """Show each recompile with its guard and place, after how many frames they hit."""
    lines = [_line(recompile) for recompile in recompiles]
    completed = [recompile for recompile in recompiles if not recompile.refused]
    frames = _frames(completed)
    if frames > 1:
        total = f"{counted(len(completed), 'recompile')} in {counted(frames, 'frame')}"
        return (total, *first_of(lines))
    return first_of(lines)


def recompile_place(recompile: Recompile) -> str:
    """Say where the frame is; what torch puts around a module of its own classes says nothing."""
    place, caller = place_text(recompile.file, recompile.line), recompile.called_from
    if caller is None:
        return place
    called = f"called from {frame_text(caller.file, caller.line, caller.function)}"
    return called if recompile.file.endswith(WRAPPER_FILE) else f"{place}, {called}"


def reasons_text(recompile: Recompile) -> str:
    """Give the reasons of all cache entries as torch words them, the one that counts first."""
    if not recompile.other_reasons:
        return recompile.guard
    others = [f"{reason.entry}: {reason.guard}" for reason in recompile.other_reasons]
    return "\n".join((f"{recompile.entry}: {recompile.guard}", *others))


def recompile_remedy(recompiles: Sequence[Recompile], arguments: CompileArguments) -> str:
    """Say what to change, one line for each kind of cause."""
    of_groups = [r for r in recompiles if _OF_GROUP.search(r.subject)]
    remedies = list(dict.fromkeys(_group_remedy(r) for r in of_groups))
    remedies += _remedies([r for r in recompiles if r not in of_groups], arguments)
    if _frames(recompiles) > 1:
        remedies.append("every part of a broken frame recompiles: mend the graph breaks first")
    return "\n".join(remedies)


def _group_remedy(recompile: Recompile) -> str:
    """Say what to do about a value that an optimizer keeps for a group of parameters."""
    match = _OF_GROUP.search(recompile.subject)
    name = match[1] if match else ""
    return _LEARNING_RATE_REMEDY if name == "lr" else _GROUP_REMEDY.format(name=name)


def _remedies(recompiles: Sequence[Recompile], arguments: CompileArguments) -> list[str]:
    of_sizes = [r for r in recompiles if r.kind in _SIZES and ".size(" in r.subject]
    static = [r for r in of_sizes if _KEPT_STATIC.search(r.guard)]
    free = [r for r in of_sizes if r not in static]
    values = [r for r in recompiles if r.kind == "value"]
    branching = [] if arguments.dynamic is False else [r for r in free if _is_branch(r)]
    sized = [r for r in free if r not in branching]
    ranged = [r for r in values if _is_range(r)]
    remedies = [_size_remedy(sized, arguments, alone=len(recompiles) == 1)] if sized else []
    remedies += dict.fromkeys(_static_remedy(r) for r in static)
    remedies += dict.fromkeys(_branch_remedy(r) for r in (*branching, *ranged))
    if any(r.kind == "automatic_dynamic" and r not in of_sizes for r in recompiles):
        remedies.append(_NUMBER_REMEDY)
    if any(r.subject.startswith("type of ") for r in recompiles):
        remedies.append("pass values of one type in all calls")
    kinds = dict.fromkeys(recompile.kind for recompile in recompiles)
    remedies += [_REMEDIES[kind] for kind in kinds if kind in _REMEDIES]
    value_kinds = dict.fromkeys(_value_kind(r) for r in values if r not in ranged)
    remedies += [_VALUE_REMEDIES[kind] for kind in value_kinds]
    return remedies


def _size_remedy(sized: Sequence[Recompile], arguments: CompileArguments, *, alone: bool) -> str:
    if arguments.dynamic is False:
        return (
            "dynamic=False specialises every size: leave dynamic unset, "
            "or give every call the same sizes"
        )
    if any(_is_small(recompile) for recompile in sized):
        return "sizes 0 and 1 are always specialised: keep them apart, or pad them"
    named = (_mark(match) for r in sized if (match := _SIZE.fullmatch(r.subject)))
    mark = next(filter(None, named), f"mark the dimension {_MARKED}(tensor, index)")
    return f"{mark}, or allow one with max_recompiles=1" if alone else mark


def _mark(match: re.Match[str]) -> str:
    """Say which dimension to mark; empty where only torch has a name for the tensor."""
    tensor, index = match["tensor"], match["index"]
    if tensor.startswith("___"):
        return ""
    if tensor.startswith("argument "):
        return f"mark dimension {index} of {tensor} {_MARKED}(tensor, {index})"
    return f"mark the dimension {_MARKED}({tensor}, {index})"


def _static_remedy(recompile: Recompile) -> str:
    match = _KEPT_STATIC.search(recompile.guard)
    setting = match["setting"] if match else ""
    return (
        f"each size of {recompile.subject.rpartition('.size(')[0]} is compiled apart, as torch "
        f"keeps it static: allow those in use with max_recompiles, or set {setting}"
    )


def _value_kind(recompile: Recompile) -> str:
    subject, before = recompile.subject, recompile.before
    if subject.startswith("len("):
        return _ARGUMENTS.get(subject, "length")
    if before in ("True", "False"):
        return "flag"
    if before[:1] in ("'", '"'):
        return "string"
    if _NUMBER.fullmatch(before):
        return "attribute" if "." in subject else "number"
    return "other" if before else "number"


def _is_range(recompile: Recompile) -> bool:
    """Whether what was compiled holds for many values of a number."""
    return recompile.before[:1] in ("<", ">", "!")


def _is_branch(recompile: Recompile) -> bool:
    """Whether code asks for a size: what was compiled holds for a range, or for a relation."""
    before = recompile.before
    if not recompile.subject.endswith(")"):  # a remainder, a sum
        return bool(before)
    return bool(before) and not before.isdigit() and not _is_small(recompile)


def _branch_remedy(recompile: Recompile) -> str:
    subject, before = recompile.subject, recompile.before
    bounds = _bounds(before) if _is_range(recompile) else f"== {before}"
    return (
        f"code branches on {subject}: what was compiled holds while it is {bounds}; keep all calls "
        "on one side, take the branch out of the target, or allow one compile for each side with "
        "max_recompiles"
    )


def _is_small(recompile: Recompile) -> bool:
    return recompile.after in ("0", "1") or recompile.before == ">= 2"


def _frames(recompiles: Sequence[Recompile]) -> int:
    """Count frames by the part of the compile id before the last slash."""
    return len({recompile.compile_id.rpartition("/")[0] for recompile in recompiles})


def _line(recompile: Recompile) -> str:
    kind = "refused by the recompile limit" if recompile.refused else recompile.kind
    place = recompile_place(recompile)
    others = _other_entries(recompile)
    what = f"{_what_changed(recompile)} ({kind.replace('_', ' ')}{others})"
    return f"{what}    {place}" if place else what


def _other_entries(recompile: Recompile) -> str:
    """Say by what the call fails other cache entries, where that is another property."""
    apart = [r for r in recompile.other_reasons if r.subject != recompile.subject]
    if not apart:
        return ""
    kinds = " and ".join(dict.fromkeys(r.kind.replace("_", " ") for r in apart))
    verb = "fails" if len(apart) == 1 else "fail"
    return f"; {counted(len(apart), 'other entry', 'other entries')} {verb} by {kinds}"


def _what_changed(recompile: Recompile) -> str:
    where = f"{call_text(recompile.call)}, {recompile.compile_id} {recompile.frame}"
    return f"{where}: {_guard(recompile)}"


def _bounds(before: str) -> str:
    """Say ``>= 2, <= 20`` as people do."""
    both = _RANGE.fullmatch(before)
    return f"{both[1]} to {both[2]}" if both else before


def _is_one_value(recompile: Recompile) -> bool:
    """Whether the guard expected one value, so that another one was met."""
    of_value = recompile.kind in ("value", "automatic_dynamic") and "size(" not in recompile.subject
    return of_value and recompile.before[0] not in "=!<>"


def _guard(recompile: Recompile) -> str:
    subject, before, after = recompile.subject, recompile.before, recompile.after
    if not subject:
        return recompile.guard
    if before and after:
        return f"{subject} {_bounds(before)} -> {after}"
    if recompile.kind == "presence" and before in ("None", "is not None"):
        return f"{subject} None -> a value" if before == "None" else f"{subject} a value -> None"
    if before and _is_one_value(recompile):
        return f"{subject} was {before}"
    # The value met is not known: the guard's own words say more than half a change.
    return f"{subject} ({recompile.guard})" if recompile.guard else subject
