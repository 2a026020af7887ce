"""Reads the text of a failed guard: what changed, from what to what, in the user's words.

Torch words guards in a handful of forms (``torch/_dynamo/guards.py``); a form that is
not known here is passed on as it is, with kind ``other``. Nothing is counted by these
texts, they only explain.
"""

from __future__ import annotations

import re

from pytest_compileguard.observation import RecompileKind, Record


class GuardFailure(Record):
    """One guard that failed."""

    text: str
    subject: str
    before: str
    after: str
    kind: RecompileKind


FREE = "any"
"""Stands for the value of a size, stride or number that compiled code takes as it comes."""
_MISMATCH = re.compile(
    r"tensor '(?P<name>.+?)' (?P<what>size|stride|dtype|device|rank|dispatch key set|requires_grad)"
    r" mismatch(?: at index (?P<index>\d+))?\.(?: expected (?P<before>.+?), actual (?P<after>.+))?"
)
_RANGE = re.compile(
    r"^(?:(?P<least>-?\d+) <= )?(?P<name>[^=!<>]+?)\.(?P<what>size|stride)\(\)\[(?P<index>\d+)\]"
    r"(?: (?P<compare><=|==|!=|<) (?P<most>-?\d+))?$"
)
_INTERVAL = re.compile(
    r"^(?P<least>-?\d+) (?P<above><=?) (?P<name>[^=!<>]+?)(?: (?P<below><=?) (?P<most>-?\d+))?$"
)
_TYPE = re.compile(
    r"expected type of '(?P<name>.+?)' to be (?P<before>.+?), '? ?but found (?P<after>.+)$"
)
# Torch 2.9 does not say which type it was.
_TYPE_ID = re.compile(
    r"___check_type_id\((?P<name>.+?), \d+\)(?:, type=<class '(?P<before>.+?)'>)?"
)
_RELATION = re.compile(
    r"^(?P<name>[^=!<>]+?) (?P<relation>==|!=|<=|>=|<|>|is not|is) (?P<before>.+)$"
)
_STATE = re.compile(r"GLOBAL_STATE changed: (?P<names>.+)")
_REQUIRES_GRAD = re.compile(r"expected requires_grad=([01])")
_DIMENSION = re.compile(r"\.(size|stride)\(\)\[(\d+)\]")
_NESTED = re.compile(r"(?:^|\.)_(?:modules|parameters|buffers)\['([^']+)'\]")
# Both may stand anywhere in an expression.
_VARIABLE = re.compile(r"(?<![\w'\].])[LG]\['([^']+)'\]")
_POSITION = re.compile(r"(?<![\w'\].])args\[(\d+)\]")
# One line of ``dynamo_cpp_guards_str``, which draws a tree.
_GUARD_LINE = re.compile(r"^[| ]*\+- [A-Z_]+: (.+)$")
_COMPARED = re.compile(r"^(?:[=!<>]|is\b|$)")
# What another input must equal is no value: torch 2.11 guards a free number by itself.
_RELATIVE = re.compile(r"(?:==|\bis) .*\b[LG]\[")
_CHECK_TENSOR = re.compile(
    r"^check_tensor\((?P<name>[^,]+), (?P<type>\w+), .*\btorch\.(?P<dtype>\w+),"
    r".* requires_grad=(?P<requires_grad>\w+), size=\[(?P<size>[^\]]*)\],"
    r" stride=\[(?P<stride>[^\]]*)\]"
)
# Reasons name dtypes as C++ does, guards as Python does.
_DTYPES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}
_PLAIN_KINDS: dict[str, RecompileKind] = {
    "size": "size",
    "stride": "stride",
    "dtype": "dtype",
    "rank": "rank",
    "requires_grad": "requires_grad",
}


def read_guard(reason: str) -> GuardFailure:
    """Make sense of one reason, without the id of its cache entry."""
    bare = _without_source(reason)
    for read in _READERS:
        if failure := read(bare):
            return failure
    return GuardFailure(text=bare, subject="", before="", after="", kind="other")


def is_state(text: str) -> bool:
    """Whether a guard failed for a global state, as is grad mode, and not for an argument."""
    return bool(_STATE.search(text))


def is_compared(before: str) -> bool:
    """Whether a guard holds for more than one value: ``>= 2``."""
    return bool(_COMPARED.match(before))


def expected_values(guards: str) -> dict[str, str]:
    """Read the values that guards of compiled code expect, by subject.

    ``FREE`` is that of a size or stride that may have any.
    """
    found: dict[str, str] = {}
    for line in guards.splitlines():
        if match := _GUARD_LINE.match(line):
            failure = read_guard(match[1])
            known = not is_compared(failure.before) and not _RELATIVE.search(match[1])
            told = {failure.subject: failure.before} if known else {}
            for subject, value in {**told, **_of_tensor(match[1])}.items():
                # A later guard may hold a size that its tensor leaves free to one value.
                if subject not in found or (found[subject] == FREE and value.isdigit()):
                    found[subject] = value
    return found


def _of_tensor(guard: str) -> dict[str, str]:
    """Read from ``check_tensor(L['x'], Tensor, ..., torch.float32, ..., size=[1, None], ...)``."""
    match = _CHECK_TENSOR.match(guard)
    if not match:
        return {}
    name = subject_name(match["name"])
    sizes, strides = (_numbers(match[what]) for what in ("size", "stride"))
    return {
        f"type of {name}": match["type"],
        f"{name}.dtype": _DTYPES.get(match["dtype"], match["dtype"].capitalize()),
        f"{name}.requires_grad": match["requires_grad"],
        f"{name}.rank": str(len(sizes)),
        **{f"{name}.size({index})": size for index, size in enumerate(sizes)},
        **{f"{name}.stride({index})": stride for index, stride in enumerate(strides)},
    }


