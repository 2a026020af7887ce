from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_compileguard.timing import stats
from pytest_compileguard.timing.conditions import slow_minority
from pytest_compileguard.timing.stats import Interval, decide, ratio_interval, settled

RUNS = 400
NOISE = 0.02

Noise = Callable[[random.Random], Iterator[tuple[float, float]]]


def quiet(rng: random.Random) -> Iterator[tuple[float, float]]:
    while True:
        yield rng.gauss(0, NOISE), rng.gauss(0, NOISE)


def drifting(rng: random.Random) -> Iterator[tuple[float, float]]:
    # Ever slower, also between the two samples of a pair, whose order alternates.
    for pair, (eager, compiled) in enumerate(quiet(rng)):
        later = 0.002 * pair + 0.001
        first = (later, later + 0.001) if pair % 2 else (later + 0.001, later)
        yield eager + first[0], compiled + first[1]


def bimodal(rng: random.Random) -> Iterator[tuple[float, float]]:
    # The processor is in a slow or a fast phase, 30 pairs long on average.
    slow = 0.0
    for eager, compiled in quiet(rng):
        if rng.random() < 1 / 30:
            slow = 0.8 - slow
        yield eager + slow, compiled + slow


def torn(rng: random.Random) -> Iterator[tuple[float, float]]:
    # Each sample by itself meets a slow moment three times in ten.
    for eager, compiled in quiet(rng):
        yield eager + 0.8 * (rng.random() < 0.3), compiled + 0.8 * (rng.random() < 0.3)


def with_outliers(rng: random.Random) -> Iterator[tuple[float, float]]:
    for eager, compiled in quiet(rng):
        late = [rng.choice((1.0, 4.0)) * (rng.random() < 0.05) for _ in range(2)]
        yield eager + late[0], compiled + late[1]


def second_is_slower(rng: random.Random) -> Iterator[tuple[float, float]]:
    for pair, (eager, compiled) in enumerate(quiet(rng)):
        yield eager + 0.03 * (pair % 2), compiled + 0.03 * ((pair + 1) % 2)


def correlated(rng: random.Random) -> Iterator[tuple[float, float]]:
    # What holds one side up holds on for some pairs.
    held_up = 0.0
    for eager, compiled in quiet(rng):
        held_up = 0.5 * held_up + rng.gauss(0, NOISE)
        yield eager + held_up, compiled


NOISES = (quiet, drifting, bimodal, torn, with_outliers, second_is_slower, correlated)


def sample(
    noise: Noise, pairs: int, rng: random.Random, *, ratio: float = 1.0
) -> tuple[list[float], list[float]]:
    logs = [log for log, _ in zip(noise(rng), range(pairs), strict=False)]
    eager_s = [1e-3 * ratio * math.exp(eager) for eager, _ in logs]
    return eager_s, [1e-3 * math.exp(compiled) for _, compiled in logs]


def sequential(
    noise: Noise, rng: random.Random, *, ratio: float = 1.0, limit: float = 1.0, pairs: int = 240
) -> stats.Decision:
    eager_s, compiled_s = sample(noise, pairs, rng, ratio=ratio)
    for look in range(stats.LOOKS):
        taken = pairs >> (stats.LOOKS - 1 - look)
        interval = ratio_interval(eager_s[:taken], compiled_s[:taken], looks=stats.LOOKS)
        if decide(interval, limit) != "undecided":
            break
    return decide(interval, limit)


def share(noise: Noise, decision: stats.Decision, *, ratio: float, limit: float) -> float:
    rng = random.Random(20)  # noqa: S311  # a simulation
    hits = (sequential(noise, rng, ratio=ratio, limit=limit) == decision for _ in range(RUNS))
    return sum(hits) / RUNS


@pytest.mark.parametrize("noise", NOISES)
def test_sequential_looks_keep_the_stated_error_where_the_truth_is_the_limit(noise: Noise) -> None:
    # Decided at all is wrong here, either way. 1 % is stated for independent pairs; correlated
    # ones come near it, as their correlation is itself an estimate.
    error = 1 - share(noise, "undecided", ratio=1.2, limit=1.2)

    assert error <= (0.03 if noise is correlated else 0.01)


def test_looking_after_every_pair_would_break_the_stated_error() -> None:
    rng = random.Random(20)  # noqa: S311  # a simulation
    wrong = 0
    for _ in range(RUNS):
        eager_s, compiled_s = sample(quiet, 80, rng)
        looks = (ratio_interval(eager_s[:n], compiled_s[:n]) for n in range(8, 81))
        wrong += any(decide(interval, 1.0) != "undecided" for interval in looks)

    assert wrong / RUNS > 0.03


