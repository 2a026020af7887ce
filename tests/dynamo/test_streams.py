"""Streams that a target holds: read ones are refused, written ones are left to the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

X = torch.ones(3)


class Holds(nn.Module):
    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.stream = stream

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        uses(self.stream)
        return x * 2


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def uses(stream: Any) -> None:
    if stream.readable():
        stream.readline()
    else:
        stream.write(b"a" if "b" in stream.mode else "a")


@pytest.mark.parametrize("mode", ("r", "r+", "rb", "r+b"))
def test_a_file_that_is_read_is_not_read_for_the_shadow(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "lines"
    path.write_text("one\ntwo\n")
    with path.open(mode) as stream:
        told = check(Holds(stream), (X,), locates=False).told

        assert "is used up by reading" in told
        assert stream.readline() in ("two\n", b"two\n")


@pytest.mark.parametrize("mode", ("w", "wb"))
def test_a_file_that_is_only_written_is_shared(tmp_path: Path, mode: str) -> None:
    with (tmp_path / "lines").open(mode) as stream:
        seen = check(Holds(stream), (X,), locates=False)

    told = [f.message for f in seen.verdict.findings if f.metric == "isolation"]
    assert any("stream is shared, not copied" in message for message in told), told