def _numbers(text: str) -> list[str]:
    return [FREE if word == "None" else word for word in re.findall(r"\w+", text)]


def subject_name(name: str) -> str:
    """Turn ``fn._modules['dropout'].training`` into ``dropout.training``, and the like."""
    if name.strip()[:1] in ("'", '"'):  # a string that is compared with
        return name.strip()
    plain = _VARIABLE.sub(r"\1", name.strip())
    plain = re.sub(r"\.__dict__\['([^']+)'\]", r".\1", plain)
    plain = _NESTED.sub(lambda match: "." + match[1], plain)
    plain = _DIMENSION.sub(r".\1(\2)", plain)
    plain = re.sub(r"^(?:fn|___fn)\.", "", plain)
    return _POSITION.sub(r"argument \1", plain.lstrip("."))


def _without_source(reason: str) -> str:
    """Drop the comment with the source line and the stack, which torch appends."""
    return re.split(r"\s{2,}# |\nUser stack trace:", reason, maxsplit=1)[0].strip()


def _read_mismatch(text: str) -> GuardFailure | None:
    match = _MISMATCH.search(text)
    if not match:
        return None
    subject, what = subject_name(match["name"]), match["what"]
    subject = f"{subject}.{what}({match['index']})" if match["index"] else f"{subject}.{what}"
    # Torch appends advice to some, after a full stop.
    before, after = (match["before"] or "").strip(), (match["after"] or "").partition(". ")[0]
    after = after.strip().rstrip(".")
    if flag := _REQUIRES_GRAD.search(text):
        before, after = ("True", "False") if flag[1] == "1" else ("False", "True")
    kind = _PLAIN_KINDS.get(what, "other")
    return GuardFailure(text=text, subject=subject, before=before, after=after, kind=kind)


def _read_range(text: str) -> GuardFailure | None:
    match = _RANGE.match(text)
    if not match:
        return None
    what = match["what"]
    bounds = [f">= {match['least']}"] if match["least"] else []
    bounds += [f"{match['compare']} {match['most']}"] if match["most"] else []
    return GuardFailure(
        text=text,
        subject=f"{subject_name(match['name'])}.{what}({match['index']})",
        before=", ".join(bounds),
        after="",
        kind=_PLAIN_KINDS[what],
    )


def _read_interval(text: str) -> GuardFailure | None:
    """Read ``0 <= i <= 4``: torch bounds numbers, and what is made of them, from both sides."""
    match = _INTERVAL.match(text)
    if not match:
        return None
    subject = subject_name(match["name"])
    bounds = [f"{match['above'].replace('<', '>')} {match['least']}"]
    bounds += [f"{match['below']} {match['most']}"] if match["below"] else []
    return GuardFailure(
        text=text,
        subject=subject,
        before=", ".join(bounds),
        after="",
        kind=_relation_kind(text, subject, match["least"]),
    )


def _read_state(text: str) -> GuardFailure | None:
    match = _STATE.search(text)
    if not match:
        return None
    names = match["names"].strip()
    kind: RecompileKind = "grad_mode" if "grad_mode" in names else "other"
    return GuardFailure(text=text, subject=names, before="", after="", kind=kind)


def _read_identity(text: str) -> GuardFailure | None:
    match = re.search(r"___check_(?:obj|type)_id\(([^,]+)|ID_MATCH|BACKEND_MATCH", text)
    if not match:
        return None
    subject = subject_name(match[1]) if match[1] else ""
    return GuardFailure(text=text, subject=subject, before="", after="", kind="identity")


def _read_type(text: str) -> GuardFailure | None:
    match = _TYPE.search(text)
    if not match:
        return None
    before, after = (re.sub(r"<class '(.+?)'>", r"\1", match[n]) for n in ("before", "after"))
    subject = f"type of {subject_name(match['name'])}"
    return GuardFailure(text=text, subject=subject, before=before, after=after, kind="other")


def _read_type_id(text: str) -> GuardFailure | None:
    match = _TYPE_ID.search(text)
    if not match:
        return None
    subject, before = f"type of {subject_name(match['name'])}", match["before"] or ""
    # Without the address, which no two runs share.
    told = f"type({match['name']}) is {before or 'what it was'}"
    return GuardFailure(text=told, subject=subject, before=before, after="", kind="other")


def _read_relation(text: str) -> GuardFailure | None:
    match = _RELATION.match(text)
    if not match:
        return None
    name, relation, before = match["name"], match["relation"], subject_name(match["before"])
    # Of a dict, torch says `len(d) != 1` if it expected one item.
    expected = relation in {"==", "is"} or (relation == "!=" and name.startswith("len("))
    subject = subject_name(name.removeprefix("(").removesuffix(")") if name[0] == "(" else name)
    return GuardFailure(
        text=text,
        subject=subject,
        before=before if expected else f"{relation} {before}",
        after="",
        kind=_relation_kind(text, subject, before),
    )


def _relation_kind(text: str, subject: str, before: str) -> RecompileKind:
    if dimension := _DIMENSION.search(text):
        return _PLAIN_KINDS[dimension[1]]
    if subject.endswith(".training"):
        return "training"
    return "presence" if before == "None" else "value"


_READERS = (
    _read_mismatch,
    _read_range,
    _read_interval,
    _read_state,
    _read_type,
    _read_type_id,
    _read_identity,
    _read_relation,
)
