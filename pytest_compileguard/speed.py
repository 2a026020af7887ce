"""From raw samples to the numbers of a report."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pytest_compileguard.finding import Speed
from pytest_compileguard.observation import Clock, SpeedObservation
from pytest_compileguard.timing import stats

_MS_PER_S = 1e3


def speed(observation: SpeedObservation, clock: Clock) -> Speed | None:
    """Derive the numbers of one clock; ``None`` if its samples don't count or are too few."""
    if observation.void is not None:
        return None
    if clock == "device":
        return speed_of(observation.device_eager_s, observation.device_compiled_s, clock)
    return speed_of(observation.eager_s, observation.compiled_s, clock)


def speed_of(
    eager_s: Sequence[float],
    compiled_s: Sequence[float],
    clock: Clock,
    *,
    confidence: float = stats.CONFIDENCE,
    looks: int = stats.LOOKS,
) -> Speed | None:
    """Derive the numbers from pairs of samples, in seconds; ``None`` if the pairs are too few.

    Args:
        eager_s: Seconds a call, one value a pair, in the order in which they were taken.
        compiled_s: As ``eager_s``, pair by pair.
        clock: What was measured.
        confidence: Probability that the interval holds.
        looks: How often the sampling may have looked at them before it stopped.
    """
    interval = stats.ratio_interval(eager_s, compiled_s, confidence=confidence, looks=looks)
    if not interval.defined:
        return None
    return Speed(
        clock=clock,
        speedup=interval.ratio,
        speedup_low=interval.low,
        speedup_high=interval.high,
        confidence=confidence,
        eager_ms=median(eager_s) * _MS_PER_S,
        compiled_ms=median(compiled_s) * _MS_PER_S,
        pairs=interval.pairs,
    )
