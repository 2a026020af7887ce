"""Sampling on a scripted clock: each call says how long it takes, and no time passes in truth."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pytest_compileguard.timing import stats
from pytest_compileguard.timing.blocks import calls_per_block
from pytest_compileguard.timing.clock import Call, GapsShowError
from pytest_compileguard.timing.conditions import VoidError
from pytest_compileguard.timing.sampling import (
    LEAST_PAIRS,
    LEAST_WARMUP,
    MOST_CALLS,
    MOST_PAIRS,
    Order,
    Pairs,
    Sampler,
    Side,
    WarmUp,
)


class ScriptedClock:
    """Adds up what the calls say they take; a call that says ``None`` spoils its block."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def block_s(self, call: Call, calls: int) -> float | None:
        takes_s = call()
        if takes_s is None:
            self.now_s += 1e-3
            return None
        assert isinstance(takes_s, float)
        self.now_s += takes_s * calls
        return takes_s


def sampler(eager: Call, compiled: Call, *, calls: int = 1) -> Sampler:
    clock = ScriptedClock()
    return Sampler(
        eager=Side(name="eager", call=eager),
        compiled=Side(name="compiled", call=compiled),
        clock=clock,
        calls=calls,
        now=clock.now,
    )


def takes(mean_s: float, noise: float = 0.0) -> Callable[[], float]:
    rng = random.Random(mean_s)  # noqa: S311  # a simulation
    return lambda: mean_s * (1 + noise * rng.uniform(-1, 1))


def slower_and_slower(first_s: float, factor: float) -> Callable[[], float]:
    state = [first_s / factor]

    def call() -> float:
        state[0] *= factor
        return state[0]

    return call


def nothing() -> None:
    pass


def test_warm_up_makes_the_wanted_calls_and_ends_when_both_sides_are_steady() -> None:
    warm = sampler(takes(1e-3), takes(2e-3)).warm_up(12, end_s=10)

    assert warm == WarmUp(calls=12, eager_s=1e-3, compiled_s=2e-3, steady=True)


@pytest.mark.parametrize("cooling", ("eager", "compiled"))
def test_warm_up_goes_on_while_either_side_gets_faster(cooling: str) -> None:
    falling = slower_and_slower(1e-2, 0.9)
    sides: dict[str, Call] = {"eager": takes(1e-3), "compiled": takes(1e-3), cooling: falling}
    warm = sampler(sides["eager"], sides["compiled"]).warm_up(10, end_s=0.1)

    assert warm.calls > 10
    assert not warm.steady


def test_warm_up_of_a_slow_call_ends_with_the_time() -> None:
    warm = sampler(takes(0.1), takes(0.1)).warm_up(10, end_s=0.9)

    assert warm.calls == 5


def test_warm_up_always_makes_the_calls_that_a_cuda_graph_needs() -> None:
    warm = sampler(takes(5.0), takes(5.0)).warm_up(10, end_s=0.25)

    assert warm.calls == LEAST_WARMUP
    assert sampler(takes(5.0), takes(5.0)).warm_up(1, end_s=0.25).calls == 1


def test_sampling_stops_at_the_first_look_that_settles_the_limit() -> None:
    pairs = Pairs()
    run = sampler(takes(2e-3, 0.01), takes(1e-3, 0.01))
    run.sample(pairs, end_s=2.4, limit=1.2, at_look=nothing)

    assert len(pairs) == pytest.approx(100, abs=2)  # an eighth of 2.4 s, at 3 ms a pair
    assert stats.decide(pairs.interval(), 1.2) == "above"


def test_sampling_uses_all_its_time_on_an_undecidable_limit() -> None:
    pairs = Pairs()
    run = sampler(takes(1e-3, 0.1), takes(1.001e-3, 0.1))
    looks = []
    run.sample(pairs, end_s=1.0, limit=1.0, at_look=lambda: looks.append(len(pairs)))

    assert len(looks) == stats.LOOKS
    assert looks[-1] == len(pairs) == pytest.approx(500, abs=5)
    assert stats.decide(pairs.interval(), 1.0) == "undecided"


def test_sampling_takes_no_more_pairs_than_a_report_can_use() -> None:
    pairs = Pairs()
    run = sampler(takes(1e-6, 0.5), takes(1.01e-6, 0.5))
    run.sample(pairs, end_s=1.0, limit=1.0, at_look=nothing)

    assert len(pairs) == MOST_PAIRS


def test_either_side_goes_first_in_one_of_each_two_pairs() -> None:
    order: list[str] = []

    def eager() -> float:
        order.append("e")
        return 1.0

    def compiled() -> float:
        order.append("c")
        return 1.0

    sampler(eager, compiled).sample(Pairs(), end_s=8.0, limit=None, at_look=nothing)

    made = "".join(order)
    assert {made[:4], made[4:]} <= {"ecce", "ceec"}


