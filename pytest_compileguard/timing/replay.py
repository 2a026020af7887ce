"""Makes the timed call again and again from one starting point: what it mutates is restored.

A call that writes to its inputs (a cache that fills, a state that is updated, a training step)
would else run on other values each time: they grow until they overflow, and the two sides, which
are not called equally often at each moment, would compute different things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_compileguard.isolation.storages import is_plain
from pytest_compileguard.parity.leaves import leaves_of
from pytest_compileguard.shadow.prepared import Prepared
from pytest_compileguard.timing.conditions import VoidError
from pytest_compileguard.timing.sampling import MOST_CALLS, Side

_MOST_BYTES = 64 << 20
"""Larger tensors are known to be mutated by torch's version counter alone."""
_BLOCK = {"cpu": 1, "cuda": 10}
"""Calls that may follow each other without restoring. On a GPU the first one costs more."""

Setup = Callable[[], object]


@dataclass(kw_only=True)
class Replay:
    """One side of the timed call."""

    name: str
    prepared: Prepared
    setup: Setup | None = None
    begins_steps: bool = False
    """Whether each call begins a new step of CUDA graphs, as nothing else says so: calls whose
    backward pass is never made would be recorded as parts of one step, again and again."""
    _arguments: tuple[tuple[Any, ...], dict[str, Any]] = field(init=False)
    _saved: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        args, kwargs, _ = self.prepared.copies
        self._arguments = args, kwargs

    def side(self, device_type: str) -> Side:
        """What timing is to call, once ``keep`` knows what to restore."""
        if self.setup is not None:  # as in pytest-benchmark: a setup for each call
            most = 1
        else:
            most = _BLOCK.get(device_type, 1) if self._saved else MOST_CALLS
        changes = bool(self._saved) or self.setup is not None
        prepare = self._prepare if changes else None
        return Side(name=self.name, call=self.call, prepare=prepare, most_calls=most)

    def call(self) -> object:
        """Call the side as it stands."""
        args, kwargs = self._arguments
        if self.begins_steps:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return self.prepared.target(*args, **kwargs)

    def mutated(self) -> frozenset[str]:
        """Call once, and name the tensors among arguments and state that it writes to."""
        before = {path: _Mark.of(tensor) for path, tensor in self._tensors()}
        if self.setup is not None:
            self._set_up()
        try:
            self.call()
        except Exception as error:  # code of users may raise anything
            message = f"{self.name} raised {type(error).__name__} when it was called again: {error}"
            raise VoidError(message) from error
        found = {}
        for path, tensor in self._tensors():
            mark = before.get(path)
            if mark is not None and mark.tensor is tensor and mark.differs():
                kept = tensor.detach().clone() if mark.copy is None else mark.copy
                found[path] = (tensor, kept)
        self._saved = found
        return frozenset(found)

    def keep(self, paths: frozenset[str]) -> None:
        """Restore these too, which the other side was seen to write."""
        for path, tensor in self._tensors():
            if path in paths and path not in self._saved:
                self._saved[path] = (tensor, tensor.detach().clone())

    def inputs(self) -> list[torch.Tensor]:
        """Give what the call may read: arguments, state and parameters."""
        twins = (twin for _, twin in self.prepared.mirror.state().values())
        values = (*(value for _, value in self._passed()), *twins)
        return [value for value in values if isinstance(value, torch.Tensor)]

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Give each tensor of the arguments and of the target's state once, with its path."""
        met = set()
        for path, value in (*self._passed(), *self._state()):
            if _is_restorable(value) and id(value) not in met:
                met.add(id(value))
                yield path, value

    def _passed(self) -> Iterator[tuple[str, Any]]:
        args, kwargs, _ = self.prepared.copies
        named = dict(zip(self.prepared.names, args, strict=False)) | kwargs
        for name, value in named.items():
            yield from leaves_of(value, name, objects=True)

    def _state(self) -> Iterator[tuple[str, Any]]:
        mirror = self.prepared.mirror
        for path, twin in mirror.state().values():
            # A shared parameter is the test's own; a call that writes to it fails its check.
            if not (mirror.shares_parameters and isinstance(twin, torch.nn.Parameter)):
                yield f"target.{path}", twin

    def _prepare(self) -> None:
        for path, (tensor, kept) in self._saved.items():
            _restore(path, tensor, kept)
        if self.setup is not None:
            self._set_up()

    def _set_up(self) -> None:
        assert self.setup is not None  # noqa: S101  # for mypy
        try:
            given = self.setup()
        except Exception as error:
            raise VoidError(f"setup raised {type(error).__name__}: {error}") from error
        if given is not None:
            self._arguments = _arguments(given)


@dataclass(frozen=True, kw_only=True)
class _Mark:
    """How a tensor was before a call."""

    tensor: torch.Tensor
    version: int | None
    copy: torch.Tensor | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Mark:
        small = tensor.numel() * tensor.element_size() <= _MOST_BYTES
        copied = small or tensor.is_inference()  # those have no version
        return cls(
            tensor=tensor,
            version=None if tensor.is_inference() else tensor._version,  # noqa: SLF001  # what autograd itself goes by
            copy=tensor.detach().clone() if copied else None,
        )

    def differs(self) -> bool:
        if self.version is not None and self.tensor._version != self.version:  # noqa: SLF001
            return True
        if self.copy is None:
            return False
        # What is not equal to itself, or can't be compared, counts as changed: no harm is done.
        try:
            return not torch.equal(self.tensor, self.copy)
        except RuntimeError:  # a dtype without comparison
            return True


def _is_restorable(value: object) -> bool:
    return isinstance(value, torch.Tensor) and is_plain(value)


def _restore(path: str, tensor: torch.Tensor, kept: torch.Tensor) -> None:
    try:
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            tensor.detach().copy_(kept)
    except RuntimeError as error:  # it was resized, or lost its storage
        message = f"{path}, which the call mutates, can't be restored: {error}"
        raise VoidError(message) from error


def _arguments(given: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    match given:
        case ((tuple() | list()) as args, dict() as kwargs) if isinstance(given, tuple):
            return tuple(args), kwargs
    kind = type(given).__name__
    raise VoidError(f"setup returned a {kind}: must be None, or a pair of args and kwargs")
