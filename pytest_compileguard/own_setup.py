"""Calls the ``setup`` that a test gives for timing, and sees whether it can be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pytest_compileguard.observation import NotObserved, SpeedObservation
from pytest_compileguard.shadow.call import Timeable
from pytest_compileguard.shadow.inputs import inputs_text, tensor_texts
from pytest_compileguard.target import kind_text
from pytest_compileguard.training_step import TrainingStep

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_AGAIN = "when it was called again"
_MAY_BE = "None, or a pair of args and kwargs"


class OwnSetup:
    """A test's own ``setup``; what is wrong with it is the test's fault, not that of timing."""

    def __init__(self, setup: Callable[[], object], timed: Timeable) -> None:
        self._setup = setup
        args, kwargs, _ = timed.compiled.copies
        self._compared = args, kwargs
        # A step of training is also told which of its parts is to be made.
        self._part = args[:1] if isinstance(timed.eager.target, TrainingStep) else ()
        self._wrong = ""
        self._gives = False
        """Whether it gave arguments, and not only prepared something."""
        self._other = ""
        """How what it gave first differs from what was compared."""

    def __call__(self) -> object:
        try:
            given = self._setup()
        except Exception as error:
            self._wrong = f"raised {type(error).__name__}: {error}"
            raise
        match given:
            case None:
                pass
            case ((tuple() | list()) as args, dict() as kwargs) if isinstance(given, tuple):
                given = (*self._part, *args), kwargs
                self._gives = True
                self._other = self._other or _difference(self._compared, given)
            case _:
                self._wrong = f"returned {kind_text(given)}: it may be {_MAY_BE}"
        return given

    def judged(self, seen: SpeedObservation | NotObserved) -> SpeedObservation | NotObserved:
        """Put down to the setup what it spoilt, and say where it gave other inputs."""
        if self._wrong:
            return NotObserved(reason=f"setup= {self._wrong}", in_the_test=True)
        if isinstance(seen, NotObserved) and self._gives and _AGAIN in seen.reason:
            given = self._other or "arguments"
            reason = f"setup= gives {given}, and with them {seen.reason}"
            return NotObserved(reason=reason, in_the_test=True)
        if isinstance(seen, NotObserved) or not self._other:
            return seen
        note = f"setup= gives {self._other}: the times are of other inputs"
        return msgspec.structs.replace(seen, notes=(note, *seen.notes))


def _difference(compared: Arguments, given: Arguments) -> str:
    """Say how arguments differ in shapes and dtypes, in whichever order they are passed."""
    before, now = tensor_texts(*compared), tensor_texts(*given)
    if before is None or now is None or sorted(before) == sorted(now):
        return ""
    return f"{inputs_text(*given)} where {inputs_text(*compared)} was compared"
