"""Plots of samples as paths in a drawing of fixed size: distributions on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from pytest_compileguard.observation import Record
from pytest_compileguard.report.contract import CheckReport, Samples

WIDTH, HEIGHT = 640, 96
_BINS = 48
_TAIL = 0.005
"""Share of the samples at each end that the axis leaves out."""
_LEAST_SPAN = 1.02
_MARGIN = 0.03
_STEPS: tuple[tuple[float, ...], ...] = (
    (1,),
    (1, 2, 5),
    (1, 1.5, 2, 3, 4, 6, 8),
    tuple(at / 10 for at in range(10, 100)),
    tuple(at / 50 for at in range(50, 500)),
)
"""From coarse to fine; the first that gives enough ticks is taken."""
_ENOUGH_TICKS, _MOST_TICKS = 3, 8


class Tick(Record, frozen=True):
    """A labelled place on the axis."""

    x: float
    label: str


class Mark(Record, frozen=True):
    """A value that stands out: a median, a limit, a baseline."""

    kind: str
    x: float
    label: str


class Plot(Record, frozen=True):
    """One drawing; all sides share the axis."""

    title: str
    areas: tuple[tuple[str, str], ...]
    """Name and path of each side."""
    ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    band: tuple[float, float] | None = None
    """Ends of the interval."""
    note: str = ""


class _Axis:
    def __init__(self, low: float, high: float) -> None:
        middle = math.sqrt(low * high)
        margin = (high / low) ** _MARGIN
        self.low = min(low / margin, middle / _LEAST_SPAN)
        self.high = max(high * margin, middle * _LEAST_SPAN)

    def x(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(min(max(share, 0.0), 1.0) * WIDTH, 1)

    def ticks(self, unit: str) -> tuple[Tick, ...]:
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        inside: list[float] = []
        for steps in _STEPS:
            values = (step * 10.0**exponent for exponent in exponents for step in steps)
            inside = [value for value in values if self.low <= value <= self.high]
            if len(inside) >= _ENOUGH_TICKS:
                break
        inside = inside or [self.low, self.high]
        every = math.ceil(len(inside) / _MOST_TICKS)
        return tuple(Tick(x=self.x(v), label=f"{v:.4g}{unit}") for v in inside[::every])


def plots(check: CheckReport) -> tuple[Plot, ...]:
    """Draw the times of both sides and their paired ratios, on each clock that was read."""
    samples = check.samples
    if samples is None or samples.void is not None:
        return ()
    found = []
    for clock, eager, compiled in _clocks(samples):
        pairs = [(e, c) for e, c in zip(eager, compiled, strict=False) if _is_time(e, c)]
        if len(pairs) > 1:
            found.append(_times(clock, pairs))
            found.append(_ratios(check, clock, pairs))
    return tuple(found)


def _clocks(
    samples: Samples,
) -> list[tuple[str, tuple[float | None, ...], tuple[float | None, ...]]]:
    return [
        ("wall", samples.eager_s, samples.compiled_s),
        ("device", samples.device_eager_s, samples.device_compiled_s),
    ]


def _is_time(*values: float | None) -> bool:
    return all(value is not None and 0 < value < math.inf for value in values)


def _times(clock: str, pairs: Sequence[tuple[float | None, float | None]]) -> Plot:
    eager = sorted(1e3 * (pair[0] or 0.0) for pair in pairs)
    compiled = sorted(1e3 * (pair[1] or 0.0) for pair in pairs)
    axis = _Axis(*_ends([eager, compiled]))
    return Plot(
        title=f"time a call, {clock} clock",
        areas=(("eager", _area(eager, axis)), ("compiled", _area(compiled, axis))),
        ticks=axis.ticks(" ms"),
        marks=tuple(
            Mark(kind=kind, x=axis.x(middle), label=f"{kind} median {middle:.4g} ms")
            for kind, values in (("eager", eager), ("compiled", compiled))
            for middle in [median(values)]
        ),
        note=f"{len(pairs)} pairs",
    )


def _ratios(
    check: CheckReport, clock: str, pairs: Sequence[tuple[float | None, float | None]]
) -> Plot:
    ratios = sorted((eager or 0.0) / (compiled or 1.0) for eager, compiled in pairs)
    marks = {"even": 1.0} | (_bounds(check) if clock == "wall" else {})
    low, high = _ends([ratios])
    axis = _Axis(min(low, *marks.values()), max(high, *marks.values()))
    speed = next((speed for speed in check.speeds if speed.clock == clock), None)
    band = None
    note = ""
    if speed is not None and speed.low and speed.high and speed.speedup:
        band = (axis.x(speed.low), axis.x(speed.high))
        marks["speedup"] = speed.speedup
        share = f"{100 * speed.confidence:g} %"
        note = f"interval {speed.low:.3f}x to {speed.high:.3f}x at {share}"
    return Plot(
        title=f"eager time / compiled time, pair by pair, {clock} clock",
        areas=(("ratio", _area(ratios, axis)),),
        ticks=axis.ticks("x"),
        marks=tuple(
            Mark(kind=kind, x=axis.x(value), label=f"{kind} {value:.2f}x")
            for kind, value in marks.items()
        ),
        band=band,
        note=note,
    )


def _bounds(check: CheckReport) -> dict[str, float]:
    """Find what the speedup is held to."""
    found = {}
    for finding in check.findings:
        if finding.metric == "speedup" and isinstance(finding.limit, float | int):
            found["limit"] = float(finding.limit)
        if finding.metric == "baseline.speedup" and isinstance(finding.baseline, float | int):
            found["baseline"] = float(finding.baseline)
    return {kind: value for kind, value in found.items() if 0 < value < math.inf}


def _ends(sides: Sequence[Sequence[float]]) -> tuple[float, float]:
    lows = [side[int(_TAIL * len(side))] for side in sides]
    highs = [side[-1 - int(_TAIL * len(side))] for side in sides]
    return min(lows), max(highs)


def _area(values: Sequence[float], axis: _Axis) -> str:
    """Draw a histogram as one closed path."""
    counts = [0] * _BINS
    for value in values:
        counts[min(int(axis.x(value) / WIDTH * _BINS), _BINS - 1)] += 1
    most = max(counts)
    step = WIDTH / _BINS
    parts = [f"M0 {HEIGHT}"]
    for at, count in enumerate(counts):
        y = round(HEIGHT - count / most * (HEIGHT - 12), 1)
        parts.append(f"V{y:g}H{round((at + 1) * step, 1):g}")
    return "".join([*parts, f"V{HEIGHT}Z"])
