"""The models that the shop sells."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TwoLayerNet(nn.Module):
    """Linear, ReLU, linear."""

    def __init__(self, width: int = 64, hidden: int = 128) -> None:
        super().__init__()
        self.rise = nn.Linear(width, hidden)
        self.fall = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, width)`` to the same shape."""
        return self.fall(torch.relu(self.rise(x)))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """One transformer encoder layer and a last norm."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            width, heads, dim_feedforward=2 * width, dropout=0.0, batch_first=True
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map ``(batch, tokens, width)`` to the same shape."""
        return self.norm(self.layer(tokens))  # type: ignore[no-any-return]
