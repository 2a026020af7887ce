"""What disturbs a measurement on a GPU, from states as drivers told them; no GPU is needed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pytest_compileguard.baseline.storable import timing_entry
from pytest_compileguard.observation import GpuState
from pytest_compileguard.report.summary import summary_lines
from pytest_compileguard.timing.disturbance import Watch, disturbances, doubts_about
from pytest_compileguard.timing.gpu_state import GpuReader, GpuUnreadError, busiest_other
from tests.judged import finding_of, make_baseline, verdict_of
from tests.records import make_speed, make_timing

IDLE = GpuState(
    sm_clock_mhz=345,
    memory_clock_mhz=3201,
    clock_reasons=("idle",),
    temperature_c=31,
    power_w=76.4,
    utilisation_percent=0,
    other_processes=0,
    mig=False,
    thermal_slowdown_s=0.0,
)
BUSY = msgspec.structs.replace(
    IDLE,
    sm_clock_mhz=1980,
    clock_reasons=(),
    temperature_c=44,
    power_w=412.0,
    utilisation_percent=97,
    others_busy_percent=0,
)
HOT = "the GPU was slowed down (hardware thermal slowdown, 87 °C, 1215 MHz)"


def after(**changes: Any) -> GpuState:
    return msgspec.structs.replace(BUSY, **changes)


@pytest.mark.parametrize(
    "state",
    (
        BUSY,
        after(clock_reasons=("software power cap",)),
        after(clock_reasons=("idle",)),
        after(clock_reasons=("clocks set by the user", "sync boost", "display clocks")),
        after(other_processes=3),
        after(other_processes=3, others_busy_percent=9),
        GpuState(),
    ),
    ids=(
        "quiet",
        "ordinary power cap",
        "idle again",
        "settings",
        "others open, idle",
        "others nearly idle",
        "tells nothing",
    ),
)
def test_what_is_as_it_should_be_disturbs_nothing(state: GpuState) -> None:
    assert disturbances(IDLE, state) == ()


@pytest.mark.parametrize(
    "reason",
    (
        "hardware slowdown",
        "software thermal slowdown",
        "hardware thermal slowdown",
        "hardware power brake",
    ),
)
def test_a_gpu_that_was_slowed_down_before_or_after_disturbs(reason: str) -> None:
    slowed = ("idle", reason)

    (late,) = disturbances(IDLE, after(clock_reasons=slowed))
    (early,) = disturbances(msgspec.structs.replace(IDLE, clock_reasons=slowed), BUSY)

    assert late == early == f"the GPU was slowed down ({reason}, 44 °C, 1980 MHz)"


def test_heat_between_the_two_looks_is_seen_by_the_time_that_the_driver_counts() -> None:
    (found,) = disturbances(IDLE, after(thermal_slowdown_s=0.02))

    assert "thermal slowdown" in found
    assert disturbances(after(thermal_slowdown_s=7.5), after(thermal_slowdown_s=7.5)) == ()


def test_another_process_that_computes_disturbs() -> None:
    (found,) = disturbances(IDLE, after(other_processes=1, others_busy_percent=64))

    assert found == "another process kept the GPU busy (64 % of the time)"


def test_what_can_not_be_seen_is_a_note() -> None:
    assert doubts_about(BUSY) == ()
    assert doubts_about(after(other_processes=2)) == ()
    (unseen,) = doubts_about(after(other_processes=2, others_busy_percent=None))
    assert "other processes had this GPU open" in unseen
    (split,) = doubts_about(after(mig=True))
    assert "MIG" in split


@pytest.mark.parametrize(
    ("busy_percent", "most"),
    (
        ({}, 0),
        ({10: 90}, 0),
        ({10: 90, 11: 40}, 40),
        ({10: 5, 11: 40, 12: 30}, 40),
        ({777: 95}, 0),
        ({777: 95, 778: 20}, 20),
    ),
    ids=("none", "own", "own and another", "own is not the busiest", "container", "container, two"),
)
def test_the_own_process_does_not_count_whatever_its_number(
    busy_percent: dict[int, int], most: int
) -> None:
    assert busiest_other(busy_percent, own=10) == most


# --- reading ---------------------------------------------------------------------------------


class NVMLError(Exception):
    """As the base of errors in the binding."""


class NVMLError_NotSupported(NVMLError):  # noqa: N801, N818  # the binding's name
    """As the binding's."""


class NVMLError_GpuIsLost(NVMLError):  # noqa: N801, N818  # the binding's name
    """As the binding's."""


def unsupported(*_: object) -> None:
    raise NVMLError_NotSupported("Not Supported")


