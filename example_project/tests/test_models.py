"""Modules: in inference, and in a loop that trains them."""

from __future__ import annotations

import torch
from torch.nn import functional

from pytest_compileguard import CompileGuard, compile_check
from toyshop.models import Encoder, TwoLayerNet


@compile_check(max_graph_breaks=0, max_recompiles=1)
def test_inference_takes_any_batch(compileguard: CompileGuard, device: str) -> None:
    # One recompile is due: the second batch size tells the compiler that the size varies.
    guarded = compileguard(TwoLayerNet().to(device).eval())

    with torch.no_grad():
        for batch in (32, 48, 64):
            out = guarded(torch.randn(batch, 64, device=device))
            assert out.shape == (batch, 64)


@compile_check(max_graph_breaks=0, max_recompiles=0)
def test_training_stays_compiled(compileguard: CompileGuard, device: str) -> None:
    model = TwoLayerNet().to(device)
    model.compile()
    guarded = compileguard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, target = torch.randn(2, 32, 64, device=device)

    losses = []
    for _ in range(4):
        optimizer.zero_grad(set_to_none=True)
        loss = functional.mse_loss(guarded(x), target)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())

    assert losses == sorted(losses, reverse=True)


@compile_check(max_graph_breaks=0, max_recompiles=0)
def test_encoder_layer_is_one_graph(compileguard: CompileGuard, device: str) -> None:
    guarded = compileguard(Encoder().to(device).eval())
    tokens = torch.randn(4, 16, 64, device=device)

    with torch.no_grad():
        out = guarded(tokens)

    assert out.shape == tokens.shape
