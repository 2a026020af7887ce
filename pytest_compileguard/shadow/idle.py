"""Tells of a call that code which does nothing would stand in for: then nothing was compared.

A call that returns no value may still write, draw or differentiate, and all that is compared. So
the eager side is held against one that leaves all as it was: only if they agree in everything, to
the bit, does an agreement of the compiled side say nothing.
"""

from __future__ import annotations

import dataclasses

import torch

from pytest_compileguard.isolation.scene import Scene
from pytest_compileguard.isolation.storages import is_plain, same_bits
from pytest_compileguard.parity.leaves import lack_values
from pytest_compileguard.parity.side import Place, Side
from pytest_compileguard.parity.tolerance import Tolerance
from pytest_compileguard.shadow.call import ComparedCall

LEFT_NOTHING = (
    "output: None, and no call changes anything that is compared, so code that does nothing would "
    "pass; let the target return what is to be compared"
)
_EXACTLY = Tolerance(rtol=0.0, atol=0.0)
_OUTPUT = "output"
_TENSORS: tuple[Place, ...] = ("result", "met")
"""Where most calls write to."""


def leaves_nothing(call: ComparedCall, expected: Side, left: Scene) -> bool:
    """Whether the eager side gave no value and left everything as it found it."""
    if expected.error is not None or not lack_values(expected.outputs):
        return False
    if any(_is_written(call, expected, place) for place in _TENSORS):
        return False  # at once, where comparing would word each difference
    found = left.now()
    call.scene.restore()
    try:
        idle = _idle(call, expected)
        comparison = dataclasses.replace(call, tolerance=_EXACTLY).comparison()
        seen = comparison.compare(expected, idle)
        comparison.compare_surroundings(left.snapshot, call.scene.now().snapshot)
        comparison.compare_random_states(left.random, call.scene.random)
    finally:
        found.restore()
    return not seen.mismatches


def _is_written(call: ComparedCall, expected: Side, place: Place) -> bool:
    """Whether a tensor holds other numbers than before the call."""
    before = call.snapshot.held(place)
    return any(_differ(before.get(path), now) for path, now in expected.leaves(place).items())


def _differ(before: object, now: object) -> bool:
    if not isinstance(before, torch.Tensor) or not isinstance(now, torch.Tensor):
        return False
    if not is_plain(before) or not is_plain(now):
        return False
    return not same_bits(before, now)


def _idle(call: ComparedCall, expected: Side) -> Side:
    """The side of a call that does nothing, and gives the same form without values."""

    def nothing(*_: object, **__: object) -> None:
        return None

    made = dataclasses.replace(call.snapshot, target=nothing).run(call.cotangents)
    given = [pair for pair in expected.objects if pair[0].startswith(_OUTPUT)]
    return dataclasses.replace(
        made, outputs=expected.outputs, objects=[*made.objects, *given], cotangents=call.cotangents
    )
