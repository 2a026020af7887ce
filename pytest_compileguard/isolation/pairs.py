"""Remembers which twin stands for which original, for as long as the original is of use.

What the target holds lives as long as the check. An object that is passed to a call lives as long
as the test holds it: only a weak reference to it is kept, and with it goes all that was copied
because of it, unless what it holds refers back to it. Else a test that makes a new batch for each
call would keep all of them, threefold.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from pytest_compileguard.isolation.storages import storage_key


class _Pair(NamedTuple):
    original: Callable[[], Any]
    """Gives it, or ``None`` once it is gone."""
    twin: Any
    path: str


class Pairs:
    """Originals and their twins, by identity of the originals."""

    def __init__(self) -> None:
        self._pairs: dict[int, _Pair] = {}
        self._twins: set[int] = set()
        self._storages: set[int | None] | None = None
        self._owner: int | None = None
        self._owned: dict[int, list[int]] = {}

    def add(self, real: Any, twin: Any, path: str) -> None:
        """Note a twin; one that is known already stays with its owner."""
        original = known.original if (known := self._living(real)) else self._held(real)
        if (replaced := self._pairs.get(id(real))) is not None:
            self._twins.discard(id(replaced.twin))
        self._pairs[id(real)] = _Pair(original, twin, path)
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

    @contextmanager
    def owned_by(self, real: Any) -> Iterator[None]:
        """Let what is noted inside for the first time go when this object does."""
        of_target = self._living(real) is not None and id(real) not in self._owned
        if self._owner is not None or of_target:
            yield
            return
        self._owner = id(real)
        self._owned.setdefault(id(real), [])
        try:
            yield
        finally:
            self._owner = None

    def drop_ended(self) -> None:
        """Forget what was copied for objects that are gone; done between calls."""
        for owner in list(self._owned):
            pair = self._pairs.get(owner)
            if pair is not None and pair.original() is not None:
                continue
            for key in self._owned.pop(owner):
                if (gone := self._pairs.pop(key, None)) is not None:
                    self._twins.discard(id(gone.twin))
        self._storages = None

    def _held(self, real: Any) -> Callable[[], Any]:
        if self._owner is None:
            return lambda: real
        self._owned[self._owner].append(id(real))
        if id(real) != self._owner:
            return lambda: real
        try:
            return weakref.ref(real)
        except TypeError:  # its class has slots, and none for weak references
            return lambda: real

    def _living(self, real: Any) -> _Pair | None:
        """Give the pair, unless it is of another object that lay in the same place."""
        pair = self._pairs.get(id(real))
        return pair if pair is not None and pair.original() is real else None
