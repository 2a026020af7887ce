"""The small functions and networks of ``price.py``, and the suite that guards them: source text.

Each target has code of its own, as Dynamo keeps what it compiled by code: variants of one
function would count as recompiles of each other.
"""

from __future__ import annotations

FEATURES = 256

_HEAD = '''"""Made by price_targets.py."""

import torch

F = torch.nn.functional
'''
_KINDS = (
    """
def target_{i}(x):
    return torch.relu(x * {a} + 1.5).sin() + x
""",
    """
def target_{i}(x):
    y = (x * {a} - x.amax(-1, keepdim=True)).exp()
    return y / y.sum(-1, keepdim=True)
""",
    """
class Mlp{i}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear({features}, {width})
        self.two = torch.nn.Linear({width}, 64)

    def forward(self, x):
        return self.two(F.gelu(self.one(x)))
""",
    """
def target_{i}(x):
    return F.silu(F.layer_norm(x, ({features},))) * {a}
""",
    """
def target_{i}(x):
    return torch.tanh(x @ x.transpose(-1, -2) * {a}).mean(-1)
""",
)
_TAIL = """
def make(number, device):
    torch.manual_seed(number)
    if f"Mlp{{number}}" in globals():
        return globals()[f"Mlp{{number}}"]().to(device).eval()
    return globals()[f"target_{{number}}"]


def make_inputs(number, device):
    generator = torch.Generator().manual_seed(number)
    sizes = (32, 48) if number % {kinds} == {kinds} - 1 else (32, 32)
    return [torch.randn(size, {features}, generator=generator).to(device) for size in sizes]
"""
SUITE = """
import os

import pytest
import torch

from price_made import make, make_inputs

DEVICE = os.environ["PRICE_DEVICE"]


@pytest.mark.parametrize("number", range(int(os.environ["PRICE_CHECKS"])))
@pytest.mark.compile_check(max_graph_breaks=0, max_recompiles=1)
def test_target(compileguard, number):
    guarded = compileguard(make(number, DEVICE))
    with torch.no_grad():
        for x in make_inputs(number, DEVICE):
            guarded(x)
"""


def targets_text(checks: int) -> str:
    """Give the module ``price_made``."""
    parts = [
        _KINDS[i % len(_KINDS)].format(i=i, a=1 + i / 64, width=128 + 16 * i, features=FEATURES)
        for i in range(checks)
    ]
    tail = _TAIL.format(kinds=len(_KINDS), features=FEATURES)
    return "\n".join((_HEAD, *parts, tail))
