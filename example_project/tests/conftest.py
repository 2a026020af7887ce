"""What every test of the shop starts from."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def device() -> str:
    """The device to test on: the GPU, where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
