"""What one guarded call consists of, what it left, and how it is made again."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_compileguard import dynamo
from pytest_compileguard.errors import IsolationError
from pytest_compileguard.isolation.ambient import Ambient
from pytest_compileguard.isolation.mirror import Mirror
from pytest_compileguard.isolation.quiet import silenced
from pytest_compileguard.isolation.surroundings import Scene, Surroundings
from pytest_compileguard.isolation.tensors import is_leaf
from pytest_compileguard.isolation.widening import Widening, wide_numbers
from pytest_compileguard.observation import Mismatch
from pytest_compileguard.parity.comparison import Tolerance
from pytest_compileguard.parity.draws import Draw, Recording, Replaying, UnrepeatableError
from pytest_compileguard.parity.float64_runs import MakeRun
from pytest_compileguard.parity.gradients import Cotangents, NamedTensor
from pytest_compileguard.parity.judging import CallParity, LeafJudge
from pytest_compileguard.parity.leaves import tensors_of
from pytest_compileguard.parity.side import GRAD, Place, Side, argument_leaves, run_side
from pytest_compileguard.parity.sides import SideComparison
from pytest_compileguard.parity.state import bound_leaves
from pytest_compileguard.training_step import CompiledStep, TrainingStep

Copies = tuple[tuple[Any, ...], dict[str, Any], list[NamedTensor]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """One side, ready to be called."""

    target: Callable[..., Any]
    mirror: Mirror
    copies: Copies
    names: tuple[str, ...]
    """Of the positional arguments."""
    surroundings: Surroundings = field(default_factory=lambda: Surroundings(()))
    """Places that the call may write to, and that are copied for no side."""

    def run(self, cotangents: Cotangents | None = None) -> Side:
        outside = self.surroundings.values
        return run_side(self.target, self.mirror, self.copies, self.names, cotangents, outside)

    def among(self, surroundings: Surroundings) -> Prepared:
        return dataclasses.replace(self, surroundings=surroundings)

    def held(self, place: Place) -> dict[str, Any]:
        """What stands in a place before the call, by path."""
        args, kwargs, _ = self.copies
        arguments, state = argument_leaves(args, kwargs, self.names), self.mirror.state()
        match place:
            case "result":
                return {leaf.path: leaf.value for leaf in arguments}
            case "met":
                return dict(state.values())
            case "bound":
                return bound_leaves(state)
            case "accumulated":
                met = [*tensors_of(arguments), *state.values()]
                leaves = [(p, t) for p, t in met if isinstance(t, torch.Tensor) and is_leaf(t)]
                return {f"{path}{GRAD}": tensor.grad for path, tensor in leaves}
        return {}

    def __call__(self) -> object:
        args, kwargs, _ = self.copies
        return self.target(*args, **kwargs)


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
    compile_error: tuple[str, str] | None = None
    """Why the compiled call failed although eager does not, and the remedy."""
    problem: str | None = None
    """Why there is no shadow; the check fails by it."""
    hindrances: tuple[str, ...] = ()
    inputs: str | None = None
    """Shapes and dtypes of what was passed in; ``None`` for a watched block."""
    notes: dict[str, None] = field(default_factory=dict)


Types = Callable[[], contextlib.AbstractContextManager[object]]
"""Makes what sees to the types that code asks for by name."""
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
    epsilon: float = 0.0
    """Of the coarsest type of 16 bits that the graphs compute in, as under autocast; 0: in none."""
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
            epsilon=self.epsilon,
        )
        return SideComparison(judge)

    def in_float64(self, seed: int | None, target: Any = None) -> Side | str:
        """Make it in float64, by another target if one is given; or say why that can't be done.

        It draws the random numbers that the call drew.
        """
        found = self.scene.now()
        made_by = self.snapshot.target if target is None else target
        try:
            made = self._in_float64(made_by, seed, functools.partial(wide_numbers, seed))
            # Code may not bear another type than the one it asks for.
            return made if isinstance(made, Side) else self._in_float64(made_by, seed, _AS_ASKED)
        except IsolationError as error:
            return str(error)
        finally:
            found.restore()

    def _in_float64(self, target: Any, seed: int | None, types: Types) -> Side | str:
        if self.drew_random:
            return self._in_float64_drawing(target, seed, types)
        watched = Recording()  # a generator of the target's own is in no scene
        made = self._run_in_float64(target, seed, watched, types)
        if watched.draws:
            return self._in_float64_drawing(target, seed, types)
        if not watched.met_operators:
            return made
        return self._run_in_float64(target, seed, contextlib.nullcontext(), _AS_ASKED)

    def _run_in_float64(
        self,
        target: Any,
        seed: int | None,
        drawing: contextlib.AbstractContextManager[object],
        types: Types,
    ) -> Side | str:
        self.scene.restore()
        return run_in_float64(target, self.snapshot, self.cotangents, seed, (drawing, types()))

    def _in_float64_drawing(self, target: Any, seed: int | None, types: Types) -> Side | str:
        if id(target) not in self.draws:  # runs from moved inputs draw the same
            self.scene.restore()
            found = recorded_draws(target, self.snapshot, self.cotangents)
            self.draws[id(target)] = found
        draws = self.draws[id(target)]
        if isinstance(draws, str):
            return draws
        return self._run_in_float64(target, seed, Replaying(draws), types)

    def restore_parameters(self) -> None:
        """Give the snapshot parameters of its own where the test has changed them since."""
        for twin, held in self.parameters:
            now = twin.detach()
            if not torch.equal(now.cpu(), held):
                twin.data = held.to(now.device)


def held_parameters(snapshot: Prepared) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """What the parameters hold now, if the snapshot shares them with the test."""
    if not snapshot.mirror.shares_parameters:
        return ()
    twins = [twin for _, twin in snapshot.mirror.state().values()]
    return tuple(
        (twin, twin.detach().to("cpu", copy=True))
        for twin in twins
        if isinstance(twin, torch.nn.Parameter) and not torch.nn.parameter.is_lazy(twin)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeable:
    """Both sides of the last call, for timing."""

    call: int
    eager: Prepared
    compiled: Prepared
    ambient: Ambient
    device: str


def run_in_float64(
    target: Any,
    snapshot: Prepared,
    cotangents: Cotangents,
    seed: int | None,
    within: Sequence[contextlib.AbstractContextManager[object]],
) -> Side | str:
    """Make a call in float64 with the arguments that a snapshot kept; or say why that fails.

    With a seed, all values are moved at random by as much as rounding may have moved them.
    ``within`` is what sees to the random numbers that it draws, and to the types that it asks for.
    """
    rounding = None if seed is None else torch.Generator().manual_seed(seed)
    mirror = Mirror(
        share_parameters=True,
        compiled_form=dynamo.compiled_form,
        widening=Widening(rounding),
        themselves=snapshot.mirror.themselves,
    )
    wide = {p: t.to(_wide(t.dtype)) for p, t in cotangents.by_path.items()}
    side = _run_on(mirror, target, snapshot, Cotangents(wide), within)
    return side if side.error is None else f"it {_raised(side.error)}"


def recorded_draws(target: Any, snapshot: Prepared, cotangents: Cotangents) -> list[Draw] | str:
    """Make a call once more for the random numbers that it draws; or say why that fails."""
    mirror = Mirror(
        share_parameters=False,
        compiled_form=dynamo.compiled_form,
        themselves=snapshot.mirror.themselves,
    )
    recording = Recording()
    side = _run_on(mirror, target, snapshot, cotangents, [recording])
    if side.error is not None:
        return f"the call draws random numbers, and {_raised(side.error)}"
    if not recording.draws:
        return "the call draws random numbers by other means than torch's operators"
    return recording.draws


def _raised(error: Exception) -> str:
    if isinstance(error, UnrepeatableError):
        return f"can't draw them again: {error}"
    return f"raises {type(error).__name__}"


def _run_on(
    mirror: Mirror,
    target: Any,
    snapshot: Prepared,
    cotangents: Cotangents,
    within: Sequence[contextlib.AbstractContextManager[object]],
) -> Side:
    args, kwargs, _ = snapshot.copies
    twin = mirror.target(target)
    copies = mirror.arguments(args, kwargs, snapshot.names)
    with silenced(), dynamo.eager_stance(), contextlib.ExitStack() as stack:
        for context in within:
            stack.enter_context(context)
        outside = snapshot.surroundings.values
        return run_side(twin, mirror, copies, snapshot.names, cotangents, outside)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def whole_step(side: Prepared) -> Prepared:
    """The call that is timed: of a training step, all of it and not the part last compared."""
    args, kwargs, leaves = side.copies
    if not isinstance(side.target, TrainingStep | CompiledStep):
        return side
    return dataclasses.replace(side, copies=(("whole", *args[1:]), kwargs, leaves))


def has_lazy_parameters(snapshot: Prepared) -> bool:
    """Whether the call had parameters to fill."""
    twins = (twin for _, twin in snapshot.mirror.state().values())
    return any(isinstance(t, torch.Tensor) and torch.nn.parameter.is_lazy(t) for t in twins)


def device_of(side: Side, prepared: Prepared) -> str:
    """Where the call ran: the first accelerator among its tensors, else the CPU."""
    leaves = [leaf.value for leaf in [*side.outputs, *side.arguments]]
    state = [value for _, value in prepared.mirror.state().values()]
    devices = [t.device for t in [*leaves, *state] if isinstance(t, torch.Tensor)]
    for device in devices:
        if device.type not in ("cpu", "meta"):
            return str(torch.device(device.type, device.index or 0))
    return "cpu"
