"""Arithmetic on paired samples: an estimate, its interval, a decision, and when to stop.

The estimate. Eager and compiled are timed in turn, so sample ``i`` of the one lies beside sample
``i`` of the other. Whatever the machine did at that moment (clock, temperature, a neighbour)
multiplies both and cancels in ``y_i = log(eager_i / compiled_i)``. The speedup is
``exp(median(y))``: outliers, however far out, move a median by one rank at most, and with
logarithms neither side is the favoured one: swapping the sides inverts the number exactly.

The interval is that of the sign test. Each ``y_i`` lies below the true median with probability
one half, so the number of those below is binomial, and the ``k``-th smallest and ``k``-th largest
``y`` enclose the true median with a probability that the binomial distribution gives exactly. No
shape of noise is assumed (Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2;
Le Boudec, Performance Evaluation of Computer and Communication Systems, section 2.2). With too
few pairs no ``k`` reaches the confidence; then there is no interval, and nothing is ever decided.

Dependence. A machine that changes its pace in phases makes neighbouring pairs alike, and alike
pairs tell less than independent ones. The correlation of the signs of ``y_i - median`` over time
tells how many pairs one independent pair is worth (the integrated autocorrelation time, by the
initial positive sequence of Geyer, Practical Markov Chain Monte Carlo, Statistical Science 7,
1992), and the ranks are taken for that smaller number. Correlation only ever widens an interval.
The correction is an estimate too: where it fades within some five pairs, simulations err in 2 to
3 % of runs instead of 1 %; a wave longer than the whole run can't be told from a true difference.

Looks. Sampling stops when the interval is good enough, and looking often until it is would raise
the error far above what is stated. So there are at most ``LOOKS`` looks (group-sequential design;
Jennison and Turnbull, Group Sequential Methods, 2000), and each is made at the confidence
``1 - (1 - confidence) / LOOKS``. By Bonferroni's inequality all intervals of a run then hold
together with the stated confidence, whichever look was the last one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count
from operator import mul
from statistics import median
from typing import Literal

CONFIDENCE = 0.99
"""Stated probability that the interval holds, over all looks together."""
LOOKS = 4
"""Most times that one run of sampling looks at its interval."""
TIGHT = 0.005
"""Relative half width of an interval that more pairs need not improve."""
PRESENTABLE = 0.05
"""The same once the limit is decided: half of the default noise threshold of baselines."""

Decision = Literal["above", "below", "undecided"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A ratio and the interval that encloses the true one."""

    ratio: float
    """Eager time / compiled time; not a number without any pair."""
    low: float
    high: float
    confidence: float
    pairs: int

    @property
    def defined(self) -> bool:
        """Whether there were pairs enough; if not, it reaches from 0 to infinity."""
        return 0 < self.low <= self.high < math.inf

    @property
    def half_width(self) -> float:
        """Relative, for example 0.005 for 1.00 to 1.01; infinite if undefined."""
        return math.sqrt(self.high / self.low) - 1 if self.defined else math.inf


def ratio_interval(
    eager_s: Sequence[float],
    compiled_s: Sequence[float],
    *,
    confidence: float = CONFIDENCE,
    looks: int = 1,
) -> Interval:
    """Estimate eager time / compiled time from pairs, in the order in which they were taken.

    Args:
        eager_s: Seconds a call, one value a pair.
        compiled_s: As ``eager_s``, pair by pair.
        confidence: Probability that the interval holds, over all looks together.
        looks: How many times the growing samples may be looked at.

    Raises:
        ValueError: The sides differ in length, or a sample is not a finite number above 0.
    """
    logs = _log_ratios(eager_s, compiled_s)
    pairs, low, high = len(logs), 0.0, math.inf
    ratio = math.exp(median(logs)) if logs else math.nan
    if rank := _enclosing_rank(logs, (1 - confidence) / looks):
        ordered = sorted(logs)
        low, high = math.exp(ordered[rank - 1]), math.exp(ordered[-rank])
    return Interval(ratio=ratio, low=low, high=high, confidence=confidence, pairs=pairs)


