"""Training of common layers in all modes and dtypes: rounding is no error, an error is one.

To try it where there is no GPU, with small layers and mode "default" only:

    COMPILEGUARD_GPU_TESTS_ON=cpu pytest tests/gpu/test_parity_gpu.py

Tuning takes a minute for each layer and precision, so it is tried where it chooses among kernels of
products of matrices. ``COMPILEGUARD_TUNE_ALL=1`` tries all. The two modes that tune share a test:
what the first one measured of each product stands in torch's cache for the second.
"""

from __future__ import annotations

import os

import pytest

from tests.conftest import RunSuite

ON_CPU = os.environ.get("COMPILEGUARD_GPU_TESTS_ON") == "cpu"
pytestmark = [] if ON_CPU else [pytest.mark.gpu]

DEVICE, WIDTH = ("cpu", 32) if ON_CPU else ("cuda", 256)
PRECISIONS = ("float32", "tf32", "bfloat16", "float16")
LAYERS = ("encoder", "attention", "convolution", "embedding", "losses")
TUNE_ALL = os.environ.get("COMPILEGUARD_TUNE_ALL") == "1"
TUNED = LAYERS if TUNE_ALL else ("attention",)
TUNED_PRECISIONS = PRECISIONS if TUNE_ALL else ("bfloat16", "tf32")
TUNING_MODES = ("max-autotune-no-cudagraphs", "max-autotune")

LIBRARY = f"""
import torch
from torch import nn
from torch.nn import functional as F

DEVICE, WIDTH = {DEVICE!r}, {WIDTH}

def wrong():
    return torch.compiler.is_compiling()

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        parts = self.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))

class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(8, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 16, 3, stride=2), nn.GELU(), nn.AdaptiveAvgPool2d(2),
        )

    def forward(self, x):
        return self.body(x).flatten(1)

class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1000, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        return self.norm(self.table(tokens)).mean(1)

class Losses(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, 50)

    def forward(self, x, target):
        logits = self.head(x)
        soft = F.log_softmax(logits.float(), -1)
        return (
            F.cross_entropy(logits.float(), target, label_smoothing=0.1),
            F.mse_loss(logits, logits.detach() * 0.5),
            F.kl_div(soft, soft.detach().roll(1, 0), log_target=True, reduction="batchmean"),
            F.smooth_l1_loss(logits, logits.detach().roll(1, 0)),
        )

def encoder():
    return nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)

def make(name, dtype):
    torch.manual_seed(0)
    made = {{
        "encoder": encoder, "attention": Attention, "convolution": Convolution,
        "embedding": Embedding, "losses": Losses,
    }}[name]().to(DEVICE, dtype)
    return made.train()

def inputs(name, dtype):
    if name == "convolution":
        return (torch.randn(4, 8, 32, 32, device=DEVICE, dtype=dtype, requires_grad=True),)
    if name == "embedding":
        return (torch.randint(0, 1000, (16, 32), device=DEVICE),)
    x = torch.randn(4, 64, WIDTH, device=DEVICE, dtype=dtype, requires_grad=True)
    if name == "losses":
        return x[:, 0], torch.randint(0, 50, (4,), device=DEVICE)
    return (x,)

class Planted(nn.Module):
    '''Scales its result, or only its gradient, where it is compiled.'''

    def __init__(self, inner, how):
        super().__init__()
        self.inner, self.how = inner, how

    def forward(self, *args):
        out = self.inner(*args)
        first = out[0] if isinstance(out, tuple) else out
        if not wrong():
            return out
        if self.how == "value":
            first = first * 1.05
        elif self.how == "gradient":
            first = first * 1.25 - first.detach() * 0.25
        elif self.how == "element":
            factor = torch.ones_like(first).flatten()
            factor[0] = -1
            first = first * factor.view_as(first)
        return (first, *out[1:]) if isinstance(out, tuple) else first
"""

SOUND = """
import pytest
import torch
from library import DEVICE, inputs, make

@pytest.fixture(autouse=True)
def precision():
    torch.set_float32_matmul_precision({matmul!r})
    yield
    torch.set_float32_matmul_precision("highest")

@pytest.mark.parametrize("mode", {modes!r})
@pytest.mark.parametrize("name", {names!r})
def test_layer(compileguard, name, mode):
    dtype = torch.{dtype}
    model = make(name, dtype)
    guarded = compileguard(model, mode=mode)
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        out = guarded(*inputs(name, dtype))
        parts = out if isinstance(out, tuple) else (out,)
        sum(part.float().square().mean() for part in parts).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 1e-3 * parameter.grad
"""

