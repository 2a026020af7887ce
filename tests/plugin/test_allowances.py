"""Intended graph breaks are allowed by id, module or place, are listed, and must exist."""

from __future__ import annotations

import pytest

from tests.conftest import RunSuite

SUITE = """
import torch
from library import printing

def test_it(compileguard):
    guarded = compileguard(
        printing, backend="aot_eager", max_graph_breaks=0, allow_graph_breaks={allowances!r}
    )
    guarded(torch.ones(3))
"""


@pytest.mark.parametrize("allowance", ("GB0059", "library", "*/library.py", "*/library.py:8"))
def test_an_allowed_break_passes_and_is_listed(run_suite: RunSuite, allowance: str) -> None:
    run = run_suite(SUITE.format(allowances=[allowance]))
    run.result.assert_outcomes(passed=1)
    assert run.check["observed"]["graph_breaks"] == 0
    assert [site["allowed"] for site in run.check["graph_breaks"]] == [True]
    assert run.findings("graph_breaks")[0]["evidence"][0].startswith("allowed: ")


@pytest.mark.parametrize("allowance", ("GB0001", "other", "*/library.py:2", "ibrary"))
def test_an_allowance_that_matches_nothing_is_reported(run_suite: RunSuite, allowance: str) -> None:
    run = run_suite(SUITE.format(allowances=[allowance]))
    run.result.assert_outcomes(failed=1)
    assert run.status("graph_breaks") == "failed"
    assert run.status("allow_graph_breaks") == "not_checked"
    assert repr(allowance) in run.text


def test_breaks_that_torch_puts_into_its_optimizers_are_allowed_and_said(
    run_suite: RunSuite,
) -> None:
    run = run_suite(
        """
        import torch

        def test_step(compileguard):
            weight = torch.nn.Parameter(torch.ones(3))
            optimizer = torch.optim.SGD([weight], lr=0.1)
            weight.grad = torch.ones(3)
            guarded = compileguard(optimizer.step, backend="aot_eager", max_graph_breaks=0)
            guarded()
            assert torch.allclose(weight.detach(), torch.full((3,), 0.9))
        """
    )
    run.result.assert_outcomes(passed=1)
    assert run.check["graph_breaks"]
    assert all(site["allowed"] and site["origin"] == "torch" for site in run.check["graph_breaks"])


def test_a_break_of_an_assert_that_pytest_rewrote_names_that_cause(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import torch

        def checked(x):
            y = x.sin()
            assert y.sum() > -100
            return y.cos()

        def test_it(compileguard):
            compileguard(checked, backend="aot_eager", max_graph_breaks=0)(torch.ones(3))
        """
    )
    run.result.assert_outcomes(failed=1)
    assert run.check["graph_breaks"][0]["origin"] == "test"
    run.result.stdout.fnmatch_lines(["*pytest rewrites the asserts of test modules*"])
