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
        def test_speed(compileguard):
            with compileguard.watch(min_speedup=2):
                pass
        """
    )
    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(["*min_speedup can't be checked by watching*"])


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
