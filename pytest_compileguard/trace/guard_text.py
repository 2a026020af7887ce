"""Reads the text of a failed guard: what changed, from what to what, in the user's words.

Torch words guards in a handful of forms (``torch/_dynamo/guards.py``); a form that is
not known here is passed on as it is, with kind ``other``. Nothing is counted by these
texts, they only explain.
"""

from __future__ import annotations

import json
import re

import msgspec

from pytest_compileguard.observation import RecompileKind, Record


class GuardFailure(Record):
    """One guard that failed."""

    text: str
    subject: str
    before: str
    after: str
    kind: RecompileKind


_ENTRY = re.compile(r"^\d+/\d+(?:_\d+)?: ")
_MISMATCH = re.compile(
    r"tensor '(?P<name>.+?)' (?P<what>size|stride|dtype|device|rank|dispatch key set|requires_grad)"
    r" mismatch(?: at index (?P<index>\d+))?\.(?: expected (?P<before>.+?), actual (?P<after>.+))?"
)
_RANGE = re.compile(
    r"^(?:(?P<least>-?\d+) <= )?(?P<name>[^=!<>]+?)\.(?P<what>size|stride)\(\)\[(?P<index>\d+)\]"
    r"(?: (?P<compare><=|==|!=|<) (?P<most>-?\d+))?$"
)
_TYPE = re.compile(
    r"expected type of '(?P<name>.+?)' to be (?P<before>.+?), '? ?but found (?P<after>.+)$"
)
_RELATION = re.compile(
    r"^(?P<name>[^=!<>]+?) (?P<relation>==|!=|<=|>=|<|>|is not|is) (?P<before>.+)$"
)
_STATE = re.compile(r"GLOBAL_STATE changed: (?P<names>.+)")
_REQUIRES_GRAD = re.compile(r"expected requires_grad=([01])")
_DIMENSION = re.compile(r"\.(size|stride)\(\)\[(\d+)\]")
_NESTED = re.compile(r"(?:^|\.)_(?:modules|parameters|buffers)\['([^']+)'\]")
# One line of ``dynamo_cpp_guards_str``, which draws a tree.
_GUARD_LINE = re.compile(r"^[| ]*\+- [A-Z_]+: (.+)$")
_COMPARED = re.compile(r"^(?:[=!<>]|is\b|$)")
_CHECK_TENSOR = re.compile(r"^check_tensor\((?P<name>[^,]+), .*\bsize=\[(?P<sizes>[^\]]*)\]")
_SIZE_SUBJECT = re.compile(r"(?P<name>.+)\.size\((?P<index>\d+)\)")
_PLAIN_KINDS: dict[str, RecompileKind] = {
    "size": "size",
    "stride": "stride",
    "dtype": "dtype",
    "rank": "rank",
    "requires_grad": "requires_grad",
}


def telling_reason(payload: str) -> str:
    """Take one reason from the payload of ``recompile_reasons``, which has one a cache entry.

    The newest entry's, unless that only says that a global state is another one: an entry that
    was compiled under this state is nearer to the call, and tells what is new.
    """
    texts = _reasons(payload)
    return next((t for t in texts if not _STATE.search(t)), texts[0])


def _reasons(payload: str) -> list[str]:
    """Give all reasons of a payload, one a cache entry, newest first."""
    text = payload.strip()
    if text.startswith("["):
        try:
            reasons = json.loads(text)
        except ValueError:
            reasons = []
        if isinstance(reasons, list) and reasons:
            return [str(reason) for reason in reasons]
    return [text]


def read_guard(payload: str, new_guards: str = "") -> GuardFailure:
    """Make sense of one ``recompile_reasons`` payload.

    Many guards tell only what they expected. ``new_guards``, those of the code that was then
    compiled, tell what was met; so may the reasons why older code did not fit.
    """
    failure = _read(telling_reason(payload))
    if not failure.subject or failure.after or not failure.before:
        return failure
    others = (_read(reason) for reason in _reasons(payload)[1:])
    met = [other.after for other in others if other.subject == failure.subject and other.after]
    after = met[0] if met else _expected(new_guards, failure.subject)
    if after == failure.before:
        after = ""
    return msgspec.structs.replace(failure, after=after)


def _read(reason: str) -> GuardFailure:
    bare = _ENTRY.sub("", _without_source(reason))
    for read in _READERS:
        if failure := read(bare):
            return failure
    return GuardFailure(text=bare, subject="", before="", after="", kind="other")


def _expected(guards: str, subject: str) -> str:
    """Find the value that guards of new code expect of a subject: the one that was met."""
    for line in guards.splitlines():
        if match := _GUARD_LINE.match(line):
            failure = _read(match[1])
            if failure.subject == subject and not _COMPARED.match(failure.before):
                return failure.before
            if size := _size_of(match[1], subject):
                return size
    return ""


def _size_of(guard: str, subject: str) -> str:
    """Read a size from ``check_tensor(L['x'], ..., size=[1, None], ...)``; empty if it is free."""
    match, wanted = _CHECK_TENSOR.match(guard), _SIZE_SUBJECT.fullmatch(subject)
    if not match or not wanted or subject_name(match["name"]) != wanted["name"]:
        return ""
    sizes = [size.strip() for size in match["sizes"].split(",")]
    index = int(wanted["index"])
    return sizes[index] if index < len(sizes) and sizes[index].isdigit() else ""


def subject_name(name: str) -> str:
    """Turn ``fn._modules['dropout'].training`` into ``dropout.training``, and the like."""
    plain = re.sub(r"^(len\()?[LG]\['([^']+)'\]", r"\1\2", name.strip())
    plain = re.sub(r"\.__dict__\['([^']+)'\]", r".\1", plain)
    plain = _NESTED.sub(lambda match: "." + match[1], plain)
    plain = _DIMENSION.sub(r".\1(\2)", plain)
    plain = re.sub(r"^(?:fn|___fn)\.", "", plain)
    return re.sub(r"^args\[(\d+)\]", r"argument \1", plain.lstrip("."))


def _without_source(reason: str) -> str:
    """Drop the comment with the source line and the stack, which torch appends."""
    return re.split(r"\s{2,}# |\nUser stack trace:", reason, maxsplit=1)[0].strip()


def _read_mismatch(text: str) -> GuardFailure | None:
    match = _MISMATCH.search(text)
    if not match:
        return None
    subject, what = subject_name(match["name"]), match["what"]
    subject = f"{subject}.{what}({match['index']})" if match["index"] else f"{subject}.{what}"
    before, after = (match["before"] or "").strip(), (match["after"] or "").strip().rstrip(".")
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
    _read_state,
    _read_type,
    _read_identity,
    _read_relation,
)
