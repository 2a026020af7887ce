"""What all records are made of, and what several of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options: Any) -> Callable[[type], type]:
        """Leave the class as it is: only type checkers need to know (in typing from 3.11 on)."""
        return lambda kind: kind


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records."""


Origin = Literal["torch", "third party", "test", "package"]


NO_CALL = "the test made no guarded call"
"""Why nothing was observed of a target that was guarded and never called."""


class NotObserved(Record, tag=True):
    """A phase that saw nothing, and why."""

    reason: str
    unavailable: bool = False
    """Whether this machine can't observe it at all, however often it is tried."""
    in_the_test: bool = False
    """Whether the test's own code is why: then no run will ever observe it, and the check fails."""


class CodeLine(Record):
    """One line of the user's own code that something in other code belongs to."""

    file: str
    line: int
    function: str
    source: str
    """The text of the line, stripped; empty if the file can't be read."""
    role: Literal["call", "definition", "raise"] = "call"
    """Whether the line calls that code, defines the function that is meant, or raises the error."""
