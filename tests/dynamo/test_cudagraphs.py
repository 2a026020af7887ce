"""CUDA graphs where there is no GPU: a mode that promises them says that it has none."""

from __future__ import annotations

import pytest
import torch

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_mode_that_promises_them_on_a_processor() -> None:
    seen = check(torch.relu, (torch.ones(64),), backend="inductor", mode="reduce-overhead")
    (skip,) = seen.facts.cudagraph_skips

    assert skip == "torch gives no reason, as for code on a CPU"
    assert {f.metric: f.status for f in seen.verdict.findings}["cudagraph_skips"] == "inconclusive"
