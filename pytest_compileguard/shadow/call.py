"""What one guarded call consists of, what it left, and how it is made again."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_compileguard import dynamo
from pytest_compileguard.errors import IsolationError
from pytest_compileguard.isolation.ambient import Ambient
from pytest_compileguard.isolation.scene import Scene
from pytest_compileguard.isolation.widening import Nudge, wide_numbers
from pytest_compileguard.observation import Mismatch
from pytest_compileguard.parity.draws import Draw, Recording, Replaying
from pytest_compileguard.parity.float64_runs import MakeRun
from pytest_compileguard.parity.gradients import Cotangents
from pytest_compileguard.parity.judging import CallParity, LeafJudge
from pytest_compileguard.parity.precision import NOT_NARROW, Narrow
from pytest_compileguard.parity.side import Side
from pytest_compileguard.parity.sides import SideComparison
from pytest_compileguard.parity.tolerance import Tolerance
from pytest_compileguard.shadow.float64 import Types, recorded_draws, run_in_float64
from pytest_compileguard.shadow.prepared import Prepared
from pytest_compileguard.trace.compile_error import explain_error, explain_run_error

GRADIENTS = "the gradients"
"""The path of a mismatch that is about all of them."""
_IN_BACKWARD = (
    "mend what the backend raises there: it is compiled only when a gradient is asked for; "
    'backend="aot_eager" tells whether the backend alone fails'
)


@dataclass(kw_only=True, slots=True)
class ShadowCall:
    """What one guarded call left."""

    index: int
    value: Any = None
    error: Exception | None = None
    """What the real call raised."""
    trace: dynamo.CallTrace | None = None
    counters: dynamo.Counters | None = None
    """How torch's counters moved during the compiled call."""
    parity: CallParity | None = None
    drew_random: bool = False
    imported: tuple[str, ...] = ()
    """Modules of the user that the real call imported for the first time."""
    compile_error: tuple[str, str] | None = None
    """Why the compiled call failed although eager does not, and the remedy."""
    raised: bool = False
    """Whether it was compiled well, and failed as it ran."""
    problem: str | None = None
    """Why there is no shadow; the check fails by it."""
    hindrances: tuple[str, ...] = ()
    inputs: str | None = None
    """Shapes and dtypes of what was passed in; ``None`` for a watched block."""
    notes: dict[str, None] = field(default_factory=dict)

    def put_back(self, left: Scene) -> None:
        """Leave to the test what its own call left; the check fails where that can't be."""
        try:
            left.restore()
        except Exception as error:  # noqa: BLE001  # classes of users may refuse in any way
            told = f"{type(error).__name__}: {error}"
            self.problem = f"what the call left can't be put back ({told}): the test may go wrong"

    def failed_compiled(self, error: Exception) -> None:
        """Note that the compiled call raises what eager does not."""
        self.raised = self.trace is not None and dynamo.raised_at_run(error, self.trace)
        self.compile_error = (explain_run_error if self.raised else explain_error)(error)

    def failed_backward(self, expected: Side, actual: Side) -> None:
        """Note that what the compiled call gave can't be differentiated where eager's can."""
        error = actual.gradient_error
        if error is None or expected.gradient_error is not None or dynamo.weights_refused(error):
            return
        if expected.cotangents.explain(error):
            return
        self.failed_compiled(error)
        if dynamo.raised_while_compiling(error) and self.compile_error is not None:
            text, remedy = self.compile_error
            told = f"the backward pass could not be compiled: {text}"
            self.compile_error = (told, remedy or _IN_BACKWARD)


def without_following(parity: CallParity, actual: Side) -> CallParity:
    """Tell outputs of another form alone, not also that eager's weights don't fit them."""
    if dynamo.weights_refused(actual.gradient_error) and any(
        mismatch.kind == "kind" for mismatch in parity.mismatches
    ):
        told = [m for m in parity.mismatches if (m.path, m.kind) != (GRADIENTS, "exception")]
        parity.mismatches[:] = told
    return parity


