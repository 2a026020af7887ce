"""Runs one side of a shadow call, and keeps what it gave and left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from pytest_compileguard.isolation.fingerprint import version_of
from pytest_compileguard.isolation.mirror import Mirror
from pytest_compileguard.isolation.tensors import is_leaf
from pytest_compileguard.parity.gradients import (
    Cotangents,
    Gradients,
    NamedTensor,
    differentiable,
    gradients,
    make_cotangents,
)
from pytest_compileguard.parity.identity import objects_in, objects_of_state
from pytest_compileguard.parity.leaves import Leaf, leaves_of, tensors_of
from pytest_compileguard.parity.plain import holds_no_tensor
from pytest_compileguard.parity.state import bound_leaves, new_tensors

GRADIENT_OF = "gradient of "
"""How the path of a gradient begins."""
GRAD = ".grad"
"""How the path of what stands in it ends."""
Place = Literal["result", "gradient", "bound", "met", "accumulated", "outside"]
"""Where a leaf is: among outputs and arguments, among the gradients of a call, bound to a name now,
met by the call under a name, in ``.grad``, or outside of what a side keeps."""
PLACES: tuple[Place, ...] = get_args(Place)


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One side of a shadow call, after it ran."""

    outputs: list[Leaf]
    arguments: list[Leaf]
    state: dict[int, tuple[str, Any]]
    gradients: list[tuple[str, torch.Tensor | None]]
    cotangents: Cotangents
    """What the gradients are weighted with, or would have been if they could be had."""
    error: Exception | None
    gradient_error: Exception | None
    accumulated: list[tuple[str, torch.Tensor | None]]
    """What stood in ``.grad`` when the call was through, by path."""
    touched: frozenset[str]
    """Paths of those that are not as the call found them."""
    outside: list[NamedTensor]
    """Tensors in the places that no copy has."""
    kept: list[NamedTensor]
    """Tensors that the call met and keeps, read at its end: what has no copy is the other side's
    as soon as that runs."""
    objects: list[tuple[str, Any]]
    """Containers and objects among arguments and outputs, each under all its names."""
    kept_objects: list[tuple[str, Any]]
    """Those of what the call met and keeps, read at its end."""

    def leaves(self, place: Place) -> dict[str, Any]:
        """What stands in a place, by path: one path may mean another value in each place."""
        match place:
            case "result":
                return {leaf.path: leaf.value for leaf in [*self.arguments, *self.outputs]}
            case "gradient":
                return {f"{GRADIENT_OF}{path}": gradient for path, gradient in self.gradients}
            case "met":
                return dict(self.state.values())
            case "bound":
                return bound_leaves(self.state)
            case "accumulated":
                return {f"{path}{GRAD}": gradient for path, gradient in self.accumulated}
            case "outside":
                return {}

    def leaf(self, path: str) -> Any:
        """Look up what a mismatch of this path is about; ``None`` if it is not there."""
        for place in PLACES:
            if path in (found := self.leaves(place)):
                return found[path]
        return None

    def tensors(self) -> list[NamedTensor]:
        """All that the call gave, was given, met, and keeps."""
        return [*tensors_of(self.outputs), *tensors_of(self.arguments), *self.kept]


def run_side(
    target: Callable[..., Any],
    mirror: Mirror,
    copies: tuple[tuple[Any, ...], dict[str, Any], list[NamedTensor]],
    names: tuple[str, ...],
    cotangents: Cotangents | None = None,
    outside: Callable[[], dict[str, Any]] = dict,
) -> Side:
    """Make the call, and differentiate it if it can be; exceptions of the call are kept.

    ``outside`` gives what stands in the places that no copy has, by path.
    """
    args, kwargs, leaves = copies
    value, error = None, None
    around = _tensors_outside(outside())
    held = _with_history([*_tensors_in(mirror.state()), *around])
    given = [*tensors_of(argument_leaves(args, kwargs, names)), *leaves]
    before = _gradients_in(_holders([*given, *_tensors_in(mirror.state())]))
    try:
        value = target(*args, **kwargs)
    except Exception as raised:  # noqa: BLE001  # compared with what the other side raises
        error = raised
    outputs = [] if error else leaves_of(value, "output", objects=True)
    arguments = argument_leaves(args, kwargs, names)
    state = mirror.state()
    kept = [*_tensors_in(state), *new_tensors(state)]
    met = [*tensors_of(outputs), *tensors_of(arguments), *leaves, *kept]
    holders = _holders(met)
    accumulated = [(path, tensor.grad) for path, tensor in holders.items()]
    touched = frozenset(_touched(holders, before))
    weights, gradient_error = Cotangents({}), None
    found: Gradients = []
    if not error:
        # An argument that was written to is a result like any other.
        results = [*tensors_of(outputs), *tensors_of(arguments)]
        known = held | {id(tensor): tensor for _, tensor in results}
        made = _kept([*kept, *_tensors_outside(outside())], known)
        others = _trainable(around)
        ends = _unique([*leaves, *_trainable(_tensors_in(state)), *others])
        everything = [*results, *made]
        weights = make_cotangents(everything) if cotangents is None else cotangents
        try:
            with _silent_hooks(others):
                found = gradients(everything, ends, weights)
        except Exception as raised:  # noqa: BLE001  # compared with what the other side raises
            gradient_error = raised
    return Side(
        outputs=outputs,
        arguments=arguments,
        state=state,
        gradients=found,
        cotangents=weights,
        error=error,
        gradient_error=gradient_error,
        accumulated=accumulated,
        touched=touched,
        outside=_tensors_outside(outside()),
        kept=kept,
        kept_objects=list(objects_of_state(state)),
        objects=[
            found
            for name, given in [*zip(names, args, strict=True), *kwargs.items(), ("output", value)]
            for found in objects_in(given, name)
        ],
    )


