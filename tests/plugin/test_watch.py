"""A block that compiles by itself is only watched."""

from __future__ import annotations

import pytest

from tests.conftest import RunSuite

LIBRARY = """
import torch

def step(x):
    return x.sin() + 1

class Engine:
    def __init__(self, **options):
        self.step = torch.compile(step, backend="aot_eager", **options)
"""


def test_first_compiles_and_recompiles_in_the_block_are_counted(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import torch
        from library import Engine

        def test_kept(compileguard):
            engine = Engine(dynamic=False)
            with compileguard.watch(max_recompiles=1) as block:
                engine.step(torch.ones(2))
                engine.step(torch.ones(3))
            assert block.seen.graphs == 2

        def test_broken(compileguard):
            engine = Engine(dynamic=False)
            with compileguard.watch(max_recompiles=1):
                for size in (2, 3, 4):
                    engine.step(torch.ones(size))
        """,
        library=LIBRARY,
    )
    run.result.assert_outcomes(passed=1, failed=1)
    run.result.stdout.fnmatch_lines(["*recompiles     observed 2    limit 1"])


def test_code_compiled_before_the_block_counts_as_compiled(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import torch
        from library import Engine

        def test_steady(compileguard):
            engine = Engine()
            engine.step(torch.ones(2))
            with compileguard.watch(max_recompiles=0):
                engine.step(torch.ones(2))

        def test_churn(compileguard):
            engine = Engine(dynamic=False)
            engine.step(torch.ones(2))
            with compileguard.watch(max_recompiles=0):
                engine.step(torch.ones(3))
        """,
        library=LIBRARY,
    )
    run.result.assert_outcomes(passed=1, failed=1)


def test_a_block_in_which_nothing_compiled_runs_fails(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import torch
        from library import step

        def test_nothing(compileguard):
            with compileguard.watch():
                step(torch.ones(2))

        def test_never_entered(compileguard):
            compileguard.watch()
        """,
        library=LIBRARY,
    )
    run.result.assert_outcomes(failed=2)
    run.result.stdout.fnmatch_lines(["*nothing was compiled*", "*never entered*"])


def test_limits_that_watching_cannot_check_are_refused(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import pytest

        @pytest.mark.parametrize("limit", ("min_speedup", "max_recompile", "nam"))
        def test_it(compileguard, limit):
            with compileguard.watch(**{limit: 2}):
                pass
        """
    )
    run.result.assert_outcomes(failed=3)
    for said in (
        "min_speedup can't be checked by watching. Known: allow_graph_breaks, max_cudagraph_skips,",
        "unknown limit 'max_recompile'; did you mean max_recompiles? Known: name, allow_graph_",
        "unknown limit 'nam'; did you mean name? Known: ",
    ):
        assert f": compileguard.watch: {said}" in run.text


def test_limits_of_a_tests_own_mark_that_no_block_can_check_fail_it(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import pytest
        import torch
        from library import Engine
        from pytest_compileguard import compile_check

        pytestmark = compile_check(max_graph_breaks=0, min_speedup=0.01)

        def watch(compileguard):
            with compileguard.watch():
                Engine().step(torch.ones(2))

        def test_of_the_module(compileguard):
            watch(compileguard)

        @compile_check(max_recompiles=0, allow_graph_breaks=["GB0059"], atol=None)
        def test_kept(compileguard):
            watch(compileguard)

        @compile_check(max_graph_breaks=0, rtol=1e-3, min_speedup=5.0)
        def test_own(compileguard):
            watch(compileguard)

        @pytest.mark.parametrize("n", [1, pytest.param(2, marks=compile_check(min_speedup=None))])
        @compile_check(min_speedup=5.0)
        def test_parameter(compileguard, n):
            watch(compileguard)

        @compile_check(rtol=1e-3)
        def test_guards_too(compileguard):
            watch(compileguard)
            compileguard(lambda x: x.cos(), backend="aot_eager")(torch.ones(2))
        """,
        library=LIBRARY,
    )
    run.result.assert_outcomes(passed=4, failed=2)
    told = "can't be checked by watching, and the test guards no target: call compileguard("
    assert f"test_suite.py::test_own: compile_check: min_speedup, rtol {told}" in run.text
    assert f"test_suite.py::test_parameter[1]: compile_check: min_speedup {told}" in run.text


def test_an_error_of_the_block_is_the_tests_own(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        def test_error(compileguard):
            with compileguard.watch():
                raise ValueError("mine")
        """
    )
    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(["*ValueError: mine"])
    assert run.check["outcome"] == "not_checked"


@pytest.mark.parametrize("body", ("pass", "step(torch.ones(2))"))
def test_a_block_in_which_nothing_compiled_runs_says_so(run_suite: RunSuite, body: str) -> None:
    run = run_suite(
        f"""
        import torch
        from library import step

        def test_it(compileguard):
            with compileguard.watch(max_recompiles=0):
                {body}
        """,
        library=LIBRARY,
    )
    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(
        [
            "  compiled       nothing was compiled: 0 graphs in the block",
            "    nothing compiled: nothing compiled ran in the block",
            "      call what is compiled within the block*",
        ]
    )
    assert "target" not in run.text