def driver(**changes: Callable[..., object]) -> Any:
    """What a driver answered, in the form of the binding."""
    answers: dict[str, Any] = {
        "nvmlDeviceGetClockInfo": lambda _, kind: {1: 1980, 2: 3201}[kind],
        "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 0x4 | 0x40,
        "nvmlDeviceGetTemperature": lambda _, __: 44,
        "nvmlDeviceGetPowerUsage": lambda _: 412_250,
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=97, memory=12),
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [
            SimpleNamespace(pid=101),
            SimpleNamespace(pid=102),
        ],
        "nvmlDeviceGetProcessUtilization": lambda _, __: [
            SimpleNamespace(pid=101, smUtil=88, timeStamp=5_000_000),
            SimpleNamespace(pid=102, smUtil=33, timeStamp=5_000_000),
            SimpleNamespace(pid=103, smUtil=99, timeStamp=3_999_999),
        ],
        "nvmlDeviceGetMigMode": lambda _: [0, 1],
        "nvmlDeviceGetViolationStatus": lambda _, __: SimpleNamespace(violationTime=2_500_000_000),
    }
    constants = {
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_PERF_POLICY_THERMAL": 1,
    }
    return SimpleNamespace(NVMLError=NVMLError, **constants, **(answers | changes))


def reader(**changes: Callable[..., object]) -> GpuReader:
    return GpuReader(nvml=driver(**changes), handle=None, is_instance=False)


def test_a_state_holds_what_the_driver_answers() -> None:
    assert reader()(since_s=4.0) == GpuState(
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
        clock_reasons=("software power cap", "hardware thermal slowdown"),
        temperature_c=44,
        power_w=412.25,
        utilisation_percent=97,
        other_processes=1,
        others_busy_percent=33,
        mig=False,
        thermal_slowdown_s=2.5,
    )


def test_without_a_sample_of_that_time_it_is_not_known_how_busy_others_were() -> None:
    state = reader()(since_s=6.0)

    assert (state.other_processes, state.others_busy_percent) == (1, None)


def test_who_timed_on_the_gpu_before_is_no_neighbour() -> None:
    asked = []

    def told(since_s: float | None = None) -> GpuState:
        asked.append(since_s)
        return IDLE

    begin_s = time.time()
    for released_s in (0.0, begin_s - 0.1, begin_s + 7):
        watch = Watch(lambda: told, released_s=released_s)
        watch.begin()
        watch.end()

    _, long_ago, _, just_now, _, later = asked
    assert long_ago is not None
    assert begin_s - 1 <= long_ago < begin_s
    assert just_now == begin_s + 0.9
    assert later == begin_s + 8


def test_whoever_computed_right_before_the_first_attempt_is_seen_and_then_not_any_more() -> None:
    asked = []

    def told(since_s: float | None = None) -> GpuState:
        asked.append(since_s)
        return IDLE

    watch = Watch(lambda: told)
    for _ in range(2):
        begin_s = time.time()
        watch.begin()
        watch.end()

    _, first, _, second = asked
    assert first is not None
    assert second is not None
    assert first < begin_s - 0.5
    assert second >= begin_s


def test_a_driver_that_has_none_of_the_answers_tells_nothing() -> None:
    nothing = dict.fromkeys((n for n in vars(driver()) if n.startswith("nvml")), unsupported)

    assert reader(**nothing)(since_s=4.0) == GpuState()


def test_an_older_binding_and_driver_have_another_name_for_the_reasons() -> None:
    older = reader(
        nvmlDeviceGetCurrentClocksEventReasons=unsupported,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 0x80,
    )

    assert older().clock_reasons == ("hardware power brake",)


def test_a_gpu_that_was_lost_is_told() -> None:
    def lost(*_: object) -> None:
        raise NVMLError_GpuIsLost("GPU is lost\nand more")

    with pytest.raises(GpuUnreadError, match=r"^the driver failed: GPU is lost$"):
        reader(nvmlDeviceGetPowerUsage=lost)()


ABSENT = """
import sys
sys.modules["pynvml"] = None
from pytest_compileguard.timing.gpu_state import open_reader
from pytest_compileguard.timing.disturbance import Watch
watch = Watch(lambda: open_reader("abc"))
watch.begin()
print(watch.end().unread)
"""


def test_without_the_binding_it_is_said_what_to_install() -> None:
    run = subprocess.run(
        [sys.executable, "-c", ABSENT], check=True, capture_output=True, text=True, timeout=60
    )

    assert "nvidia-ml-py is not installed" in run.stdout
    assert "pytest-compileguard[gpu]" in run.stdout


def test_a_neighbour_of_which_no_more_is_told_counts_while_it_is_there() -> None:
    busy = after(other_processes=1, others_busy_percent=64)
    unseen = msgspec.structs.replace(busy, others_busy_percent=None)
    states = iter((IDLE, busy, busy, unseen, busy, BUSY, IDLE, unseen))

    def told(since_s: float | None = None) -> GpuState:
        del since_s
        return next(states)

    watch = Watch(lambda: told)

    found = []
    for _ in range(4):
        watch.begin()
        found.append(watch.end())

    assert [bool(conditions.disturbed) for conditions in found] == [True, True, False, False]
    assert [bool(conditions.notes) for conditions in found] == [False, False, False, True]


