"""Right code that rounds otherwise is never refused: random programs, and models at work."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import seed as seeded
from torch import nn

from tests.dynamo.checked import check
from tests.dynamo.other_rounding import rounding_by_chance
from tests.dynamo.random_programs import Program, programs
from tests.dynamo.test_parity_random import SEED, drawn, outcome
from tests.dynamo.torch_alone import deviation

pytestmark = pytest.mark.usefixtures("compiler_loaded")


@seeded(SEED)
@drawn
@given(programs(breaks=False))
def test_random_programs_may_round_otherwise(program: Program) -> None:
    refused = outcome(program, rounding_by_chance(SEED)).refused
    assert refused is None or deviation(program) is not None, refused


def test_the_backend_rounds_otherwise() -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float32, torch.bfloat16):
        made = torch.compile(lambda x: x.exp() / 3, backend=rounding_by_chance(0))(x.to(dtype))
        eager = x.to(dtype).exp() / 3
        assert made.dtype == dtype
        assert not torch.equal(made, eager)
        torch.testing.assert_close(made, eager)


MODELS: dict[str, Any] = {
    "an encoder layer": lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
    "convolutions": lambda: nn.Sequential(
        nn.Unflatten(-1, (4, 4)), nn.Conv2d(6, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
    ),
    "layers and norms": lambda: nn.Sequential(
        nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 8), nn.LogSoftmax(-1)
    ),
    "a recurrent cell": lambda: nn.GRUCell(16, 8),
}


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("name", MODELS)
def test_models_may_round_otherwise(name: str, dtype: torch.dtype) -> None:
    for seed in range(4):
        torch.manual_seed(seed)
        model = MODELS[name]().to(dtype)
        if isinstance(model, nn.TransformerEncoderLayer):
            model.eval()
        shape = (6, 16) if isinstance(model, nn.GRUCell) else (3, 6, 16)
        x = torch.randn(shape).to(dtype).requires_grad_()
        told = check(model, (x,), backend=rounding_by_chance(seed), locates=False).told
        assert told == "", seed
