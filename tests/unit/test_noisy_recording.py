"""Which recorded timings are called noisy."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_compileguard.baseline.recording import Wish, record
from pytest_compileguard.baseline.store import Store
from tests.stored import make_speed, make_verdict


@pytest.mark.parametrize(
    ("low", "high", "why"),
    ((1.2, 1.5, ""), (1.0, 1.31, ": its interval spans a factor of 1.31")),
)
def test_a_wide_interval_is_noisy(tmp_path: Path, low: float, high: float, why: str) -> None:
    (tmp_path / "pkg" / "tests").mkdir(parents=True)
    store = Store(tmp_path)
    verdict = make_verdict(speed=make_speed(1.3, speedup_low=low, speedup_high=high))
    assert record(store, [verdict]).noisy == ((f"{verdict.key}{why}",) if why else ())
    assert record(store, [verdict], Wish(mode="new")).noisy == (), "nothing was stored"
