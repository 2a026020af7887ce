"""What compiled code costs: judging, on both sides of each limit."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_compileguard.observation import NotObserved
from tests.unit.test_verdict import finding_of, make_compilation, verdict_of


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
