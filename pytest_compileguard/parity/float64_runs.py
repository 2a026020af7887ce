"""The float64 runs of a call, each made when it is first asked for.

They settle what a tolerance can't: one run in float64, and some from inputs that rounding moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from pytest_compileguard.isolation.widening import Moves, Nudge
from pytest_compileguard.observation import MismatchKind, MismatchPart
from pytest_compileguard.parity.numbers import numbers_of, same_places
from pytest_compileguard.parity.side import Place, Side

MakeRun = Callable[[Nudge | None], Side | str]
"""Makes a run in float64, or says why there is none; with a nudge, from inputs that moved."""

_MOVED_PAIRS = 3
"""Runs in which all values move one way, and then the other: one of the two passes a jump that is
no further away than the way."""
_COARSE_PAIRS = 6
"""The same for a coarser unit, with which values at many jumps fall on other sides."""


class About(NamedTuple):
    """Which leaf is compared."""

    path: str
    place: Place
    kind: MismatchKind
    is_structure: bool = False

    @property
    def part(self) -> MismatchPart:
        if self.is_structure:
            return "structure"
        return "output" if self.kind == "value" else "other"


class Float64Runs:
    """The runs of one call."""

    def __init__(self, make: MakeRun) -> None:
        self._make = make
        self._exact: Side | str | None = None
        self._moved: dict[tuple[Moves, float], list[Side]] = {}
        self._leaves: dict[tuple[int, Place], dict[str, Any]] = {}

    @property
    def why_none(self) -> str | None:
        """Why there is no run, if one was asked for and can't be made."""
        return self._exact if isinstance(self._exact, str) else None

    @property
    def was_made(self) -> bool:
        return isinstance(self._exact, Side)

    def exact(self, about: About, like: Any) -> torch.Tensor | None:
        """The numbers of a leaf in float64, if there are any in the places of ``like``."""
        if self._exact is None:
            self._exact = self._make(None)
        return None if isinstance(self._exact, str) else self._numbers(self._exact, about, like)

    def moved(
        self, about: About, like: Any, moves: Moves = "inputs", unit: float = 1.0
    ) -> list[torch.Tensor]:
        """The same where rounding moved what ``Nudge`` says of ``moves`` and ``unit``."""
        key = moves, unit
        if key not in self._moved:
            pairs = range(_COARSE_PAIRS if moves == "products" else _MOVED_PAIRS)
            runs = [self._make(Nudge(seed, way, *key)) for seed in pairs for way in (1, -1)]
            self._moved[key] = [run for run in runs if isinstance(run, Side)]
        exact = self.exact(about, like)
        found = [self._numbers(side, about, like) for side in self._moved[key]]
        # Where rounding decides how many elements there are, some runs say nothing of each.
        return [
            numbers
            for numbers in found
            if numbers is not None and exact is not None and numbers.shape == exact.shape
        ]

    def _numbers(self, side: Side, about: About, like: Any) -> torch.Tensor | None:
        key = id(side), about.place
        if key not in self._leaves:
            self._leaves[key] = side.leaves(about.place)
        value = self._leaves[key].get(about.path)
        return numbers_of(value) if same_places(value, like) else None
