"""Reads why no code in Dynamo's cache fitted a call, and finds the reason that is new.

Torch gives one reason a cache entry: the first guard of it that failed. The newest entry is not
always the nearest. After a call in double precision, one in single precision with other strides
fails that entry by its dtype, which is nothing new, and the first entry by its strides, which is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

import msgspec

from pytest_compileguard.observation import EntryReason
from pytest_compileguard.trace.guard_text import (
    FREE,
    expected_values,
    is_compared,
    is_state,
    read_guard,
)

_ENTRY = re.compile(r"^(\d+/\d+)(?:_\d+)?: ")
_OF_NUMBERS = re.compile(r"[-+<>=!,\s\de.]+")
_NEVER_DYNAMIC = ("0", "1")


class CacheEntries:
    """What each cache entry expects, as far as its guards and the reasons so far tell.

    ``guards`` are the guards of each compile id, ``numbers`` the values that became inputs
    of its graph, by subject.
    """

    def __init__(self, guards: Mapping[str, str], numbers: Mapping[str, Mapping[str, str]]) -> None:
        self._guards = guards
        self._numbers = numbers
        self._read: dict[str, dict[str, str]] = {}
        self._told: dict[str, dict[str, str]] = {}

    def reasons(self, compile_id: str, payload: str) -> tuple[EntryReason, ...]:
        """Give the reason of each entry: first the one that tells what is new about the call."""
        reasons = [_read(text) for text in _texts(payload)]
        met = {r.subject: r.after for r in reasons if r.after}
        reasons = [self._completed(reason, compile_id, met) for reason in reasons]
        self._keep(compile_id, reasons)
        entries = [reason.entry for reason in reasons]
        telling = min(reasons, key=lambda reason: self._familiarity(reason, entries))
        return (telling, *(reason for reason in reasons if reason is not telling))

    def became_free(self, compile_id: str, reason: EntryReason) -> bool:
        """Whether new code takes any size, or number, where all older code expects one.

        Its graph may not take it in, or there may be none: the guards tell.
        """
        frame, _, number = compile_id.partition("/")
        older = (self._frees(f"{frame}/{n}", reason.subject) for n in range(int(number or 0)))
        is_one = reason.before.isdigit()
        return is_one and self._frees(compile_id, reason.subject) and not any(older)

    def _frees(self, compile_id: str, subject: str) -> bool:
        is_input = subject in self._numbers.get(compile_id, {})
        return is_input and self._expected(compile_id).get(subject, FREE) == FREE

    def _keep(self, compile_id: str, reasons: Iterable[EntryReason]) -> None:
        """Note what entries expect, the new one too, of what their guards may not tell."""
        for reason in reasons:
            if reason.before and not is_compared(reason.before):
                self._told.setdefault(reason.entry, {})[reason.subject] = reason.before
            if reason.after:
                free = reason.subject in self._numbers.get(compile_id, {})
                known = self._told.setdefault(compile_id, {})
                known[reason.subject] = FREE if free else reason.after

    def _completed(
        self, reason: EntryReason, compile_id: str, met: Mapping[str, str]
    ) -> EntryReason:
        """Add the value that was met: many guards tell only what they expected.

        The reasons why other entries did not fit may tell it, or what was then compiled.
        """
        if not reason.subject or reason.after or not reason.before:
            return reason
        after = met.get(reason.subject) or self._expected(compile_id).get(reason.subject, "")
        after = "" if after == FREE else after
        if not after and _OF_NUMBERS.fullmatch(reason.before):
            after = self._numbers.get(compile_id, {}).get(reason.subject, "")
        return msgspec.structs.replace(reason, after="" if after == reason.before else after)

    def _expected(self, compile_id: str) -> dict[str, str]:
        if compile_id not in self._read:
            self._read[compile_id] = expected_values(self._guards.get(compile_id, ""))
        return self._read[compile_id]

    def _familiarity(self, reason: EntryReason, entries: list[str]) -> tuple[int, int]:
        """Rank a reason: a new value first, a value that another entry expects late.

        A global state comes last: an entry that was compiled under the state of the call is
        nearer to it. Of several, the one comes first in which the fewest states differ.
        """
        if is_state(reason.guard):
            return 3, len(reason.subject.split())
        if not reason.after:
            return 1, 0
        others = (entry for entry in entries if entry != reason.entry)
        return (2 if any(self._accepts(entry, reason) for entry in others) else 0), 0

    def _accepts(self, entry: str, reason: EntryReason) -> bool:
        value = self._expected(entry).get(reason.subject, "")
        value = value or self._told.get(entry, {}).get(reason.subject, "")
        after = reason.after
        if reason.subject.startswith("type of "):  # guards of tensors leave the module out
            value, after = value.rpartition(".")[2], after.rpartition(".")[2]
        return value == after or (value == FREE and after not in _NEVER_DYNAMIC)


def _texts(payload: str) -> list[str]:
    """Split a payload, which has one text for each cache entry, newest first."""
    text = payload.strip()
    if text.startswith("["):
        try:
            reasons = json.loads(text)
        except ValueError:
            reasons = []
        if isinstance(reasons, list) and reasons:
            return [str(reason) for reason in reasons]
    return [text]


def _read(text: str) -> EntryReason:
    entry = _ENTRY.match(text)
    failure = read_guard(text[entry.end() :] if entry else text)
    return EntryReason(
        entry=entry[1] if entry else "",
        guard=failure.text,
        subject=failure.subject,
        before=failure.before,
        after=failure.after,
        kind=failure.kind,
    )
