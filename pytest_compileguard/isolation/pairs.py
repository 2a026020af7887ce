"""Remembers which twin stands for which original, for as long as the original is of use.

Originals live as long as the test or its target hold them: no pair keeps one alive, and its twin
goes with it. With an object that is passed to a call goes all that was copied because of it. Else
a test that makes a new batch for each call, or a target that binds a new tensor in each, would
keep all of them, threefold.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from pytest_compileguard.isolation.holding import Held, has_ended, hold
from pytest_compileguard.isolation.storages import storage_key


class _Pair(NamedTuple):
    original: Held
    twin: Any
    path: str
    owner: Held | None
    """The passed object because of which it was copied; ``None``: it is the target's."""

    def has_ended(self) -> bool:
        return has_ended(self.original) or (self.owner is not None and has_ended(self.owner))


class Pairs:
    """Originals and their twins, by identity of the originals."""

    def __init__(self) -> None:
        self._pairs: dict[int, _Pair] = {}
        self._twins: set[int] | None = None
        self._storages: set[int | None] | None = None
        self._owner: Held | None = None

    def add(self, real: Any, twin: Any, path: str) -> None:
        """Note a twin; one that is known already stays with its owner."""
        known = self._living(real)
        if known is None:
            # Its place is that of a new one, also where it lies where another one lay.
            self._pairs.pop(id(real), None)
            owns = self._owner is not None and self._owner() is real
            original = self._owner if owns and self._owner is not None else hold(real)
            pair = _Pair(original, twin, path, self._owner)
        else:
            pair = known._replace(twin=twin, path=path)
        self._pairs[id(real)] = pair
        if known is not None and known.twin is not twin:
            self._twins = None  # what stood for it may stand for another one too
        elif self._twins is not None:
            self._twins.add(id(twin))
        if self._storages is not None and isinstance(twin, torch.Tensor):
            self._storages.add(storage_key(twin))

    def twin(self, real: Any) -> Any:
        """Give the twin, or ``None``."""
        pair = self._living(real)
        return None if pair is None else pair.twin

    def twin_id(self, number: int) -> int:
        """Give the identity of the twin, if a number is that of an original."""
        pair = self._pairs.get(number)
        return number if pair is None or pair.original() is None else id(pair.twin)

    def knows(self, real: Any, twin: Any) -> bool:
        """Whether the one has a twin, or the other is one."""
        if self._twins is None:
            self._twins = {id(pair.twin) for pair in self._pairs.values()}
        return self._living(real) is not None or id(twin) in self._twins

    def storages(self) -> set[int | None]:
        """Give the storages of all twins that are tensors."""
        if self._storages is None:
            twins = (pair.twin for pair in self._pairs.values())
            self._storages = {storage_key(t) for t in twins if isinstance(t, torch.Tensor)}
        return self._storages

    def items(self) -> list[tuple[int, str, Any]]:
        """Give identity of the original, path and twin, in the order in which they were met."""
        return [(key, pair.path, pair.twin) for key, pair in self._pairs.items()]

    def living(self) -> dict[int, Any]:
        """Give the twins of what is not gone, by identity of the originals."""
        return {k: pair.twin for k, pair in self._pairs.items() if pair.original() is not None}

    def original_storages(self) -> set[int | None]:
        """Give the storages of all originals that are tensors."""
        twins = (pair for pair in self._pairs.values() if isinstance(pair.twin, torch.Tensor))
        originals = (pair.original() for pair in twins)
        return {storage_key(real) for real in originals if real is not None}

    @contextmanager
    def owned_by(self, real: Any) -> Iterator[None]:
        """Let what is noted inside for the first time go when this object does."""
        known = self._living(real)
        if self._owner is not None or (known is not None and known.owner is None):
            yield
            return
        self._owner = hold(real) if known is None else known.owner
        try:
            yield
        finally:
            self._owner = None

    def drop_ended(self) -> bool:
        """Forget objects that are gone, and what was copied for them; whether there were any.

        Done between calls.
        """
        before = len(self._pairs)
        for key in list(self._pairs):
            if self._pairs[key].has_ended():
                del self._pairs[key]  # what only it held was met after it, and ends as well
        self._twins = self._storages = None
        return len(self._pairs) < before

    def _living(self, real: Any) -> _Pair | None:
        """Give the pair, unless it is of another object that lay in the same place."""
        pair = self._pairs.get(id(real))
        return pair if pair is not None and pair.original() is real else None
