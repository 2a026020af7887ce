"""What places hold at one moment, and how they are brought back to it."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

import torch

from pytest_compileguard.isolation.arrays import ArrayContent
from pytest_compileguard.isolation.containers import ATOMIC
from pytest_compileguard.isolation.contents import (
    ATOMS,
    attributes_beside,
    content,
    parts_of,
)
from pytest_compileguard.isolation.filling import fill
from pytest_compileguard.isolation.inner_state import InnerState
from pytest_compileguard.isolation.tensors import is_leaf

MISSING: Any = object()
MOST_PARTS = 10_000


class Place(NamedTuple):
    """A name that state is bound to."""

    owner: Any
    """A class, the globals of a module, a function (its attributes, its defaults) or a cell."""
    name: str
    path: str

    def read(self) -> Any:
        if isinstance(self.owner, _READ_BY_NAME):
            return _named(self.owner, self.name)
        space = self.owner if isinstance(self.owner, dict) else vars(self.owner)
        return space.get(self.name, MISSING)

    def write(self, value: Any) -> None:
        if self.read() is value:
            return
        if isinstance(self.owner, dict):
            if value is MISSING:
                del self.owner[self.name]
            else:
                self.owner[self.name] = value
        elif value is MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, value)


_READ_BY_NAME = (types.FunctionType, types.CellType)
_SHOWN_AS_THEY_ARE = (tuple, collections.deque)


_ALONE = (*ATOMIC, types.FunctionType, types.BuiltinFunctionType)


def _is_whole(value: Any) -> bool:
    """Whether all that there is to an object is what it holds; gradients are not held."""
    if isinstance(value, torch.Tensor):
        return not value.requires_grad
    return not isinstance(value, torch.nn.Module | torch.optim.Optimizer)


def _named(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name, MISSING)
    except ValueError:  # a variable of an outer function that is not bound yet
        return MISSING


class Snapshot:
    """What was bound to the places at one moment, and what it held."""

    def __init__(
        self,
        bound: list[tuple[Place, Any]],
        of_compiler: frozenset[str] = frozenset(),
        earlier: Mapping[str, Any] = types.MappingProxyType({}),
    ) -> None:
        self.bound = bound
        self.of_compiler = of_compiler
        """Paths of further places, whose values the compiler bound."""
        self.earlier = earlier
        """What was bound to names of modules before the call, by path."""
        self.truncated = False
        self._held: dict[int, tuple[Any, Any]] = {}
        self._gradients: dict[int, tuple[str, torch.Tensor, torch.Tensor | None]] = {}
        """Of tensors among all of that, with what they are called."""
        for place, value in bound:
            self._name_parameters(place.path, value)
            self._hold(value)

    def put_back(self, but_for: Callable[[Place], bool]) -> None:
        """Bind and fill everything as it was, but for what is bound to some places."""
        for place, value in self.bound:
            if not but_for(place):
                place.write(value)
        for _, tensor, gradient in self._gradients.values():
            if tensor.grad is not gradient:
                tensor.grad = gradient
        for value, held in self._held.values():
            fill(value, held)

    def values(self) -> dict[str, Any]:
        """By path, what can be compared: containers are shown as they were."""
        shown = {p.path: self._shown(v, ()) for p, v in self.bound if v is not MISSING}
        return shown | {path: self._shown(grad, ()) for path, grad in self.gradients().items()}

    def gradients(self) -> dict[str, torch.Tensor]:
        """Those that stood in tensors, by path."""
        found = ((path, gradient) for path, _, gradient in self._gradients.values())
        return {f"{path}.grad": gradient for path, gradient in found if gradient is not None}

    def written_tensors(self, later: Snapshot) -> list[str]:
        """Paths of tensors too large to be copied that were written to in place since."""
        names = {id(value): place.path for place, value in self.bound}
        names |= {id(grad): f"{path}.grad" for path, _, grad in self._gradients.values()}
        return [
            names.get(key, "a tensor in a global")
            for key, (value, held) in self._held.items()
            if isinstance(held, int) and later._held.get(key, (value, held))[1] != held
        ]

    def whole(self, met: Container[int], barred: Container[int]) -> dict[int, Any]:
        """What is put back with all that it holds, by identity; nothing if none of it was met."""
        found = {
            key: value
            for key, (value, held) in self._held.items()
            if key not in barred and not isinstance(held, int) and _is_whole(value)
        }
        if not any(key in met for key in found):
            return {}
        while lost := [key for key in found if not self._holds_only(key, found)]:
            for key in lost:
                del found[key]
        return found

    def _holds_only(self, key: int, known: Container[int]) -> bool:
        value, held = self._held[key]
        parts = (*parts_of(held), *attributes_beside(value))
        return all(id(part) in known or isinstance(part, _ALONE) for part in parts)

    def _name_parameters(self, path: str, value: Any) -> None:
        if isinstance(value, torch.nn.Module):
            for name, parameter in value.named_parameters():
                self._hold_gradient(parameter, f"{path}.{name}")
        elif isinstance(value, torch.Tensor):
            self._hold_gradient(value, path)

    def _hold_gradient(self, tensor: torch.Tensor, path: str) -> None:
        if tensor.requires_grad and is_leaf(tensor) and id(tensor) not in self._gradients:
            self._gradients[id(tensor)] = (path, tensor, tensor.grad)
            self._hold(tensor.grad)

    def _hold(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):  # in a container, if it has no name yet
            self._hold_gradient(value, f"a tensor in a global ({len(self._gradients) + 1})")
        if id(value) in self._held or len(self._held) > MOST_PARTS:
            self.truncated |= len(self._held) > MOST_PARTS
            return
        held = content(value)
        if held is None:
            return
        self._held[id(value)] = (value, held)
        for part in (*parts_of(held), *attributes_beside(value)):
            if not isinstance(part, ATOMS):
                self._hold(part)

    def _shown(self, value: Any, above: tuple[int, ...]) -> Any:
        held = self._held.get(id(value), (value, None))[1]
        if held is None or isinstance(held, int) or id(value) in above:
            return value
        if isinstance(held, InnerState):
            return held.shown
        if (beside := attributes_beside(value)) and self._held.get(id(beside[0]), (0, 0))[1]:
            shown = [self._contents(value, held, above), self._shown(beside[0], above)]
            return {"items": shown[0], "attributes": shown[1]}
        return self._contents(value, held, above)

    def _contents(self, value: Any, held: Any, above: tuple[int, ...]) -> Any:
        if isinstance(held, torch.Tensor):
            return held
        inside = (*above, id(value))
        if isinstance(held, ArrayContent):
            return held.shown(lambda part: self._shown(part, inside))
        kind = type(value)
        if isinstance(held, dict):
            shown = {key: self._shown(part, inside) for key, part in held.items()}
            return collections.OrderedDict(shown) if kind is collections.OrderedDict else shown
        if isinstance(held, frozenset):
            return set(held) if kind is set else held
        parts = [self._shown(part, inside) for part in held]
        return kind(parts) if kind in _SHOWN_AS_THEY_ARE else parts
