"""How often the stopping rule errs, on a simulated machine: the figures that the README states.

The whole sampler runs, with its looks and its end of time, on a clock that is made up: each call
takes as long as the model of the machine says, at the moment at which it is made.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import count

import pytest

from pytest_compileguard.timing import stats
from pytest_compileguard.timing.clock import Call
from pytest_compileguard.timing.sampling import Order, Pairs, Sampler, Side

RUNS = 150
CALL_S = 1e-3
TIME_S = 0.8
"""Some 400 pairs."""
NOISE = 0.02

Pace = Callable[[float, str], float]
"""Logarithm of how much slower the machine is, at a moment, for a side."""


class SimulatedClock:
    """A machine whose pace is a matter of the moment; calls return what they cost in truth."""

    def __init__(self, pace: Pace) -> None:
        self.now_s = 0.0
        self._pace = pace

    def now(self) -> float:
        return self.now_s

    def block_s(self, call: Call, calls: int) -> float:
        answer = call()
        assert isinstance(answer, tuple)
        side, cost_s = answer
        took_s = cost_s * math.exp(self._pace(self.now_s, side))
        self.now_s += took_s * calls
        assert isinstance(took_s, float)
        return took_s


def quiet(rng: random.Random) -> Pace:
    return lambda _now_s, _side: rng.gauss(0, NOISE)


def drifting(rng: random.Random) -> Pace:
    """Ever slower: by half at the end."""
    return lambda now_s, _side: rng.gauss(0, NOISE) + 0.5 * now_s / TIME_S


def bimodal(rng: random.Random) -> Pace:
    """A processor that is fast or slow, for some 30 pairs at a time."""
    state = [0.0]

    def pace(_now_s: float, _side: str) -> float:
        if rng.random() < 1 / 60:
            state[0] = 0.8 - state[0]
        return state[0] + rng.gauss(0, NOISE)

    return pace


def with_outliers(rng: random.Random) -> Pace:
    """One call in twenty meets something else."""
    return lambda _now_s, _side: (
        rng.gauss(0, NOISE) + rng.choice((0.7, 1.6)) * (rng.random() < 0.05)
    )


def autocorrelated(rng: random.Random) -> Pace:
    """What holds one side up holds on for some pairs."""
    held_up = [0.0]

    def pace(_now_s: float, side: str) -> float:
        if side == "eager":
            held_up[0] = 0.5 * held_up[0] + rng.gauss(0, NOISE / 2)
            return held_up[0] + rng.gauss(0, NOISE / 2)
        return rng.gauss(0, NOISE / 2)

    return pace


def in_step(rng: random.Random) -> Pace:
    """Two blocks of each four meet something else: sides that took turns strictly would differ."""
    block = count()

    def pace(_now_s: float, _side: str) -> float:
        return 0.025 * (next(block) % 4 in (0, 3)) + rng.gauss(0, NOISE)

    return pace


MACHINES = (quiet, drifting, bimodal, with_outliers, autocorrelated, in_step)
Machine = Callable[[random.Random], Pace]


def decided(machine: Machine, rng: random.Random, *, truth: float, limit: float) -> stats.Decision:
    clock = SimulatedClock(machine(rng))
    pairs = Pairs()
    sampler = Sampler(
        eager=Side(name="eager", call=lambda: ("eager", truth * CALL_S)),
        compiled=Side(name="compiled", call=lambda: ("compiled", CALL_S)),
        clock=clock,
        order=Order(random.Random(rng.random())),  # noqa: S311  # a simulation
        now=clock.now,
    )
    sampler.sample(pairs, end_s=TIME_S, limit=limit, at_look=lambda: None)
    return stats.decide(pairs.interval(), limit)


def counts(
    machine: Machine, *, truth: float, limit: float, runs: int = RUNS
) -> dict[stats.Decision, int]:
    rng = random.Random(7)  # noqa: S311  # a simulation
    found = [decided(machine, rng, truth=truth, limit=limit) for _ in range(runs)]
    decisions: tuple[stats.Decision, ...] = ("above", "below", "undecided")
    return {decision: found.count(decision) for decision in decisions}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_limit_2_percent_below_the_truth_gives_no_false_alarm(machine: Machine) -> None:
    found = counts(machine, truth=1.3, limit=1.3 * 0.98)

    assert found["below"] == 0
    assert found["above"] >= 0.95 * RUNS


@pytest.mark.parametrize("machine", MACHINES)
def test_a_slowdown_of_3_percent_is_not_missed(machine: Machine) -> None:
    found = counts(machine, truth=1.3 / 1.03, limit=1.3)

    assert found["above"] == 0
    assert found["below"] >= 0.98 * RUNS


@pytest.mark.parametrize("machine", MACHINES)
def test_where_the_truth_is_the_limit_it_is_rarely_decided_at_all(machine: Machine) -> None:
    found = counts(machine, truth=1.3, limit=1.3)

    assert found["above"] + found["below"] <= (0.03 if machine is autocorrelated else 0.02) * RUNS
