"""Objects that a test passes and drops are not kept alive, nor are their copies."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.options import Options
from pytest_compileguard.spec import CompileCheck

pytestmark = pytest.mark.usefixtures("compiler_loaded")

CALLS = 6


class Batch:
    """What a test makes anew for each call."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x
        self.parts = [Part(x + 1)]


class Part:
    """An object inside of another one."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


class Cache:
    """What is passed to each call, and grows."""

    def __init__(self) -> None:
        self.seen: list[Part] = []


def guarding(target: Callable[..., Any]) -> tuple[CompileGuard, Callable[..., Any]]:
    spec = CompileCheck(backend="aot_eager", max_recompiles=0)
    guard = CompileGuard(nodeid="t.py::t", spec=spec, options=Options(no_timing=True))
    return guard, guard(target)


def living(kind: type) -> int:
    gc.collect()
    return sum(type(found) is kind for found in gc.get_objects())


def test_batches_end_with_their_calls() -> None:
    guard, guarded = guarding(lambda batch: batch.x * 2 + batch.parts[0].x)
    ends = []
    try:
        for number in range(CALLS):
            batch = Batch(torch.full((3,), float(number)))
            ends.append(weakref.ref(batch))
            assert guarded(batch).tolist() == [3.0 * number + 1] * 3
            del batch
        # The last one is kept to be timed, by each of the three sides at most.
        assert sum(end() is not None for end in ends) <= 1
        assert max(living(Batch), living(Part)) <= 4
    finally:
        guard.finish()
        guard.close()


def test_what_the_test_still_holds_keeps_its_copy() -> None:
    def target(cache: Cache, x: torch.Tensor) -> torch.Tensor:
        return x + len(cache.seen)

    guard, guarded = guarding(target)
    cache = Cache()
    try:
        for _ in range(3):
            assert guarded(cache, torch.zeros(2)).sum() == 0
        ((_, observation),) = guard.finish()
    finally:
        guard.close()
    facts: Any = observation.compile
    assert (facts.graphs, facts.recompiles) == (1, ())


def test_what_a_passed_object_takes_in_later_ends_with_it() -> None:
    def target(cache: Cache, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + len(cache.seen))

    guard, guarded = guarding(target)
    cache = Cache()
    try:
        for _ in range(3):
            cache.seen.append(Part(torch.zeros(2)))
            guarded(cache, torch.zeros(2))
        cache.seen.clear()
        del cache
        for _ in range(2):
            guarded(Cache(), torch.zeros(2))
        assert living(Part) == 0
    finally:
        guard.finish()
        guard.close()
