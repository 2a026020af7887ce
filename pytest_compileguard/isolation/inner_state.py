"""Objects whose state is neither attributes nor items: random generators, and arrays of bytes."""

from __future__ import annotations

import array
import contextlib
import random
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class InnerState:
    """The state of such an object at one moment."""

    shown: Any
    """What can be compared."""
    put_back: Callable[[Any], object]
    """Gives an object this state."""


def inner_state(value: Any) -> InnerState | None:
    """Read the state of such an object; ``None``: it is none, or can't be read."""
    if isinstance(value, bytearray | array.array):
        return _array_state(value)
    if isinstance(value, torch.Generator):
        tensor = value.get_state()
        return _generator_state(bytes(tensor.tolist()), lambda g: g.set_state(tensor))
    if isinstance(value, random.Random):
        with contextlib.suppress(NotImplementedError):  # the one of the operating system has none
            state = value.getstate()
            return _generator_state(repr(state).encode(), lambda g: g.setstate(state))
    return _numpy_state(value)


def keeps_inside(value: Any) -> bool:
    """Whether what an object holds is neither attributes nor items: arrays of numpy too."""
    numpy = sys.modules.get("numpy")
    return (numpy is not None and isinstance(value, numpy.ndarray)) or bool(inner_state(value))


def _array_state(value: Any) -> InnerState:
    held = value[:]

    def put_back(now: Any) -> None:
        now[:] = held

    return InnerState(bytes(held) if isinstance(held, bytearray) else held.tolist(), put_back)


def _numpy_state(value: Any) -> InnerState | None:
    numpy = sys.modules.get("numpy")
    if numpy is None or not type(value).__module__.startswith("numpy.random"):
        return None
    if isinstance(value, numpy.random.RandomState):
        state = value.get_state()
        return _generator_state(repr(list(state)).encode(), lambda g: g.set_state(state))
    if isinstance(value, numpy.random.Generator):
        found = value.bit_generator.state
        put_back = lambda g: setattr(g.bit_generator, "state", found)  # noqa: E731
        return _generator_state(repr(found).encode(), put_back)
    if isinstance(value, numpy.random.BitGenerator):
        bare = value.state
        return _generator_state(repr(bare).encode(), lambda g: setattr(g, "state", bare))
    return None


def _generator_state(content: bytes, put_back: Callable[[Any], object]) -> InnerState:
    return InnerState(f"random state {zlib.crc32(content):08x}", put_back)