def test_code_that_runs_eager_since_a_limit_before_the_block_fails(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import pytest
        import torch
        from library import Engine

        @pytest.mark.parametrize("sizes", ((2, 4), (4, 2), (4,), (2, 3)))
        def test_it(compileguard, sizes):
            engine = Engine(dynamic=False)
            with torch._dynamo.config.patch(recompile_limit=2):
                for size in (2, 3, 4):
                    engine.step(torch.ones(size))
                with compileguard.watch(max_recompiles=0):
                    for size in sizes:
                        engine.step(torch.ones(size))
        """,
        library=LIBRARY,
    )
    run.result.assert_outcomes(passed=1, failed=3)
    assert [finding["status"] for finding in run.findings("fallbacks")] == [
        "failed",
        "failed",
        "failed",
        "passed",
    ]
    assert (
        run.text.count("1 frame ran eager in the block: the code compiled before does not fit") == 3
    )
    assert run.text.count("start the block before the recompiles that led to this") == 3
    assert run.text.count("the recompile limit was hit before by step (") == 3
    assert "TORCH_COMPILE_DISABLE" not in run.text


def test_a_stance_that_hides_recompiles_of_code_from_before_the_block_fails(
    run_suite: RunSuite,
) -> None:
    run = run_suite(
        """
        import torch
        from library import Engine

        def test_around(compileguard):
            engine = Engine()
            engine.step(torch.ones(2))
            with torch.compiler.set_stance("eager_on_recompile"):
                with compileguard.watch(max_recompiles=0):
                    engine.step(torch.ones(2))
        """,
        library=LIBRARY,
    )
    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(["*hindered: *eager_on_recompile*"])


def test_recompiles_in_the_block_are_no_frames_that_ran_eager(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import torch
        from library import Engine

        def test_limit_within(compileguard):
            engine = Engine(dynamic=False)
            with torch._dynamo.config.patch(recompile_limit=2):
                with compileguard.watch():
                    for size in (2, 3, 4, 4):
                        engine.step(torch.ones(size))

        def test_recompiles(compileguard):
            engine = Engine(dynamic=False)
            engine.step(torch.ones(2))
            with compileguard.watch():
                for size in (3, 4, 2):
                    engine.step(torch.ones(size))
        """,
        library=LIBRARY,
    )
    run.result.assert_outcomes(passed=1, failed=1)
    assert "recompile limit was reached" in run.text
    assert "ran eager in the block" not in run.text


def test_a_backward_that_is_first_compiled_in_the_block_leaves_its_forward_reused(
    run_suite: RunSuite,
) -> None:
    run = run_suite(
        """
        import torch

        def test_it(compileguard):
            model = torch.compile(torch.nn.Linear(3, 3), backend="aot_eager")
            model(torch.ones(2, 3))
            with compileguard.watch(max_recompiles=0) as block:
                model(torch.ones(2, 3)).sum().backward()
            assert (block.seen.graphs, block.seen.reused_graphs) == (0, 1)
        """
    )
    run.result.assert_outcomes(passed=1)


def test_blocks_and_guarded_calls_may_stand_in_a_watched_block(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import torch
        from library import Engine, step

        def test_kept(compileguard):
            engine = Engine(dynamic=False)
            with compileguard.watch(max_recompiles=0) as outer:
                engine.step(torch.ones(2))
                with compileguard.watch(max_recompiles=0) as inner:
                    engine.step(torch.ones(2))
                engine.step(torch.ones(2))
            assert (outer.seen.graphs, inner.seen.reused_graphs) == (1, 1)

        def test_churn(compileguard):
            engine = Engine(dynamic=False)
            with compileguard.watch(max_recompiles=0):
                engine.step(torch.ones(2))
                with compileguard.watch():
                    engine.step(torch.ones(3))

        def test_only_within(compileguard):
            engine = Engine()
            with compileguard.watch():
                with compileguard.watch():
                    engine.step(torch.ones(2))
                step(torch.ones(2))

        def test_nothing_within(compileguard):
            engine = Engine()
            with compileguard.watch():
                engine.step(torch.ones(2))
                with compileguard.watch():
                    step(torch.ones(2))

        def test_guarded(compileguard):
            with compileguard.watch():
                compileguard(step, backend="aot_eager")(torch.ones(2))
        """,
        library=LIBRARY,
    )
    run.result.assert_outcomes(passed=3, failed=2)
    assert "profiler" not in run.text
    run.result.stdout.fnmatch_lines(["*test_churn (watch): recompiles 1 > 0*"])
    run.result.stdout.fnmatch_lines(["*nothing was compiled: 0 graphs in the block"])
