"""Keeps the calls that a check fails by: they are located and saved once the test is through."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from pytest_compileguard.shadow.call import ComparedCall
from pytest_compileguard.shadow.prepared import held_parameters


@dataclass(slots=True)
class FailedCalls:
    """The first failing calls of one target."""

    by_sides: ComparedCall | None = None
    """The first call whose two sides differ."""
    by_reference: ComparedCall | None = None
    """The first one whose sides agree, but not with the other implementation."""

    def keep(self, call: ComparedCall, *, sound: bool) -> bool:
        """Keep a call if it is the first; one that is ``sound`` differs from the reference alone.

        Its snapshot is the call's from then on.
        """
        if self.by_sides is not None or (sound and self.by_reference is not None):
            return False
        kept = dataclasses.replace(call, parameters=held_parameters(call.snapshot))
        if sound:
            self.by_reference = kept
        else:
            self.by_sides = kept
        return True

    def drop(self) -> None:
        """Keep none: what they started from is lost."""
        self.by_sides = self.by_reference = None