def test_a_pair_with_a_spoilt_half_is_dropped_whole() -> None:
    answers = [1.0, None, 1.0, 1.0]
    pairs = Pairs()
    run = sampler(takes(1.0), lambda: answers.pop(0) if answers else 1.0)
    run.sample(pairs, end_s=20.0, limit=None, at_look=nothing)

    assert len(pairs.eager_s) == len(pairs.compiled_s) == 10


@pytest.mark.parametrize("side", ("eager", "compiled"))
def test_an_exception_of_a_side_is_told_with_its_first_line(side: str) -> None:
    def failing() -> float:
        raise ValueError("no such shape\nmore")

    sides: dict[str, Call] = {"eager": takes(1.0), "compiled": takes(1.0), side: failing}
    run = sampler(sides["eager"], sides["compiled"])

    with pytest.raises(VoidError, match=f"^{side} raised ValueError: no such shape while"):
        run.sample(Pairs(), end_s=1.0, limit=None, at_look=nothing)
    with pytest.raises(VoidError, match=f"^{side} raised ValueError"):
        run.warm_up(3, end_s=1.0)


def test_an_exception_without_words_is_told_by_its_type() -> None:
    def failing() -> float:
        raise MemoryError

    with pytest.raises(VoidError, match=r"eager raised MemoryError while"):
        sampler(failing, takes(1.0)).warm_up(3, end_s=1.0)


@pytest.mark.parametrize("stop", (KeyboardInterrupt, GapsShowError))
def test_what_is_no_fault_of_a_side_passes_through(stop: type[BaseException]) -> None:
    def stopped() -> float:
        raise stop

    with pytest.raises(stop):
        sampler(stopped, takes(1.0)).warm_up(3, end_s=1.0)


def test_a_slow_call_gets_the_pairs_of_an_interval_within_the_grace() -> None:
    pairs = Pairs()
    run = sampler(takes(0.2, 0.01), takes(0.1, 0.01))
    run.sample(pairs, end_s=1.0, limit=1.2, at_look=nothing)
    assert not pairs.interval().defined

    run.fill_up(pairs, end_s=10.0)

    assert pairs.interval().defined
    assert len(pairs) < 40


def test_a_very_slow_call_gets_the_least_pairs_and_no_interval() -> None:
    pairs = Pairs()
    run = sampler(takes(20.0), takes(10.0))
    run.sample(pairs, end_s=1.0, limit=1.2, at_look=nothing)
    run.fill_up(pairs, end_s=10.0)

    assert len(pairs) == LEAST_PAIRS
    assert stats.decide(pairs.interval(), 1.2) == "undecided"


def test_filling_up_adds_nothing_where_there_is_an_interval() -> None:
    pairs = Pairs(eager_s=[1.0] * 20, compiled_s=[1.0] * 20)
    sampler(takes(1.0), takes(1.0)).fill_up(pairs, end_s=10.0)

    assert len(pairs) == 20


@pytest.mark.parametrize(
    ("call_s", "time_s", "calls"),
    (
        (2e-6, 1.0, 250),  # as many as make a block of 0.5 ms
        (1e-4, 1.0, 5),
        (1e-4, 0.03, 3),  # fewer, lest there be fewer than 50 pairs
        (5e-3, 1.0, 1),
        (1.0, 1.0, 1),
        (1.0, -1.0, 1),  # warm-up took all the time
        (1e-9, 1e3, MOST_CALLS),
    ),
)
def test_a_block_is_long_for_the_clock_and_short_for_the_budget(
    call_s: float, time_s: float, calls: int
) -> None:
    warm = WarmUp(calls=10, eager_s=call_s, compiled_s=call_s, steady=True)

    chosen = calls_per_block(warm, block_s=0.5e-3, time_s=time_s)

    assert chosen == pytest.approx(calls, abs=1 if calls > 10 else 0)  # for rounding


def test_the_faster_side_decides_how_long_a_block_is() -> None:
    warm = WarmUp(calls=10, eager_s=1e-3, compiled_s=1e-5, steady=True)

    assert calls_per_block(warm, block_s=0.5e-3, time_s=10) in {50, 51}


def test_each_side_goes_first_equally_often_and_in_no_pattern() -> None:
    order = Order(random.Random(0))  # noqa: S311  # a simulation
    first = [order.compiled_first() for _ in range(400)]

    assert all(first[i] != first[i + 1] for i in range(0, 400, 2))
    assert 60 <= sum(first[::2]) <= 140
