"""What compiled code costs: judging, on both sides of each limit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytest_compileguard.finding import Verdict
from pytest_compileguard.observation import (
    LaunchObservation,
    MemoryObservation,
    NotObserved,
    Observation,
)
from pytest_compileguard.verdict import judge
from tests.judged import ENVIRONMENT, UNTIMED, finding_of, make_baseline, verdict_of
from tests.records import make_compilation, make_parity, make_plan, make_speed


def compile_time(limit: float | None, **seen: Any) -> Any:
    verdict = verdict_of(compilation=make_compilation(**seen), max_compile_time_s=limit)
    return finding_of(verdict, "compile_time")


def test_cold_compiling_is_held_to_its_limit() -> None:
    kept = compile_time(1.5, cache_state="cold")
    missed = compile_time(1.4, cache_state="cold")

    assert (kept.status, kept.observed) == ("passed", 1.5)
    assert (missed.status, missed.message) == ("failed", "1.5 s, limit 1.4 s")


@pytest.mark.parametrize(
    ("state", "reason"), (("warm", "not cold: 2 hits in torch's caches"), ("unknown", "can't be"))
)
def test_what_came_from_a_cache_never_passes(state: str, reason: str) -> None:
    kept = compile_time(60, cache_state=state, cache_hits=2)
    missed = compile_time(1.0, cache_state=state, cache_hits=2)

    assert kept.status == "not_checked"
    assert reason in kept.message
    assert "TORCHINDUCTOR_CACHE_DIR" in kept.remedy
    assert missed.status == "failed"  # cold, it would have taken even longer


@pytest.mark.parametrize("time_s", (0.0, float("nan")))
def test_a_time_that_torch_does_not_tell_never_passes(time_s: float) -> None:
    assert compile_time(60, cache_state="cold", compile_time_s=time_s).status == "not_checked"


def test_numbers_that_disagree_fail_the_limit_on_compile_time() -> None:
    finding = compile_time(60, cache_state="cold", unreliable=("counters disagree",))

    assert finding.status == "failed"
    assert finding.message == "can't be trusted: counters disagree"


def test_nothing_compiled_took_no_time() -> None:
    assert compile_time(60, cache_state="cold", graphs=0).status == "not_checked"
    verdict = verdict_of(compilation=NotObserved(reason="no"), max_compile_time_s=60.0)
    assert finding_of(verdict, "compile_time").status == "not_checked"


def test_without_a_limit_compile_time_is_not_judged() -> None:
    verdict = verdict_of(compilation=make_compilation(cache_state="warm"))

    assert all(finding.metric != "compile_time" for finding in verdict.findings)


ON_CPU = NotObserved(reason="ran on the CPU", unavailable=True)
BROKE_OFF = NotObserved(reason="the call raised")


def judged(
    memory: Any = ON_CPU, launches: Any = ON_CPU, timed: Any = None, **limits: Any
) -> Verdict:
    observation = Observation(
        compile=make_compilation(),
        parity=make_parity(),
        speed=timed or make_speed(),
        memory=memory,
        launches=launches,
    )
    return judge(make_plan(**limits), observation, ENVIRONMENT, make_baseline())


def memory(eager: int, compiled: int, limit: float, **more: Any) -> Any:
    seen = MemoryObservation(eager_bytes=eager, compiled_bytes=compiled, **more)
    return finding_of(judged(memory=seen, max_peak_memory_ratio=limit), "peak_memory")


def test_memory_is_held_to_its_limit() -> None:
    kept = memory(4 << 20, 5 << 20, 1.25)
    missed = memory(4 << 20, 5 << 20, 1.249, graph_bytes=3 << 20)

    assert (kept.status, kept.message) == ("passed", "1.25x of 1.25x")
    assert (missed.status, missed.message) == ("failed", "1.250x, limit 1.249x")
    assert missed.evidence == ("eager 4 MiB, compiled 5 MiB (3 MiB kept by CUDA graphs) a call",)


def test_memory_where_eager_takes_none_is_no_ratio() -> None:
    assert memory(0, 512, 100).status == "failed"
    assert memory(0, 0, 100).status == "not_checked"


def test_kernels_are_held_to_their_limit_and_stand_beside_the_speedup() -> None:
    seen = LaunchObservation(eager_kernels=5, compiled_kernels=2, compiled_copies=1)
    kept = judged(launches=seen, max_kernels_per_call=2)
    missed = finding_of(judged(launches=seen, max_kernels_per_call=1), "kernels_per_call")

    assert finding_of(kept, "kernels_per_call").status == "passed"
    text = "eager 5 kernels, compiled 2 kernels and 1 copy a call"
    assert finding_of(kept, "speedup").evidence[-1].strip() == text
    assert (missed.status, missed.message, missed.evidence) == ("failed", "2, limit 1", (text,))


@pytest.mark.parametrize(
    ("limit", "metric"),
    (("max_peak_memory_ratio", "peak_memory"), ("max_kernels_per_call", "kernels_per_call")),
)
def test_what_was_not_measured_never_passes(limit: str, metric: str) -> None:
    on_cpu = judged(**{limit: 9})
    broke_off = judged(memory=BROKE_OFF, launches=BROKE_OFF, **{limit: 9})
    untimed = judged(untimed=UNTIMED, min_speedup=None, **{limit: 9})

    assert finding_of(on_cpu, metric).status == "not_checked"
    assert on_cpu.recordable  # facts don't depend on it
    assert finding_of(broke_off, metric).status == "inconclusive"
    assert not broke_off.recordable
    assert finding_of(untimed, metric).message == UNTIMED
    assert metric not in [finding.metric for finding in judged().findings]


COPY = 4e12


@pytest.mark.parametrize(
    ("wall_ms", "touched", "text", "advice"),
    (
        (2.0, 1 << 20, "launch-bound: the GPU waits 75 % of the time", "reduce-overhead"),
        (
            0.55,
            1_500_000_000,
            "memory-bound: 3e+03 GB/s, 75 % of",
            "fewer kernels",
        ),
        (
            0.55,
            4 << 20,
            "compute-bound: 8.39 GB/s, 0 % of",
            "max-autotune",
        ),
    ),
)
def test_a_missed_speedup_says_what_bounds_the_call_and_what_helps(
    wall_ms: float, touched: int, text: str, advice: str
) -> None:
    # The device clock reads 0.5 ms a compiled call.
    speed = make_speed(1.0, device=1.0)
    speed = msgspec.structs.replace(
        speed, eager_s=(wall_ms / 1e3,) * 40, compiled_s=(wall_ms / 1e3,) * 40
    )
    seen = MemoryObservation(
        eager_bytes=1, compiled_bytes=1, touched_bytes=touched, copy_bytes_per_s=COPY
    )
    finding = finding_of(judged(memory=seen, timed=speed), "speedup")

    assert finding.status == "failed"
    told = finding.evidence[-1].strip().replace("inputs, state and outputs pass at ", "")
    assert told.startswith(text)
    assert advice in finding.remedy


def test_what_bounds_a_call_is_not_guessed() -> None:
    on_cpu = finding_of(judged(timed=make_speed(1.0)), "speedup")
    blind = MemoryObservation(eager_bytes=1, compiled_bytes=1)
    same = msgspec.structs.replace(make_speed(1.0, device=1.0), compiled_s=(0.0005,) * 40)
    unknown = finding_of(judged(memory=blind, timed=same), "speedup")

    assert not any("-bound" in line for line in (*on_cpu.evidence, *unknown.evidence))
