"""On a GPU: steps of training, kernels against plain torch, and faults located and saved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import RunSuite

pytestmark = pytest.mark.gpu

LIBRARY = """
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=dropout, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.layer(x).mean(1))

class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))

class Sevenfold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 7

def wrong_gradient(graph, inputs):
    return lambda *args: [Sevenfold.apply(o) if o.requires_grad else o for o in graph(*args)]

def batch(*shape):
    return torch.randn(8, *shape, device="cuda"), torch.randint(10, (8,), device="cuda")

def sine(x):
    return x.sin() * 2
"""

SUITE = """
import contextlib
import torch
from torch import nn
from library import Convolution, Encoder, batch, sine, wrong_gradient

def trained(compileguard, model, shape, steps=3, autocast=False, **arguments):
    torch.manual_seed(0)
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = compileguard.training(model, optimizer, nn.functional.cross_entropy, **arguments)
    cast = torch.autocast("cuda", torch.bfloat16) if autocast else contextlib.nullcontext()
    for _ in range(steps):
        with cast:
            step(*batch(*shape))
    assert all(p.grad is not None for p in model.parameters())

{body}
"""

MODES = ("default", "reduce-overhead")


def suite(body: str) -> str:
    return SUITE.format(body=body)


@pytest.mark.parametrize("mode", MODES)
def test_training_agrees_in_every_precision(run_suite: RunSuite, mode: str) -> None:
    body = """
def test_encoder(compileguard):
    trained(compileguard, Encoder(), (16, 128), mode={mode!r}, max_recompiles=0)

def test_autocast(compileguard):
    trained(compileguard, Encoder(), (16, 128), autocast=True, mode={mode!r}, max_recompiles=0)

def test_convolution(compileguard):
    trained(compileguard, Convolution(), (3, 16, 16), mode={mode!r}, max_recompiles=0)
"""
    run = run_suite(suite(body.format(mode=mode)), library=LIBRARY)
    run.result.assert_outcomes(passed=3)
    assert {check["observed"]["parity"] for check in run.checks} == {"passed"}, run.text


def test_compiled_optimizer_and_dropout_agree_and_a_whole_step_is_timed(
    run_suite: RunSuite,
) -> None:
    body = """
def test_optimizer(compileguard):
    trained(compileguard, Convolution(), (3, 16, 16), compile_optimizer=True)

def test_dropout(compileguard):
    trained(compileguard, Encoder(dropout=0.2), (16, 128))
"""
    run = run_suite(suite(body), library=LIBRARY, timing=True)
    run.result.assert_outcomes(passed=2)
    for check in run.checks:
        assert check["observed"]["parity"] == "passed", run.text
        assert check["samples"]["void"] is None, run.text
        assert check["samples"]["clock"] == "cuda_event"


def test_wrong_gradient_is_caught_and_located(run_suite: RunSuite) -> None:
    body = """
def test_wrong(compileguard):
    trained(compileguard, Encoder(), (16, 128), steps=1, backend=wrong_gradient)
"""
    run = run_suite(suite(body), library=LIBRARY)
    run.result.assert_outcomes(failed=1)
    assert run.check["departure"]["stage"] == "wrong_gradient"
    assert "model.head.weight.grad" in {m["path"] for m in run.check["mismatches"]}


def test_fault_of_inductor_is_located_and_reproduced(run_suite: RunSuite) -> None:
    body = """
def cosine(graph):
    for node in graph.nodes:
        if node.target is torch.ops.aten.sin.default:
            node.target = torch.ops.aten.cos.default

def scaled(graph, inputs):
    return lambda *args: [out * 1.5 for out in graph(*args)]

def test_located(compileguard, monkeypatch):
    monkeypatch.setattr(torch._inductor.config, "post_grad_custom_post_pass", cosine)
    compileguard(sine)(torch.zeros(64, device="cuda"))

def test_saved(compileguard):
    compileguard(sine, backend=scaled)(torch.ones(64, device="cuda"))
"""
    run = run_suite(suite(body), "--compileguard-artifacts=saved", library=LIBRARY)
    run.result.assert_outcomes(failed=2)
    located, saved = run.checks
    assert located["departure"]["stage"] == "inductor", run.text
    assert located["departure"]["extreme"]["reference"] is not None
    file = Path(saved["reproduction"]["file"]).resolve()
    command = [sys.executable, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "output: Tensor-likes are not close" in done.stdout


KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def _silu(x_ptr, out_ptr, size, factor, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < size
    x = tl.load(x_ptr + at, mask=inside)
    tl.store(out_ptr + at, factor * x / (1 + tl.exp(-x)), mask=inside)

def silu(x, factor=1.0):
    out = torch.empty_like(x)
    size = out.numel()
    _silu[(triton.cdiv(size, 1024),)](x, out, size, factor, block=1024)
    return out

def wrong_silu(x):
    return silu(x, 1.001)
"""


def test_a_kernel_is_held_against_plain_torch(run_suite: RunSuite) -> None:
    body = """
from library import silu, wrong_silu

def test_right(compileguard):
    guarded = compileguard(silu, reference=nn.functional.silu, rtol=1e-5, atol=1e-6)
    guarded(torch.randn(100_003, device="cuda"))

def test_wrong(compileguard):
    guarded = compileguard(wrong_silu, reference=nn.functional.silu, rtol=1e-5, atol=1e-6)
    guarded(torch.randn(100_003, device="cuda"))
"""
    run = run_suite(suite(body), library=LIBRARY + KERNEL)
    run.result.assert_outcomes(passed=1, failed=1)
    wrong = next(check for check in run.checks if "wrong" in check["nodeid"])
    assert {m["against"] for m in wrong["mismatches"]} == {"reference"}
    assert wrong["departure"] is None