_AS_ASKED: Types = contextlib.nullcontext


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedCall:
    """All that it takes to make a call again that was compared."""

    index: int
    snapshot: Prepared
    """Arguments and state as they were before the call. Its parameters may be shared."""
    scene: Scene
    ambient: Ambient
    cotangents: Cotangents
    tolerance: Tolerance
    tf32: bool
    """Whether products of float32 numbers may keep only ten bits on a GPU."""
    drew_random: bool
    narrow: Narrow = NOT_NARROW
    """Of the graphs, as under autocast."""
    parameters: tuple[tuple[torch.Tensor, torch.Tensor], ...] = ()
    """Shared parameters, and what they held; on the host, as the device may be full."""
    mismatches: tuple[Mismatch, ...] = ()
    """In what its two sides differ."""
    draws: dict[int, list[Draw] | str] = field(default_factory=dict)
    """Random numbers that it draws by a target, or why they can't be had; by its identity."""

    def comparison(self) -> SideComparison:
        """Make what compares two runs of it."""
        return self.comparison_by(self.in_float64)

    def comparison_by(self, reference: MakeRun) -> SideComparison:
        """Make what compares two runs of it, with these runs in float64."""
        judge = LeafJudge(
            call=self.index,
            tolerance=self.tolerance,
            reference=reference,
            before=self.snapshot.held,
            tf32=self.tf32,
            narrow=self.narrow,
        )
        return SideComparison(judge)

    def in_float64(self, nudge: Nudge | None, target: Any = None) -> Side | str:
        """Make it in float64, by another target if one is given; or say why that can't be done.

        It draws the random numbers that the call drew.
        """
        found = self.scene.now()
        made_by = self.snapshot.target if target is None else target
        try:
            made = self._in_float64(made_by, nudge, functools.partial(wide_numbers, nudge))
            # Code may not bear another type than the one it asks for.
            return made if isinstance(made, Side) else self._in_float64(made_by, nudge, _AS_ASKED)
        except IsolationError as error:
            return str(error)
        finally:
            found.restore()

    def _in_float64(self, target: Any, nudge: Nudge | None, types: Types) -> Side | str:
        if self.drew_random:
            return self._in_float64_drawing(target, nudge, types)
        watched = Recording()  # a generator of the target's own is in no scene
        made = self._run_in_float64(target, nudge, watched, types)
        if watched.draws:
            return self._in_float64_drawing(target, nudge, types)
        if not watched.met_operators:
            return made
        # Within any mode, these operators have no gradients.
        unmoded = nudge if nudge is None or nudge.moves_inputs else nudge._replace(moves="inputs")
        return self._run_in_float64(target, unmoded, contextlib.nullcontext(), _AS_ASKED)

    def _run_in_float64(
        self,
        target: Any,
        nudge: Nudge | None,
        drawing: contextlib.AbstractContextManager[object],
        types: Types,
    ) -> Side | str:
        self.scene.restore()
        return run_in_float64(target, self.snapshot, self.cotangents, nudge, drawing, types)

    def _in_float64_drawing(self, target: Any, nudge: Nudge | None, types: Types) -> Side | str:
        if id(target) not in self.draws:  # runs from moved inputs draw the same
            self.scene.restore()
            found = recorded_draws(target, self.snapshot, self.cotangents)
            self.draws[id(target)] = found
        draws = self.draws[id(target)]
        if isinstance(draws, str):
            return draws
        return self._run_in_float64(target, nudge, Replaying(draws), types)

    def restore_parameters(self) -> None:
        """Give the snapshot parameters of its own where the test has changed them since."""
        for twin, held in self.parameters:
            now = twin.detach()
            if not torch.equal(now.cpu(), held):
                twin.data = held.to(now.device)


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeable:
    """Both sides of the last call, for timing."""

    call: int
    eager: Prepared
    compiled: Prepared
    ambient: Ambient
    device: str
    beside: tuple[str, ...]
    """The other accelerators that the call uses."""
