"""One side of a call, ready to be made, and what can be told of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_compileguard.isolation.mirror import Mirror
from pytest_compileguard.isolation.surroundings import Surroundings
from pytest_compileguard.isolation.tensors import is_leaf
from pytest_compileguard.parity.gradients import Cotangents, NamedTensor
from pytest_compileguard.parity.leaves import tensors_of
from pytest_compileguard.parity.side import GRAD, Place, Side, argument_leaves, run_side
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

    def again(self) -> Prepared:
        """Copies of it, so that it stays as it is when they run."""
        mirror = self.mirror.fresh()
        args, kwargs, _ = self.copies
        target = mirror.target(self.target)
        copies = mirror.arguments(args, kwargs, self.names)
        return dataclasses.replace(self, target=target, mirror=mirror, copies=copies)

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


def devices_of(side: Side, prepared: Prepared) -> tuple[str, ...]:
    """Where the call ran: the accelerators of its tensors, of its results first; else the CPU."""
    leaves = [leaf.value for leaf in [*side.outputs, *side.arguments]]
    state = [value for _, value in prepared.mirror.state().values()]
    met = [value.device for value in [*leaves, *state] if isinstance(value, torch.Tensor)]
    used = [torch.device(d.type, d.index or 0) for d in met if d.type not in ("cpu", "meta")]
    return tuple(dict.fromkeys(map(str, used))) or ("cpu",)