@pytest.mark.parametrize(
    ("patient", "others", "seen", "asked"),
    ((True, 1, True, 4), (False, 1, False, 2), (True, 0, False, 2), (True, None, False, 2)),
)
def test_a_driver_that_tells_late_is_waited_for_where_another_process_is_there(
    *, patient: bool, others: int | None, seen: bool, asked: int
) -> None:
    quiet = after(other_processes=others, others_busy_percent=None)
    states = [IDLE, quiet, quiet, after(other_processes=others, others_busy_percent=14)]
    given: list[GpuState] = []

    def told(since_s: float | None = None) -> GpuState:
        del since_s
        given.append(states[len(given)])
        return given[-1]

    watch = Watch(lambda: told)
    watch.begin()

    assert bool(watch.end(patient=patient).disturbed) == seen
    assert len(given) == asked


def test_the_driver_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_compileguard.timing.disturbance._TOLD_WITHIN_S", 0.1)
    quiet = after(other_processes=1, others_busy_percent=2)

    def told(since_s: float | None = None) -> GpuState:
        del since_s
        return quiet

    watch = Watch(lambda: told)
    watch.begin()
    begin_s = time.monotonic()

    assert watch.end(patient=True).disturbed == ()
    assert 0.1 <= time.monotonic() - begin_s < 5


def test_a_watch_tells_what_failed_and_goes_on() -> None:
    def lost(since_s: float | None = None) -> GpuState:
        del since_s
        raise GpuUnreadError("the driver failed: GPU is lost")

    watch = Watch(lambda: lost)
    for _ in range(2):
        watch.begin()
        assert watch.end().unread == "the driver failed: GPU is lost"


# --- judging ---------------------------------------------------------------------------------


def test_a_speedup_below_the_limit_is_inconclusive_if_it_was_disturbed() -> None:
    sound = verdict_of(speed=make_speed(1.1), min_speedup=1.2)
    verdict = verdict_of(speed=make_speed(1.1, disturbed=(HOT,), attempts=3), min_speedup=1.2)
    finding = finding_of(verdict, "speedup")

    assert finding_of(sound, "speedup").status == "failed"
    assert finding.status == "inconclusive"
    assert finding.message.endswith(f"below, but disturbed: {HOT}, in 3 attempts")
    assert "quieter machine" in finding.remedy
    assert not verdict.recordable


def test_a_disturbed_speedup_above_the_limit_passes_and_says_so() -> None:
    verdict = verdict_of(speed=make_speed(1.3, disturbed=(HOT,)), min_speedup=1.2)
    finding = finding_of(verdict, "speedup")

    assert finding.status == "passed"
    assert f"  disturbed: {HOT}" in finding.evidence


def test_a_disturbed_interval_around_the_limit_stays_inconclusive() -> None:
    verdict = verdict_of(speed=make_speed(1.2, 0.05, disturbed=(HOT,)), min_speedup=1.2)

    assert finding_of(verdict, "speedup").status == "inconclusive"


@pytest.mark.parametrize("disturbed", ((), (HOT,)))
def test_worse_than_the_baseline_is_inconclusive_if_it_was_disturbed(
    disturbed: tuple[str, ...],
) -> None:
    baseline = make_baseline(timing=make_timing(2.0, device_speedup=2.0))
    seen = make_speed(1.3, device=1.3, disturbed=disturbed)
    verdict = verdict_of(speed=seen, baseline=baseline)

    for metric in ("baseline.speedup", "baseline.device_speedup"):
        finding = finding_of(verdict, metric)
        assert finding.status == ("inconclusive" if disturbed else "failed")
        assert (HOT in finding.message) == bool(disturbed)


def test_a_disturbed_gain_still_fails_where_gains_are_to_be_recorded() -> None:
    baseline = make_baseline(timing=make_timing(1.0))
    seen = make_speed(1.3, disturbed=(HOT,))
    verdict = verdict_of(speed=seen, baseline=baseline, improvements="fail")

    assert finding_of(verdict, "baseline.speedup").status == "failed"


def test_disturbed_timings_become_no_baseline() -> None:
    verdict = verdict_of(speed=make_speed(1.3, disturbed=(HOT,)))

    assert timing_entry(verdict) == f"the samples were disturbed: {HOT}"


def test_that_nothing_could_be_read_is_said_once() -> None:
    reason = "nvidia-ml-py is not installed"
    verdicts = [verdict_of(speed=make_speed(1.3, gpu_unread=reason)) for _ in range(3)]

    texts = [line.text for line in summary_lines(verdicts, width=100, verbosity=0)]

    assert texts.count(f"note: the state of the GPU was not read: {reason}") == 1