@pytest.mark.parametrize("noise", NOISES)
def test_a_planted_loss_of_3_percent_is_found(noise: Noise) -> None:
    found = share(noise, "below", ratio=1 / 1.03, limit=1.0)

    wide = noise in (torn, second_is_slower, correlated)  # 240 pairs are few for those
    assert found >= (0.3 if wide else 0.99)
    assert share(noise, "above", ratio=1 / 1.03, limit=1.0) == 0


@pytest.mark.parametrize("pairs", (10, 25, 100))
@pytest.mark.parametrize("noise", (quiet, bimodal, torn, with_outliers))
def test_an_interval_covers_the_truth_as_often_as_stated(noise: Noise, pairs: int) -> None:
    rng = random.Random(21)  # noqa: S311  # a simulation
    covered = 0
    for _ in range(RUNS):
        interval = ratio_interval(*sample(noise, pairs, rng, ratio=1.5), confidence=0.9)
        covered += interval.low <= 1.5 <= interval.high

    # Three standard deviations of a share of RUNS below what is stated.
    assert covered / RUNS >= 0.9 - 3 * math.sqrt(0.9 * 0.1 / RUNS)


def test_pairing_cancels_a_drift_that_unpaired_means_take_for_a_slowdown() -> None:
    rng = random.Random(22)  # noqa: S311  # a simulation
    eager_s, compiled_s = sample(drifting, 200, rng)
    unpaired = sum(eager_s[100:]) / sum(compiled_s[:100])

    assert unpaired > 1.2
    assert ratio_interval(eager_s, compiled_s).ratio == pytest.approx(1, abs=0.01)


def test_looking_often_costs_width_and_more_pairs_gain_it() -> None:
    rng = random.Random(23)  # noqa: S311  # a simulation
    eager_s, compiled_s = sample(quiet, 400, rng)
    once = ratio_interval(eager_s, compiled_s)
    often = ratio_interval(eager_s, compiled_s, looks=4)
    few = ratio_interval(eager_s[:50], compiled_s[:50])

    assert once.half_width < often.half_width < few.half_width
    assert (once.ratio, once.pairs, once.confidence) == (often.ratio, 400, 0.99)


def test_correlated_pairs_give_a_wider_interval_than_the_same_pairs_shuffled() -> None:
    rng = random.Random(24)  # noqa: S311  # a simulation
    eager_s, compiled_s = sample(correlated, 400, rng)
    shuffled = rng.sample(list(zip(eager_s, compiled_s, strict=True)), 400)
    in_order = ratio_interval(eager_s, compiled_s)
    no_order = ratio_interval([e for e, _ in shuffled], [c for _, c in shuffled])

    assert in_order.ratio == no_order.ratio
    assert in_order.half_width > 1.2 * no_order.half_width


@pytest.mark.parametrize("pairs", (30, 101, 1000))
def test_the_ranks_are_those_of_the_normal_approximation(pairs: int) -> None:
    z = NormalDist().inv_cdf(0.995)

    assert stats._rank(pairs, 0.01) == pytest.approx((pairs - z * math.sqrt(pairs)) / 2, abs=1)


# Greatest k with 2 P(binomial(n, 1/2) < k) <= alpha, from tables of the sign test.
@pytest.mark.parametrize(
    ("pairs", "alpha", "rank"),
    ((7, 0.01, 0), (8, 0.01, 1), (10, 0.05, 2), (20, 0.05, 6), (25, 0.01, 6)),
)
def test_the_ranks_are_those_of_the_tables(pairs: int, alpha: float, rank: int) -> None:
    assert stats._rank(pairs, alpha) == rank


def test_too_few_pairs_have_no_interval_and_decide_nothing() -> None:
    fewest = stats.fewest_pairs()
    one_less = ratio_interval([2.0] * (fewest - 1), [1.0] * (fewest - 1), looks=stats.LOOKS)

    assert not one_less.defined
    assert (one_less.ratio, one_less.low, one_less.high) == (2.0, 0, math.inf)
    assert {decide(one_less, limit) for limit in (0.0, 1e-9, 1.0, 1e9)} == {"undecided"}
    assert not settled(one_less, None)
    assert not settled(one_less, 1.0)


def test_the_fewest_pairs_have_one() -> None:
    fewest = stats.fewest_pairs()

    assert fewest == 10
    assert ratio_interval([2.0] * fewest, [1.0] * fewest, looks=stats.LOOKS).defined


def test_no_pairs_have_no_ratio_and_decide_nothing() -> None:
    nothing = ratio_interval([], [])

    assert math.isnan(nothing.ratio)
    assert (nothing.pairs, nothing.defined) == (0, False)
    assert decide(nothing, 1.0) == "undecided"


