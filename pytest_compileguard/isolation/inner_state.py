"""Objects whose state is neither attributes nor items: random generators, bytes and text."""

from __future__ import annotations

import array
import contextlib
import io
import random
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pytest_compileguard.answers import attribute
from pytest_compileguard.isolation.arrays import is_array

_MOST_SHOWN = 1_000
"""Characters of a text that are told whole."""


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
    if isinstance(value, io.StringIO | io.BytesIO):
        return None if value.closed else _stream_state(value)
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
    return is_array(value) or bool(inner_state(value))


def _array_state(value: Any) -> InnerState:
    held = value[:]

    def put_back(now: Any) -> None:
        now[:] = held

    return InnerState(bytes(held) if isinstance(held, bytearray) else held.tolist(), put_back)


def _stream_state(value: Any) -> InnerState:
    """The text of a stream in memory, and where it is written next; of a long one, a checksum."""
    held, *rest, _ = value.__getstate__()
    shown = held
    if len(held) > _MOST_SHOWN:
        content = held if isinstance(held, bytes) else held.encode(errors="surrogatepass")
        shown = f"{len(held)} characters or bytes with checksum {zlib.crc32(content):08x}"
    return InnerState((shown, value.tell()), lambda now: now.__setstate__((held, *rest, None)))


def _numpy_state(value: Any) -> InnerState | None:
    numpy = sys.modules.get("numpy")
    if numpy is None or not str(attribute(type(value), "__module__")).startswith("numpy.random"):
        return None
    if isinstance(value, numpy.random.SeedSequence):
        return _seed_state(value)
    if isinstance(value, numpy.random.RandomState):
        state = value.get_state()
        return _generator_state(repr(list(state)).encode(), lambda g: g.set_state(state))
    if isinstance(value, numpy.random.Generator):
        return _bit_state(value.bit_generator, lambda g: g.bit_generator)
    if isinstance(value, numpy.random.BitGenerator):
        return _bit_state(value, lambda bits: bits)
    return None


def _bit_state(bits: Any, bits_of: Callable[[Any], Any]) -> InnerState:
    """The state of a numpy generator; how many others it made stands beside its numbers."""
    held, seed = bits.state, _seed_state(_seed_of(bits))

    def put_back(now: Any) -> None:
        bits_of(now).state = held
        if seed is not None:
            seed.put_back(_seed_of(bits_of(now)))

    text = f"{held!r} {seed.shown}" if seed else repr(held)
    return _generator_state(text.encode(), put_back)


def _seed_of(bits: Any) -> Any:
    # It has a public name since numpy 1.25.
    return getattr(bits, "seed_seq", None) or getattr(bits, "_seed_seq", None)


def _seed_state(seed: Any) -> InnerState | None:
    """How many others a seed made, on which depends what it makes next; some seeds make none."""
    kind = sys.modules["numpy"].random.SeedSequence
    if not isinstance(seed, kind):
        return None
    count: int = seed.n_children_spawned

    def put_back(now: Any) -> None:
        if (more := now.n_children_spawned - count) != 0:
            kind.spawn(now, -more)  # nothing else sets it; less than none are taken off

    return InnerState(f"{count} made of it", put_back)


def _generator_state(content: bytes, put_back: Callable[[Any], object]) -> InnerState:
    return InnerState(f"random state {zlib.crc32(content):08x}", put_back)
