"""The clock that a test chooses is the one that is judged, stored and compared."""

from __future__ import annotations

import msgspec
import pytest

from pytest_compileguard.baseline.storable import timing_entry
from pytest_compileguard.finding import Verdict
from pytest_compileguard.observation import NotObserved
from tests.judged import finding_of, make_baseline, statuses_of, verdict_of
from tests.records import make_speed, make_timing


def of_clock(clock: str, *, wall: float, device: float, limit: float = 1.2) -> Verdict:
    seen = make_speed(wall, device=device)
    return verdict_of(speed=seen, clock=clock, min_speedup=limit)


@pytest.mark.parametrize(
    ("clock", "wall", "device", "status"),
    (
        ("wall", 1.3, 1.1, "passed"),
        ("wall", 1.1, 1.3, "failed"),
        ("device", 1.3, 1.1, "failed"),
        ("device", 1.1, 1.3, "passed"),
    ),
)
def test_the_gated_clock_alone_decides(clock: str, wall: float, device: float, status: str) -> None:
    verdict = of_clock(clock, wall=wall, device=device)
    finding = finding_of(verdict, "speedup")

    assert finding.status == status
    assert finding.observed == pytest.approx(wall if clock == "wall" else device)
    assert verdict.speed is not None
    assert verdict.speed.clock == clock
    other = "on the wall clock: 1." if clock == "device" else "device time alone: 1."
    assert other in finding.evidence[0]


def test_a_device_clock_that_gave_no_samples_never_passes() -> None:
    note = "no device clock: the launches of one call can't be kept ahead of the GPU"
    verdict = verdict_of(speed=make_speed(9.0, notes=(note,)), clock="device", min_speedup=1.2)

    assert finding_of(verdict, "speedup").status == "inconclusive"
    assert finding_of(verdict, "speedup").message == note


def test_where_there_is_no_such_clock_a_limit_is_not_checked_and_facts_may_be_recorded() -> None:
    nothing = NotObserved(reason="a CPU has no clock of kernels alone", unavailable=True)
    verdict = verdict_of(speed=nothing, clock="device", min_speedup=1.2)

    assert finding_of(verdict, "speedup").status == "not_checked"
    assert verdict.recordable
    assert timing_entry(verdict) is None


def test_the_baseline_compares_the_same_clock() -> None:
    seen = make_speed(1.3, device=1.0)
    on_wall = make_baseline(timing=make_timing(1.3, device_speedup=1.3))
    on_device = make_baseline(timing=make_timing(1.3, clock="device", eager_ms=0.5))

    def compared(stored: object, clock: str) -> dict[str, str]:
        verdict = verdict_of(speed=seen, clock=clock, min_speedup=None, baseline=stored)  # type: ignore[arg-type]
        return {k: v for k, v in statuses_of(verdict).items() if k.startswith("baseline.")}

    assert compared(on_wall, "device") == {"baseline.speedup": "not_checked"}
    assert compared(on_device, "device") == {"baseline.speedup": "failed"}
    assert compared(on_device, "wall")["baseline.speedup"] == "not_checked"


def test_what_is_stored_names_its_clock() -> None:
    entry = timing_entry(of_clock("device", wall=1.5, device=1.3))

    assert not isinstance(entry, str)
    assert entry is not None
    assert entry.clock == "device"
    assert entry.speedup == pytest.approx(1.3)


def test_what_was_done_between_samples_is_told() -> None:
    seen = msgspec.structs.replace(make_speed(), cache="cold", restored=("x", "target.seen"))
    evidence = finding_of(verdict_of(speed=seen), "speedup").evidence

    assert "  the L2 cache was flushed before each call" in evidence
    assert "  restored before each block: x, target.seen" in evidence
