"""Reducing a sequence to one vector."""

from __future__ import annotations

import torch
from torch import Tensor


def attention_pool(tokens: Tensor) -> Tensor:
    """Weigh the tokens of a sequence, ``(tokens, width)``, by their own softmax and add them."""
    weights = torch.softmax(tokens.mean(dim=1), dim=0)
    return weights @ tokens
