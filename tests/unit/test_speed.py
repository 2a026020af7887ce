from __future__ import annotations

from typing import Any

import pytest

from pytest_compileguard.observation import SpeedObservation
from pytest_compileguard.speed import speed, speed_of
from pytest_compileguard.timing import stats

PAIRS = 20


def observation(**changes: Any) -> SpeedObservation:
    fields: dict[str, Any] = {
        "clock": "cuda_event",
        "device": "cuda:0",
        "call": 0,
        "calls_per_block": 10,
        "warmup": 10,
        "eager_s": (3e-3,) * PAIRS,
        "compiled_s": (2e-3,) * PAIRS,
        "device_eager_s": (1e-3,) * PAIRS,
        "device_compiled_s": (0.5e-3,) * PAIRS,
    }
    return SpeedObservation(**(fields | changes))


def test_each_clock_has_its_own_numbers_in_milliseconds() -> None:
    wall, device = speed(observation(), "wall"), speed(observation(), "device")

    assert wall is not None
    assert device is not None
    assert (wall.clock, wall.eager_ms, wall.compiled_ms) == ("wall", 3.0, 2.0)
    assert (device.clock, device.eager_ms, device.compiled_ms) == ("device", 1.0, 0.5)
    assert (wall.speedup, wall.speedup_low, wall.speedup_high) == pytest.approx((1.5, 1.5, 1.5))
    assert (wall.pairs, wall.confidence) == (PAIRS, stats.CONFIDENCE)


def test_void_samples_have_no_speed() -> None:
    assert speed(observation(void="compiled while sampling"), "wall") is None
    assert speed(observation(void="compiled while sampling"), "device") is None


def test_where_there_is_no_device_clock_there_is_no_device_speed() -> None:
    seen = observation(device_eager_s=(), device_compiled_s=())

    assert speed(seen, "device") is None
    assert speed(seen, "wall") is not None


def test_too_few_pairs_have_no_speed() -> None:
    few = stats.fewest_pairs() - 1

    assert speed_of([3e-3] * few, [2e-3] * few, "wall") is None


def test_the_interval_is_that_of_one_look_among_all() -> None:
    eager_s = [1e-3 * (1 + 0.01 * (i * 7 % 20)) for i in range(PAIRS)]
    told = speed_of(eager_s, [1e-3] * PAIRS, "wall")
    looked_at = stats.ratio_interval(eager_s, [1e-3] * PAIRS, looks=stats.LOOKS)

    assert told is not None
    assert (told.speedup_low, told.speedup_high) == (looked_at.low, looked_at.high)
