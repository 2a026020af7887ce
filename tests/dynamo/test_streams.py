"""Streams that a target holds: read ones are refused, written ones are left to the test."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.compiler import is_compiling

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


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def writes(stream: Any, count: int) -> None:
    stream.write(("a" if isinstance(stream, io.StringIO) else b"a") * count)


class Logs(nn.Module):
    """Writes to a log that was there before, and to one of its own."""

    def __init__(self, stream: Any, which: str) -> None:
        super().__init__()
        self.log = stream
        self.which = which

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wrong = 2 if is_compiling() else 1
        y = x * 2
        writes(self.log, wrong if self.which == "before" else 1)
        self.made = opened(wrong if self.which == "made" else 1)
        return y + 1


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def opened(count: int) -> io.StringIO:
    return io.StringIO("a" * count)


BUFFER = io.StringIO()


def by_global(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    writes(BUFFER, 2 if is_compiling() else 1)
    return y + 1


WRONG: dict[str, Callable[..., Any]] = {
    "text": Logs(io.StringIO(), "before"),
    "bytes": Logs(io.BytesIO(), "before"),
    "long text": Logs(io.StringIO("a" * 5_000), "before"),
    "made by the call": Logs(io.StringIO(), "made"),
    "in a global": by_global,
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_written_to_memory_is_compared(name: str) -> None:
    assert "compiled differs from eager" in check(WRONG[name], (X,), locates=False).told


@pytest.mark.parametrize("kind", (io.StringIO, io.BytesIO))
def test_what_is_written_to_memory_alike_is_no_difference(kind: Callable[[], Any]) -> None:
    stream = kind()
    seen = check(Logs(stream, "none"), *[(X,)] * 2, before=lambda _: writes(stream, 1))
    told = {f.metric: (f.status, f.message) for f in seen.verdict.findings}

    assert told["parity"][0] == "passed", seen.told
    assert "isolation" not in told
    assert len(stream.getvalue()) == 4