PLANTED = """
import pytest
import torch
from library import Planted, inputs, make

@pytest.mark.parametrize("how", ("value", "gradient", "element"))
@pytest.mark.parametrize("name", {names!r})
def test_layer(compileguard, name, how):
    torch.set_float32_matmul_precision("highest")
    dtype = torch.{dtype}
    compileguard(Planted(make(name, dtype), how))(*inputs(name, dtype))
"""

DROPOUT = """
import torch
from library import DEVICE, WIDTH

def test_dropout(compileguard):
    torch.set_float32_matmul_precision({matmul!r})
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, dropout=0.1, batch_first=True)
    x = torch.randn(4, 64, WIDTH, device=DEVICE, requires_grad=True)
    compileguard(layer.to(DEVICE).train())(x)
    torch.set_float32_matmul_precision("highest")
"""


JUMPS = """
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

class CutOff(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.addmm.default:
            bias, *operands = args
            args = (bias, *map(cut, operands))
        return func(*args, **(kwargs or {}))

def cut(x):
    return (x.clone().view(torch.int32) & -(2**13)).view(torch.float32)

def cutting(graph, inputs):
    def run(*args):
        with CutOff():
            first, *others = graph(*args)
        return [first * FACTOR - first.detach() * (FACTOR - 1), *others]
    return run

def test_jumps(compileguard):
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    layers = nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU()
    guarded = compileguard(nn.Sequential(*layers).cuda(), backend=cutting)
    for _ in range(12):
        guarded(torch.randn(256, 256, device="cuda", requires_grad=True))
    torch.set_float32_matmul_precision("highest")
"""


def sound(precision: str, names: tuple[str, ...], *modes: str) -> str:
    matmul, dtype = ("high", "float32") if precision == "tf32" else ("highest", precision)
    return SOUND.format(matmul=matmul, dtype=dtype, modes=modes, names=names)


def refused(run: object) -> list[str]:
    checks = run.checks  # type: ignore[attr-defined]
    return [c["nodeid"] for c in checks if c["observed"]["parity"] != "passed"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_training_in_mode_default(run_suite: RunSuite, precision: str) -> None:
    run = run_suite(sound(precision, LAYERS, "default"), library=LIBRARY)
    assert refused(run) == [], run.text
    run.result.assert_outcomes(passed=len(LAYERS))


@pytest.mark.skipif(ON_CPU, reason="needs CUDA graphs")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_training_with_cuda_graphs(run_suite: RunSuite, precision: str) -> None:
    run = run_suite(sound(precision, LAYERS, "reduce-overhead"), library=LIBRARY)
    assert refused(run) == [], run.text
    run.result.assert_outcomes(passed=len(LAYERS))


@pytest.mark.skipif(ON_CPU, reason="needs a GPU to tune for")
@pytest.mark.parametrize("precision", TUNED_PRECISIONS)
@pytest.mark.parametrize("layer", TUNED)
def test_training_with_tuned_kernels(run_suite: RunSuite, layer: str, precision: str) -> None:
    run = run_suite(sound(precision, (layer,), *TUNING_MODES), library=LIBRARY)
    assert refused(run) == [], run.text
    run.result.assert_outcomes(passed=len(TUNING_MODES))


@pytest.mark.skipif(ON_CPU, reason="needs TF32")
@pytest.mark.parametrize("factor", (1, 1.25))
def test_kernels_that_cut_tf32_off_decide_jumps_otherwise(
    run_suite: RunSuite, factor: float
) -> None:
    run = run_suite(JUMPS.replace("FACTOR", str(factor)), library="")
    assert (refused(run) == []) == (factor == 1), run.text


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_planted_errors_are_found(run_suite: RunSuite, dtype: str) -> None:
    few = ON_CPU or dtype == "bfloat16"
    names = ("attention",) if few else ("attention", "convolution", "losses")
    run = run_suite(PLANTED.format(dtype=dtype, names=names), library=LIBRARY)
    seen = [check["observed"]["parity"] for check in run.checks]
    assert seen == ["failed"] * 3 * len(names), run.text


@pytest.mark.parametrize("matmul", ("highest", "high"))
def test_dropout_is_no_error(run_suite: RunSuite, matmul: str) -> None:
    run = run_suite(DROPOUT.format(matmul=matmul), library=LIBRARY)
    assert refused(run) == [], run.text