def decide(interval: Interval, limit: float) -> Decision:
    """Say on which side of the limit the true ratio lies; the limit itself counts as above."""
    return side_of(interval.low, interval.high, limit) if interval.defined else "undecided"


def side_of(low: float, high: float, limit: float) -> Decision:
    """Say the same of the bounds of an interval that is defined."""
    if low >= limit:
        return "above"
    return "below" if high < limit else "undecided"


def settled(interval: Interval, limit: float | None, *, tight: float = TIGHT) -> bool:
    """Whether more pairs would tell nothing that matters; ``limit`` is ``None``: there is none."""
    if limit is None:
        return interval.half_width <= tight
    return decide(interval, limit) != "undecided" and interval.half_width <= PRESENTABLE


@lru_cache(maxsize=64)
def fewest_pairs(confidence: float = CONFIDENCE, looks: int = LOOKS) -> int:
    """Return the least number of pairs that can have an interval."""
    return next(pairs for pairs in count(1) if _rank(pairs, (1 - confidence) / looks))


def pace_change(samples_s: Sequence[float]) -> float:
    """Return how many times slower (or faster) the machine became: 1.0 for a steady one."""
    third = len(samples_s) // 3
    if not third:
        return 1.0
    early_s, late_s = median(samples_s[:third]), median(samples_s[-third:])
    return max(early_s, late_s) / min(early_s, late_s)


def ratio_of_totals(eager_s: Sequence[float], compiled_s: Sequence[float]) -> float:
    """Return the ratio of the mean times, each without the slowest twentieth of its samples.

    A median of ratios does not see what happens in fewer than half of the pairs.
    """
    eager_total_s, compiled_total_s = (
        sum(sorted(side_s)[: len(side_s) - len(side_s) // 20]) for side_s in (eager_s, compiled_s)
    )
    return eager_total_s / compiled_total_s


def tail(samples_s: Sequence[float]) -> float:
    """Return how many times the median one sample in five takes at least."""
    ordered = sorted(samples_s)
    return ordered[len(ordered) * 4 // 5] / median(ordered)


def _log_ratios(eager_s: Sequence[float], compiled_s: Sequence[float]) -> list[float]:
    if len(eager_s) != len(compiled_s):
        raise ValueError(f"{len(eager_s)} eager samples, {len(compiled_s)} compiled: must be pairs")
    for sample_s in (*eager_s, *compiled_s):
        if not 0 < sample_s < math.inf:
            raise ValueError(f"sample of {sample_s!r} s: must be a finite number above 0")
    return [math.log(e) - math.log(c) for e, c in zip(eager_s, compiled_s, strict=True)]


def _enclosing_rank(logs: list[float], alpha: float) -> int:
    """Return the rank of both ends of the interval, counted from outside; 0: there is none."""
    pairs = len(logs)
    independent = int(pairs / _correlation_time(logs))
    rank = _rank(independent, alpha) * pairs // max(independent, 1)
    # Pairs that depend on each other so strongly that few independent ones are left say
    # nothing but their range. It is the widest interval that samples can give.
    return rank or min(_rank(pairs, alpha), 1)


@lru_cache(maxsize=4096)
def _rank(pairs: int, alpha: float) -> int:
    """Return the greatest k with ``2 P(binomial(pairs, 1/2) < k) <= alpha``, in exact integers."""
    allowed = int(Fraction(alpha) * 2**pairs) // 2
    rank, term = 0, 1
    tail = term
    while tail <= allowed:
        rank += 1
        term = term * (pairs - rank + 1) // rank
        tail += term
    return rank


def _correlation_time(logs: list[float]) -> float:
    """Return how many pairs are worth one independent pair, 1 or more."""
    middle = median(logs) if logs else 0.0
    signs = [(y > middle) - (y < middle) for y in logs]
    total = sum(map(mul, signs, signs))
    time = 1.0
    for lag in range(1, len(signs) // 4 + 1, 2):
        products = sum(map(mul, signs, signs[lag:])) + sum(map(mul, signs, signs[lag + 1 :]))
        if products <= 0:
            break
        time += 2 * products / total
    return max(time, 1.0)
