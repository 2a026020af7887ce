"""CUDA graphs where there is no GPU: nobody is told, but a limit on them is not checked."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_mode_that_promises_them_on_a_processor() -> None:
    arguments: dict[str, Any] = {"backend": "inductor", "mode": "reduce-overhead"}
    seen = check(torch.relu, (torch.ones(64),), **arguments)
    assert seen.facts.cudagraph_skips == ("the code runs on a CPU",)
    assert "cudagraph_skips" not in {f.metric for f in seen.verdict.findings}

    limited = check(torch.relu, (torch.ones(64),), max_cudagraph_skips=0, **arguments)
    (found,) = (f for f in limited.verdict.findings if f.metric == "cudagraph_skips")
    assert (found.status, found.message) == (
        "not_checked",
        "CUDA graphs need a GPU: the code runs on a CPU",
    )
