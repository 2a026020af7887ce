"""A step of training that is guarded as a function: what of it is not compared is said."""

from __future__ import annotations

from tests.conftest import RunSuite

LIBRARY = """
import torch

class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(3, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x):
        loss = self.model(x).sum()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def clean_step(self, x):
        loss = self.step(x)
        self.optimizer.zero_grad()
        return loss

def inner_gradient(x):
    y = x.detach().clone().requires_grad_()
    (y * y).sum().backward()
    return y.grad.detach() * 2

def plain(x):
    return x * 2
"""
SUITE = """
import pytest
from torch import ones
from library import Trainer, inner_gradient, plain
from pytest_compileguard import compile_check

pytestmark = compile_check(backend="aot_eager")

def test_clean(compileguard):
    compileguard(Trainer().clean_step)(ones(2, 3))

def test_left(compileguard):
    compileguard(Trainer().step)(ones(2, 3))

def test_inner(compileguard):
    compileguard(inner_gradient)(ones(2, 3))

def test_plain(compileguard):
    compileguard(plain)(ones(2, 3))
"""


def test_only_a_step_whose_gradients_are_gone_is_sent_to_training(run_suite: RunSuite) -> None:
    run = run_suite(SUITE, "-v", library=LIBRARY)
    run.result.assert_outcomes(passed=4)
    run.result.stdout.fnmatch_lines(
        [
            (
                "    library.py:10 in step takes a step of training, which leaves no gradients to "
                "compare: guarded by compileguard.training, they are compared"
            ),
            "note: 2 of 4 checks compared no gradients: none were required, or grad mode was off",
            (
                "note: 1 of 4 checks guards a step of training that leaves no gradients to compare "
                "(test_clean): compileguard.training compares them"
            ),
        ]
    )
    assert run.text.count("takes a step of training") == 1
