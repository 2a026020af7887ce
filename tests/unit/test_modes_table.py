"""The comparison of modes: which are compared, and what is said of them."""

from __future__ import annotations

import msgspec

from pytest_compileguard.finding import Verdict
from pytest_compileguard.observation import MemoryObservation
from pytest_compileguard.report.modes import mode_lines
from tests.judged import verdict_of
from tests.records import make_compilation, make_speed


def in_mode(mode: str, speedup: float, *, limit: float = 0.1, compiling: float = 1.0) -> Verdict:
    verdict = verdict_of(
        compilation=make_compilation(compile_time_s=compiling),
        speed=make_speed(speedup),
        min_speedup=limit,
    )
    return msgspec.structs.replace(verdict, nodeid=f"test_net.py::test_net[{mode}]", mode=mode)


def told(*verdicts: Verdict) -> str:
    return "\n".join(mode_lines(verdicts))


def test_all_modes_are_compared_where_all_pass() -> None:
    assert "  fastest: lite, 3.00x" in told(in_mode("default", 2.0), in_mode("lite", 3.0))


def test_modes_that_fail_are_left_out_and_that_is_said() -> None:
    failing = in_mode("lite", 3.0, limit=4.0)
    assert failing.fails
    assert "  fastest of those that passed: default, 2.00x" in told(
        in_mode("default", 2.0), failing
    )
    assert (
        "  fastest within noise of those that passed: default, 2.00x, as is max-autotune"
        in told(in_mode("default", 2.0), in_mode("max-autotune", 2.0), failing)
    )


def test_where_every_mode_fails_none_wins() -> None:
    failing = [in_mode(mode, 3.0, limit=4.0) for mode in ("default", "lite")]
    assert "  no mode passed, so none wins\n" in told(*failing)


def with_memory(verdict: Verdict, compiled_bytes: int) -> Verdict:
    memory = MemoryObservation(eager_bytes=2**20, compiled_bytes=compiled_bytes)
    observation = msgspec.structs.replace(verdict.observation, memory=memory)
    return msgspec.structs.replace(verdict, observation=observation)


def test_times_of_compiling_are_shown_and_not_compared() -> None:
    """What the first mode has compiled, later ones take from the same folder of kernels."""
    lines = told(in_mode("default", 3.0, compiling=15.0), in_mode("lite", 2.0, compiling=0.5))
    assert "15 s" in lines
    assert "more compiling" not in lines
    assert "less time" not in lines
    assert lines.endswith(
        "  compiling: a mode may take from the cache what an earlier one has compiled, "
        "so these times don't compare"
    )


def test_fastest_mode_says_what_memory_it_needs_beyond_the_least() -> None:
    fast = with_memory(in_mode("default", 3.0), 3 * 2**20)
    small = with_memory(in_mode("lite", 2.0), 2**20)
    assert "fastest: default, 3.00x; needs 2 MiB more memory than lite" in told(fast, small)
    assert "memory than" not in told(with_memory(fast, 2**20), small)