def test_equal_samples_give_an_exact_ratio() -> None:
    interval = ratio_interval([3e-3] * 50, [2e-3] * 50)

    assert interval.low == interval.ratio == interval.high == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("low", "high", "decision"),
    (
        (1.2, 1.3, "above"),
        (1.1, 1.2, "undecided"),
        (1.0, 1.19, "below"),
        (0.0, math.inf, "undecided"),
    ),
)
def test_a_decision_needs_the_whole_interval_on_one_side(
    low: float, high: float, decision: str
) -> None:
    interval = Interval(ratio=1.2, low=low, high=high, confidence=0.99, pairs=50)

    assert decide(interval, 1.2) == decision


def test_sampling_is_settled_when_the_limit_is_decided_well_or_without_one_when_tight() -> None:
    tight = Interval(ratio=1.0, low=0.996, high=1.004, confidence=0.99, pairs=50)
    wide = Interval(ratio=2.0, low=1.5, high=2.5, confidence=0.99, pairs=50)
    fair = Interval(ratio=2.0, low=1.95, high=2.05, confidence=0.99, pairs=50)

    assert settled(tight, None)
    assert not settled(tight, 1.0)
    assert not settled(fair, None)
    assert settled(fair, 1.2)
    assert not settled(wide, 1.2)


@pytest.mark.parametrize("bad", (0.0, -1.0, math.inf, math.nan))
def test_an_impossible_sample_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite number above 0"):
        ratio_interval([1.0, bad], [1.0, 1.0])


def test_sides_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="2 eager samples, 1 compiled: must be pairs"):
        ratio_interval([1.0, 1.0], [1.0])


def test_a_change_of_pace_is_the_factor_between_early_and_late_samples() -> None:
    assert stats.pace_change([1.0] * 10 + [2.0] * 10) == 2
    assert stats.pace_change([2.0] * 10 + [1.0] * 10) == 2
    assert stats.pace_change([1.0, 5.0]) == 1


@pytest.mark.parametrize(("every", "told"), ((4, True), (10**6, False)))
def test_calls_that_are_slow_now_and_then_are_told(every: int, *, told: bool) -> None:
    eager_s = [1.3] * 80
    compiled_s = [2.0 if i % every == 3 else 1.0 for i in range(80)]
    slowest_s = [50.0, *compiled_s[1:]]  # a stall of the machine

    for side_s in (compiled_s, slowest_s):
        notes = slow_minority(eager_s, side_s)
        assert bool(notes) == told
        assert all("by the median 1.30x" in note and "compiled" in note for note in notes)


def test_noise_of_both_sides_is_no_slow_minority() -> None:
    rng = random.Random(0)  # noqa: S311  # a simulation
    for _ in range(200):
        sides_s = [[rng.lognormvariate(0, 0.4) for _ in range(60)] for _ in range(2)]
        assert not slow_minority(*sides_s)


seconds = st.floats(min_value=1e-7, max_value=1e3)
pairs_of_seconds = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=40)


@given(pairs_of_seconds)
def test_swapping_the_sides_inverts_the_interval(pairs: list[tuple[float, float]]) -> None:
    eager_s, compiled_s = ([pair[side] for pair in pairs] for side in (0, 1))
    there, back = ratio_interval(eager_s, compiled_s), ratio_interval(compiled_s, eager_s)

    assert there.ratio * back.ratio == pytest.approx(1)
    if there.defined:
        assert there.low * back.high == pytest.approx(1)
    assert there.defined == back.defined


@given(pairs_of_seconds, st.floats(min_value=1e-3, max_value=1e3))
def test_the_interval_holds_the_ratio_and_ignores_the_unit(
    pairs: list[tuple[float, float]], unit: float
) -> None:
    eager_s, compiled_s = ([pair[side] for pair in pairs] for side in (0, 1))
    interval = ratio_interval(eager_s, compiled_s)
    scaled = ratio_interval([unit * s for s in eager_s], [unit * s for s in compiled_s])

    assert interval.low <= interval.ratio <= interval.high
    assert scaled.ratio == pytest.approx(interval.ratio)


def test_pairs_that_hang_together_give_at_least_their_range() -> None:
    ratios = [1.0 + 0.001 * i for i in range(300)]  # a drift: all pairs depend on each other
    interval = ratio_interval(ratios, [1.0] * 300)
    assert (interval.low, interval.high) == pytest.approx((min(ratios), max(ratios)), rel=0.02)
    assert decide(interval, 0.9) == "above"
    assert decide(interval, 1.2) == "undecided"
