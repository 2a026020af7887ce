"""The order of samples: warm-up, pairs in turn, and when to look.

Knows neither torch nor a device: clocks are handed in, and so is the time.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from pytest_compileguard.timing import stats
from pytest_compileguard.timing.clock import BlockClock, Call, GapsShowError
from pytest_compileguard.timing.conditions import VoidError

LEAST_WARMUP = 3
"""What a CUDA graph needs: one call to warm up, one to record, one to replay."""
LEAST_PAIRS = 3
"""The median of fewer shows nothing."""
MOST_PAIRS = 2000
"""Resolves some 0.1 % at a noise of 2 %; more would only fill reports."""
MOST_CALLS = 10_000

_PATIENCE_PAIRS = 4 * stats.fewest_pairs()
_LOOK_PARTS = tuple(0.5**left for left in reversed(range(stats.LOOKS)))
"""Parts of the sampling time after which to look: an eighth, a quarter, a half, all."""
_WINDOW = 5
_STEADY = 0.9
"""A window of calls that takes less than this part of the one before: still warming up."""

Now = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """Eager or compiled."""

    name: str
    call: Call
    prepare: Call | None = None
    """Done untimed before each block."""
    most_calls: int = MOST_CALLS
    """Calls that a block may have at most."""

    def also_prepared(self, last: Call) -> Side:
        """Do one more thing right before each block, which then has one call."""
        first = self.prepare

        def prepare() -> None:
            if first is not None:
                first()
            last()

        return replace(self, prepare=prepare, most_calls=1)

    def prepare_block(self) -> None:
        """Do what stands before each block."""
        if self.prepare is not None:
            self.prepare()

    def once(self) -> object:
        """Make one call, prepared as timed ones are."""
        self.prepare_block()
        return self.call()

    def block_s(self, clock: BlockClock, calls: int) -> float | None:
        """Time a block.

        Raises:
            VoidError: The side raised.
        """
        try:
            self.prepare_block()
            return clock.block_s(self.call, calls)
        except (GapsShowError, VoidError):
            raise
        except Exception as error:  # code of users may raise anything
            message = f"{self.name} raised {_one_line(error)} while it was being timed"
            raise VoidError(message) from error


@dataclass(kw_only=True, slots=True)
class Pairs:
    """Samples in seconds a call, in the order in which they were taken; they grow."""

    eager_s: list[float] = field(default_factory=list)
    compiled_s: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.eager_s)

    def interval(self) -> stats.Interval:
        """Estimate the ratio, at the confidence of one look."""
        return stats.ratio_interval(self.eager_s, self.compiled_s, looks=stats.LOOKS)


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmUp:
    """What the untimed calls showed."""

    calls: int
    """Calls of each side."""
    eager_s: float
    compiled_s: float
    steady: bool
    """Whether neither side was still getting faster."""


class Order:
    """Which side goes first: both equally often, and else at random.

    The second one of a pair meets other caches than the first. And an order that repeats falls
    into step with what else repeats: in sides that took turns strictly, equal calls on a GPU
    differed by up to 0.5 %, in one direction for as long as the run lasted.
    """

    def __init__(self, generator: random.Random | None = None) -> None:
        self._random = generator or random.Random()  # noqa: S311  # nothing secret
        self._owed: bool | None = None

    def compiled_first(self) -> bool:
        """Decide for the next pair: of each two, one has eager first."""
        if self._owed is not None:
            owed, self._owed = self._owed, None
            return owed
        chosen = self._random.random() < 0.5  # noqa: PLR2004  # a coin
        self._owed = not chosen
        return chosen


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampler:
    """Takes samples of two sides on one clock."""

    eager: Side
    compiled: Side
    clock: BlockClock
    calls: int = 1
    """Calls per block."""
    order: Order = field(default_factory=Order)
    tight: float = stats.TIGHT
    """Relative half width of an interval at which to stop where no limit is to be decided."""
    now: Now = time.perf_counter

    def warm_up(self, wanted: int, *, end_s: float) -> WarmUp:
        """Call both sides until they are steady, ``wanted`` times at least.

        At the end of the time it stops, with ``LEAST_WARMUP`` calls at least.
        """
        least = min(wanted, LEAST_WARMUP)
        eager_s: list[float] = []
        compiled_s: list[float] = []
        while len(eager_s) < least or self.now() < end_s:
            if len(eager_s) >= wanted and _is_steady(eager_s) and _is_steady(compiled_s):
                break
            eager_s.append(self.eager.block_s(self.clock, 1) or math.inf)
            compiled_s.append(self.compiled.block_s(self.clock, 1) or math.inf)
        return WarmUp(
            calls=len(eager_s),
            eager_s=median(eager_s[-_WINDOW:]),
            compiled_s=median(compiled_s[-_WINDOW:]),
            steady=_is_steady(eager_s) and _is_steady(compiled_s),
        )

    def sample(
        self, pairs: Pairs, *, end_s: float, limit: float | None, at_look: Callable[[], None]
    ) -> None:
        """Take pairs until they settle the limit, or the time is over.

        Args:
            pairs: Where to put them.
            end_s: Moment at which the time is over.
            limit: Speedup to be decided; ``None``: until the interval is tight.
            at_look: Called at each look, outside all samples; it may raise to end the sampling.
        """
        begin_s = self.now()
        for part in _LOOK_PARTS:
            look_s = begin_s + part * (end_s - begin_s)
            while self.now() < look_s and len(pairs) < MOST_PAIRS:
                self._take(pairs)
            at_look()
            if stats.settled(pairs.interval(), limit, tight=self.tight):
                return

    def fill_up(self, pairs: Pairs, *, end_s: float) -> None:
        """Take what is missing for an interval; ``LEAST_PAIRS`` even if the time is over.

        None of the looks had an interval then, so this adds no further look.
        """
        while len(pairs) < LEAST_PAIRS or (
            len(pairs) < _PATIENCE_PAIRS and self.now() < end_s and not pairs.interval().defined
        ):
            self._take(pairs)

    def _take(self, pairs: Pairs) -> None:
        """Take one pair."""
        if self.order.compiled_first():
            compiled_s = self.compiled.block_s(self.clock, self.calls)
            eager_s = self.eager.block_s(self.clock, self.calls)
        else:
            eager_s = self.eager.block_s(self.clock, self.calls)
            compiled_s = self.compiled.block_s(self.clock, self.calls)
        if eager_s is not None and compiled_s is not None:
            pairs.eager_s.append(eager_s)
            pairs.compiled_s.append(compiled_s)


def _is_steady(samples_s: Sequence[float]) -> bool:
    if len(samples_s) < 2 * _WINDOW:
        return False
    before_s = median(samples_s[-2 * _WINDOW : -_WINDOW])
    return median(samples_s[-_WINDOW:]) >= _STEADY * before_s


def _one_line(error: Exception) -> str:
    first, *_ = (*str(error).splitlines(), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
