"""What a suite that adopts the plugin meets in its first days."""

from __future__ import annotations

import pytest

from tests.conftest import RunSuite

LIBRARY = """
import collections
import itertools
import torch

LOG = []
IDS = itertools.count()
MODE = "none"

def note():
    LOG.append(1)

def logs(x):
    note()
    return x + 1

def numbered(x):
    return x + next(IDS)

def rebinds(x):
    global MODE
    MODE = "compiled" if torch.compiler.is_compiling() else "eager"
    return x + 1

def container(x):
    return (x + 1,) if torch.compiler.is_compiling() else [x + 1]

class Meter:
    def __init__(self):
        self.total = 0

METER = Meter()

def meters(x):
    METER.total += 1
    return x + METER.total

class Encoder(torch.nn.Module):
    @torch.compile(backend="aot_eager")
    def encode(self, x):
        return x.sin()

def printing(x):
    y = x.sin()
    print(end="")
    return y.cos()
"""


def test_limits_that_nothing_measured_are_not_passed(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import torch

        def test_it(compileguard):
            limits = {"max_kernels": 0, "max_cudagraph_skips": 0, "mode": "reduce-overhead"}
            compileguard(torch.nn.Linear(3, 3), backend="aot_eager", **limits)(torch.ones(3))
        """,
        "--compileguard-strict",
        library=LIBRARY,
    )
    run.result.assert_outcomes(failed=1)
    assert run.status("kernels") == "not_checked"
    assert run.status("cudagraph_skips") == "not_checked"


@pytest.mark.parametrize("target", ("rebinds", "container"))
def test_what_differs_under_compilation_is_seen(run_suite: RunSuite, target: str) -> None:
    run = run_suite(
        f"""
        import torch
        from library import {target}

        def test_it(compileguard):
            compileguard({target}, backend="aot_eager")(torch.ones(3))
        """,
        library=LIBRARY,
    )
    run.result.assert_outcomes(failed=1)
    assert run.check["observed"]["parity"] == "failed"


def test_state_of_the_targets_file_changes_once(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import torch
        import library

        def test_list(compileguard):
            compileguard(library.logs, backend="aot_eager")(torch.ones(3))
            assert library.LOG == [1]

        def test_object(compileguard):
            guarded = compileguard(library.meters, backend="aot_eager")
            assert [guarded(torch.zeros(1)).item() for _ in range(2)] == [1, 2]

        def test_iterator(compileguard):
            guarded = compileguard(library.numbered, backend="aot_eager")
            assert [guarded(torch.zeros(1)).item() for _ in range(3)] == [0, 1, 2]
        """,
        library=LIBRARY,
    )
    run.result.stdout.no_fnmatch_line("*AssertionError*")
    assert {c["observed"]["parity"] for c in run.checks} == {"passed"}, run.text


def test_a_method_that_is_compiled_where_it_is_defined(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import torch
        from library import Encoder

        def test_it(compileguard):
            compileguard(Encoder().encode, max_graph_breaks=0)(torch.ones(3))
        """,
        "--compileguard-backend=eager",
        library=LIBRARY,
    )
    run.result.assert_outcomes(passed=1)
    assert run.check["observed"]["graphs"] == 1
    assert run.check["backend"] == "of the target"


def test_what_is_guarded_already_is_refused(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        from library import logs

        def test_it(compileguard):
            compileguard(compileguard(logs))
        """,
        library=LIBRARY,
    )
    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(["*<guarded logs>): is guarded already"])


def test_a_place_is_allowed_as_reports_show_it(run_suite: RunSuite) -> None:
    line = LIBRARY.strip().splitlines().index('    print(end="")') + 1
    run = run_suite(
        f"""
        import torch
        from library import printing

        def test_it(compileguard):
            guarded = compileguard(
                printing, backend="aot_eager", max_graph_breaks=0,
                allow_graph_breaks=["library.py:{line}"],
            )
            guarded(torch.ones(3))
        """,
        library=LIBRARY,
    )
    run.result.assert_outcomes(passed=1)
