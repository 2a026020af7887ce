"""Tries out once per process whether torch's trace says what is expected of it."""

from __future__ import annotations

import functools
import types

import torch
from torch._dynamo import eval_frame

from pytest_compileguard.dynamo.counters import counters
from pytest_compileguard.dynamo.listening import tracing
from pytest_compileguard.dynamo.regions import probing
from pytest_compileguard.dynamo.state import hindrances
from pytest_compileguard.errors import UnsupportedTorchError


def ensure_understood() -> None:
    """Prove once per process that this torch's trace says what is expected of it.

    Raises:
        UnsupportedTorchError: It does not; no check can be made.
    """
    if not eval_frame.is_dynamo_supported():
        raise UnsupportedTorchError(
            f"torch {torch.__version__} can't compile on this Python or platform"
        )
    if not hindrances(None):  # else nothing can be tried out now; the check fails by naming it
        _try_out()


@functools.cache
def _try_out() -> None:
    """Compile a tiny function and look at what the trace makes of it."""
    version = f"torch {torch.__version__}"
    # Code of its own, so that nothing that was compiled before need be dropped.
    fresh = types.FunctionType(_tiny.__code__.replace(), globals())
    before, compiled = counters(), torch.compile(fresh, backend="eager")
    with torch.no_grad(), tracing(0) as trace:
        compiled(torch.ones(2))
    with torch.no_grad(), probing(1) as warm:
        compiled(torch.ones(2))
    keys = {key for event in trace.events for key in event.metadata}
    missing = {"dynamo_output_graph", "compilation_metrics"} - keys
    graphs = counters().since(before).unique_graphs
    if missing or graphs != 1 or (warm.regions is not None and len(warm.regions) != 1):
        raise UnsupportedTorchError(
            f"the compile trace of {version} is not understood: one tiny compile gave {graphs} "
            f"graphs, regions {warm.regions}, missing events {sorted(missing)}. "
            "No check can be made; use a torch version that pytest-compileguard supports"
        )


def _tiny(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1
