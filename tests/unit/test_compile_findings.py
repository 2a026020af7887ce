"""Judging: compilation as a whole, fallbacks, kernels and CUDA graphs."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from pytest_compileguard.finding import Finding
from pytest_compileguard.observation import (
    CompileObservation,
    FallbackKind,
    NotObserved,
)
from pytest_compileguard.plan import CompileArguments
from tests.judged import (
    finding_of,
    statuses_of,
    verdict_of,
)
from tests.records import (
    make_compilation,
    make_fallback,
    make_recompile,
    make_site,
)

# --- compiled and fallbacks -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compilation", "message"),
    (
        (NotObserved(reason="the test never called it"), "nothing was compiled: the test never"),
        (make_compilation(graphs=0), "nothing was compiled: 0 graphs in 3 calls"),
        (make_compilation(ops=0), "nothing was compiled: 0 operators in 1 graph"),
        (make_compilation(calls=0, graphs=0), "nothing was compiled: the target was not called"),
        (make_compilation(error="BackendCompilerFailed: no"), "BackendCompilerFailed: no"),
        (make_compilation(error=" "), "compiling failed"),
    ),
)
def test_nothing_compiled_fails_without_any_limit(
    compilation: CompileObservation | NotObserved, message: str
) -> None:
    verdict = verdict_of(
        compilation=compilation, max_graph_breaks=None, max_recompiles=None, min_speedup=None
    )
    compiled = finding_of(verdict, "compiled")
    assert compiled.status == "failed"
    assert compiled.message.startswith(message)
    assert verdict.outcome == "failed"
    assert not verdict.recordable


@pytest.mark.parametrize("limit", (None, 0))
def test_nothing_compiled_is_never_zero_graph_breaks(limit: int | None) -> None:
    verdict = verdict_of(
        compilation=make_compilation(graphs=0), max_graph_breaks=limit, max_recompiles=limit
    )
    assert finding_of(verdict, "graph_breaks").status == "not_checked"
    assert finding_of(verdict, "recompiles").status == "not_checked"
    assert finding_of(verdict, "baseline").status == "not_checked"


def test_the_error_of_the_compiler_comes_with_its_remedy() -> None:
    compilation = make_compilation(error="Unsupported: print\n\nin forward", error_remedy="drop it")
    compiled = finding_of(verdict_of(compilation=compilation), "compiled")
    assert (compiled.message, compiled.evidence) == ("Unsupported: print", ("in forward",))
    assert compiled.remedy == "drop it"


def test_why_nothing_was_compiled_is_said_once() -> None:
    disabled = make_fallback(kind="nothing_compiled", call=None, file="", frame="", reason="off")
    verdict = verdict_of(compilation=make_compilation(graphs=0, fallbacks=(disabled,)))
    assert finding_of(verdict, "compiled").evidence == ("nothing compiled: off",)
    assert "TORCH_COMPILE_DISABLE" in finding_of(verdict, "compiled").remedy
    assert finding_of(verdict, "fallbacks").status == "passed"


@pytest.mark.parametrize(
    "changes", ({"break_sites": (make_site(),)}, {"fallbacks": (make_fallback(),)})
)
def test_a_shown_cause_needs_no_search_for_a_switch(changes: dict[str, Any]) -> None:
    compilation = make_compilation(**changes, graphs=0)
    assert finding_of(verdict_of(compilation=compilation), "compiled").remedy == ""


def test_breaks_that_no_limit_shows_stand_with_nothing_compiled() -> None:
    compilation = make_compilation(graphs=0, break_sites=(make_site(),))
    unlimited = finding_of(verdict_of(compilation=compilation, max_graph_breaks=None), "compiled")
    assert unlimited.evidence[0] == "/repo/models/mlp.py:41 in forward    print(x.shape)"
    assert (unlimited.file, unlimited.line) == ("/repo/models/mlp.py", 41)
    limited = verdict_of(compilation=compilation, max_graph_breaks=0)
    assert finding_of(limited, "compiled").evidence == ()
    assert finding_of(limited, "graph_breaks").status == "failed"


@pytest.mark.parametrize("kind", get_args(FallbackKind))
def test_every_fallback_fails_without_any_limit(kind: str) -> None:
    compilation = make_compilation(fallbacks=(make_fallback(kind=kind),))
    verdict = verdict_of(compilation=compilation, max_graph_breaks=None, max_recompiles=None)
    fallbacks = finding_of(verdict, "fallbacks")
    assert (fallbacks.status, fallbacks.observed, verdict.outcome) == ("failed", 1, "failed")
    assert fallbacks.evidence == (
        (
            f"{kind.replace('_', ' ')}, /repo/models/mlp.py:40 in forward, call 1: "
            "graph break in a loop"
        ),
    )
    assert (fallbacks.file, fallbacks.line) == ("/repo/models/mlp.py", 40)
    assert fallbacks.remedy
    assert not verdict.recordable


def test_a_frame_given_up_at_an_accepted_break_passes_and_is_shown() -> None:
    compilation = make_compilation(break_sites=(make_site(),), fallbacks=(make_fallback(),))
    accepted = finding_of(verdict_of(compilation=compilation, max_graph_breaks=1), "fallbacks")
    assert accepted.status == "passed"
    assert accepted.message == "1 frame given up at accepted graph breaks"
    assert accepted.evidence
    for limit in (None, 0):
        verdict = verdict_of(compilation=compilation, max_graph_breaks=limit)
        assert finding_of(verdict, "fallbacks").status == "failed"


def test_a_skipped_frame_is_shown_beside_nothing_compiled() -> None:
    compilation = make_compilation(graphs=0, fallbacks=(make_fallback(),))
    verdict = verdict_of(compilation=compilation)
    assert finding_of(verdict, "fallbacks").status == "failed"
    assert finding_of(verdict, "compiled").evidence == ()


def test_a_frame_given_up_for_its_backend_is_not_told_to_move_code_out_of_a_block() -> None:
    skipped = make_fallback(reason="Backend compiler exception")
    finding = finding_of(
        verdict_of(compilation=make_compilation(fallbacks=(skipped,))), "fallbacks"
    )
    assert finding.remedy.startswith("the backend fails, not the tracing")


def test_a_fallback_in_many_calls_is_one_line() -> None:
    fallbacks = tuple(make_fallback(kind="ran_eager", call=call) for call in range(4, 9))
    finding = finding_of(verdict_of(compilation=make_compilation(fallbacks=fallbacks)), "fallbacks")
    assert finding.observed == 5
    assert finding.evidence == (
        (
            "ran eager, /repo/models/mlp.py:40 in forward, 5 times, first in call 5: "
            "graph break in a loop"
        ),
    )


def test_a_limit_hit_fails_though_no_fallback_names_it() -> None:
    refused = make_recompile(call=8, compile_id="0/8", kind="size", refused=True)
    compilation = make_compilation(limit_hit=True, recompiles=(refused,))
    finding = finding_of(verdict_of(compilation=compilation), "fallbacks")
    assert finding.status == "failed"
    assert finding.evidence == (
        "limit hit: the recompile limit was hit",
        (
            "call 9, 0/8 forward: x.size(0) 32 -> 48 (refused by the recompile limit)"
            "    /repo/models/mlp.py:40"
        ),
    )


def test_a_named_limit_hit_is_told_once() -> None:
    hit = make_fallback(kind="limit_hit", reason="Dynamo recompile limit exceeded")
    compilation = make_compilation(limit_hit=True, fallbacks=(hit,))
    finding = finding_of(verdict_of(compilation=compilation), "fallbacks")
    assert (finding.observed, len(finding.evidence)) == (1, 1)


# --- kernels and CUDA graphs ------------------------------------------------------------------


def cudagraphs(compilation: CompileObservation, **limits: Any) -> Finding:
    arguments = CompileArguments(mode="reduce-overhead")
    verdict = verdict_of(compilation=compilation, arguments=arguments, **limits)
    return finding_of(verdict, "cudagraph_skips")


def test_more_kernels_than_allowed_fail_and_are_named() -> None:
    seen = make_compilation(kernels=3, kernel_names=("triton_a_0", "triton_b_1", "triton_c_2"))
    found = finding_of(verdict_of(compilation=seen, max_kernels=2), "kernels")
    assert (found.status, found.observed, found.limit) == ("failed", 3, 2)
    assert "triton_c_2" in found.evidence


def test_a_skipped_cuda_graph_fails_its_limit_and_is_told_without_one() -> None:
    seen = make_compilation(cudagraph_skips=("mutated inputs", "mutated inputs"))
    assert cudagraphs(seen, max_cudagraph_skips=1).status == "failed"
    assert cudagraphs(seen, max_cudagraph_skips=2).status == "passed"
    told = cudagraphs(seen)
    assert told.status == "inconclusive"
    assert told.message == "reduce-overhead promises CUDA graphs, they were skipped 2 times"
    assert told.evidence == ("mutated inputs",)


@pytest.mark.parametrize("limits", ({}, {"max_cudagraph_skips": 0}))
def test_a_promise_that_no_call_could_keep_is_not_checked(limits: dict[str, Any]) -> None:
    found = cudagraphs(make_compilation(calls=1), **limits)
    assert found.status == "not_checked"
    assert "no CUDA graph was recorded or skipped in 1 call" in found.message


def test_recordings_are_shown() -> None:
    seen = make_compilation(cudagraph_recordings=3, cudagraph_rerecordings=2)
    found = cudagraphs(seen)
    assert found.status == "passed"
    assert found.evidence == (
        "3 CUDA graphs recorded, 2 of them again, for inputs of another size or at another address",
    )


def test_no_mode_promises_cuda_graphs_by_default() -> None:
    assert "cudagraph_skips" not in statuses_of(verdict_of())
