"""Holds the compiled target against another implementation of the same call.

A kernel against plain torch, for instance. What a caller gets is compared: outputs, what
was written to arguments, and gradients; not strides, nor Python state, nor where results
lie in memory, since those belong to an implementation.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from pytest_compileguard import dynamo
from pytest_compileguard.answers import answer
from pytest_compileguard.code_origin import calling_lines
from pytest_compileguard.isolation.mirror import Mirror
from pytest_compileguard.isolation.quiet import silenced
from pytest_compileguard.observation import Mismatch
from pytest_compileguard.parity.judging import CallParity
from pytest_compileguard.parity.side import Side
from pytest_compileguard.plan import Plan
from pytest_compileguard.shadow.call import ComparedCall, ShadowCall
from pytest_compileguard.shadow.prepared import Prepared
from pytest_compileguard.target import definition
from pytest_compileguard.trace.compile_error import first_lines


class OtherImplementation:
    """A reference that the test gives, over all calls of the target."""

    def __init__(self, plan: Plan, reference: Callable[..., Any]) -> None:
        self._plan = plan
        self.reference = reference
        self._mirror = Mirror(share_parameters=True, compiled_form=dynamo.compiled_form)
        self._prepared: Prepared | None = None

    def prepare(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], names: tuple[str, ...]
    ) -> None:
        """Copy the reference and the arguments as they are before the call."""
        twin = self._mirror.target(self.reference)
        copies = self._mirror.arguments(args, kwargs, names)
        self._prepared = Prepared(target=twin, mirror=self._mirror, copies=copies, names=names)

    def compare(
        self, made: ShadowCall, eager: Side, compiled: Side, call: ComparedCall
    ) -> Prepared | None:
        """Make the call by the reference, add what differs; the call, for timing."""
        prepared = self._prepared
        if prepared is None or made.parity is None:
            return None
        call.scene.restore()
        with silenced(), dynamo.eager_stance():
            side = prepared.run(call.cotangents)
        self._mirror.release()
        found = self._compared(side, compiled, call)
        made.parity.leaves += found.leaves
        made.parity.gradients += found.gradients
        made.parity.disputed += found.disputed
        made.parity.unchecked |= {_of_reference(note): None for note in found.unchecked}
        if side.error is not None and eager.error is None:
            made.parity.mismatches += [
                _reference_raises(mismatch, side.error, self.reference)
                for mismatch in found.mismatches
            ]
        elif found.mismatches:
            # Whose fault it is: the compiler's, or that of the code as it stands.
            odd = {mismatch.path for mismatch in self._compared(side, eager, call).mismatches}
            made.parity.mismatches += [
                _against_reference(mismatch, eager_agrees=mismatch.path not in odd)
                for mismatch in found.mismatches
            ]
        return prepared if side.error is None else None

    def _compared(self, reference: Side, target: Side, call: ComparedCall) -> CallParity:
        comparison = call.comparison_by(lambda nudge: call.in_float64(nudge, self.reference))
        return comparison.compare_results(reference, target)


def _of_reference(text: str) -> str:
    return text.replace("eager can't be", "the reference can't be")


def _against_reference(mismatch: Mismatch, *, eager_agrees: bool) -> Mismatch:
    message = mismatch.message.replace("eager", "reference")
    return msgspec.structs.replace(
        mismatch, message=message, against="reference", eager_agrees=eager_agrees
    )


def _reference_raises(
    mismatch: Mismatch, error: Exception, reference: Callable[..., Any]
) -> Mismatch:
    """Tell what the reference raises: that says nothing of the target, which does not."""
    text = first_lines(answer(str, error, default="")).replace("\n", " ")
    told = f"the reference raises {type(error).__name__}{_place(error, reference)}"
    return msgspec.structs.replace(
        mismatch,
        message=f"{told}: {text}" if text else told,
        against="reference",
        eager_agrees=False,
        reference_raises=True,
    )


def _place(error: Exception, reference: Callable[..., Any]) -> str:
    """Say where it was raised; of arguments that don't fit, what it is that doesn't take them."""
    stack = [(e.filename, e.lineno or 0, e.name) for e in traceback.extract_tb(error.__traceback__)]
    if own := calling_lines(stack):
        return f" (at {own[0].file}:{own[0].line} in {own[0].function})"
    defined = definition(reference)
    return f" (defined at {defined.file}:{defined.line})" if defined else ""