def _tensors_in(state: dict[int, tuple[str, Any]]) -> list[NamedTensor]:
    return [(path, twin) for path, twin in state.values() if isinstance(twin, torch.Tensor)]


def _tensors_outside(values: dict[str, Any]) -> list[NamedTensor]:
    leaves = [
        leaf
        for path, value in values.items()
        if not holds_no_tensor(value)
        for leaf in leaves_of(value, path, objects=True)
    ]
    found = tensors_of(leaves)
    for leaf in leaves:
        if isinstance(leaf.value, torch.nn.Module):
            found += [(f"{leaf.path}.{name}", p) for name, p in leaf.value.named_parameters()]
    return found


def _with_history(tensors: list[NamedTensor]) -> dict[int, torch.Tensor]:
    """Those that an earlier call, or the test, computed: their graph is not this call's.

    They are held, so that none that the call makes has the identity of one.
    """
    return {id(tensor): tensor for _, tensor in differentiable(tensors)}


def _kept(tensors: list[NamedTensor], known: dict[int, torch.Tensor]) -> list[NamedTensor]:
    """What can be differentiated of all others, each once; no argument has such a path."""
    found: dict[int, NamedTensor] = {}
    for path, tensor in differentiable(tensors):
        if id(tensor) not in known:
            found.setdefault(id(tensor), (f"{path} after the call", tensor))
    return list({path: (path, tensor) for path, tensor in found.values()}.values())


def argument_leaves(
    args: tuple[Any, ...], kwargs: dict[str, Any], names: tuple[str, ...]
) -> list[Leaf]:
    """Take the arguments apart; ``names`` are those of the positional ones."""
    named = [*zip(names, args, strict=True), *kwargs.items()]
    return [leaf for name, value in named for leaf in leaves_of(value, name)]


def _trainable(tensors: list[NamedTensor]) -> list[NamedTensor]:
    return [(path, tensor) for path, tensor in tensors if is_leaf(tensor) and tensor.requires_grad]


@contextlib.contextmanager
def _silent_hooks(tensors: list[NamedTensor]) -> Iterator[None]:
    """Differentiate by tensors of the test without its hooks on them hearing of it."""
    # Of torch's own making, and what it looks into at each backward pass.
    hooks = [held for _, t in tensors if (held := t._backward_hooks)]  # noqa: SLF001
    kept = [dict(held) for held in hooks]
    for held in hooks:
        held.clear()
    try:
        yield
    finally:
        for held, before in zip(hooks, kept, strict=True):
            held.update(before)


def _holders(tensors: list[NamedTensor]) -> dict[str, torch.Tensor]:
    """Tensors that may have a gradient; the leaf that a copied argument comes from is another one.

    Either may have a gradient, since any tensor may be told to keep its own.
    """
    found: dict[str, torch.Tensor] = {}
    for path, tensor in _unique(tensors):
        if is_leaf(tensor) or tensor.retains_grad:
            found[f"what {path} comes from" if path in found else path] = tensor
    return found


def _gradients_in(tensors: dict[str, torch.Tensor]) -> dict[int, tuple[torch.Tensor | None, int]]:
    """Gradients, and how often each was written to, by the identity of their tensors."""
    found = [(id(tensor), tensor.grad) for tensor in tensors.values()]
    return {key: (grad, 0 if grad is None else version_of(grad)) for key, grad in found}


def _touched(
    tensors: dict[str, torch.Tensor], before: dict[int, tuple[torch.Tensor | None, int]]
) -> Iterator[str]:
    """Paths of those whose gradient is another one, or was written to."""
    now = _gradients_in(tensors)
    for path, tensor in tensors.items():
        (gradient, version), (earlier, known) = now[id(tensor)], before.get(id(tensor), (None, 0))
        if gradient is not earlier or version != known:
            yield path


def _unique(named: Iterable[NamedTensor]) -> list[NamedTensor]:
    return list({id(tensor): (path, tensor) for path, tensor in named}.values())
