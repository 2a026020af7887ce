"""Tries out once per process whether torch's trace says what is expected of it."""

from __future__ import annotations

import functools
import types

import torch
import torch._dynamo.config
from torch._dynamo import eval_frame

from pytest_compileguard.dynamo.counters import counters
from pytest_compileguard.dynamo.listening import configured, tracing
from pytest_compileguard.dynamo.regions import probing
from pytest_compileguard.dynamo.state import hindrances
from pytest_compileguard.dynamo.windows import while_compiling
from pytest_compileguard.errors import UnsupportedTorchError
from pytest_compileguard.trace.compiles import TraceFacts, read_trace

# What a project may have set for its own code must not decide what the self-test sees.
_CONFIG = {
    "error_on_recompile": False,
    "recompile_limit": 8,
    "specialize_int": False,
    "suppress_errors": False,
}


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
    """Compile a function that breaks once and recompiles once, and hold the facts against it."""
    try:
        wrong = _deviations()
    except Exception as error:  # noqa: BLE001  # a torch that can't compile it is none we know
        wrong = [f"{type(error).__name__} ({error})"]
    if wrong:
        raise UnsupportedTorchError(
            f"the compile trace of torch {torch.__version__} is not understood: of a function "
            f"with one graph break, called with two sizes, it says {'; '.join(wrong)}. "
            "No check can be made; use a torch version that pytest-compileguard supports"
        )


def _deviations() -> list[str]:
    # Code of its own, so that nothing that was compiled before need be dropped.
    fresh = types.FunctionType(_breaks_once.__code__.replace(), globals())
    known = {name: value for name, value in _CONFIG.items() if hasattr(torch._dynamo.config, name)}
    before = counters()
    with torch.no_grad(), torch._dynamo.config.patch(known), configured():
        compiled = torch.compile(fresh, backend="eager", dynamic=False)
        times: list[str] = []
        windows = while_compiling(lambda: times.append("begins"), lambda: times.append("ends"))
        with windows, tracing(0, set()) as trace:
            compiled(torch.ones(2))
            compiled(torch.ones(3))
        with probing(1) as warm:
            compiled(torch.ones(3))
    facts = read_trace(trace.events, target=fresh.__name__, dynamic=False)
    seen = _summary(facts)
    if not trace.foreign:  # torch's counters are those of all threads
        seen["graphs by its counter"] = counters().since(before).unique_graphs
        seen["times of compiling"] = times
    if warm.regions is not None:
        seen["compiled regions that a later call runs"] = len(warm.regions)
    return [
        f"{name}: {value}, not {_TRUE[name]}"
        for name, value in seen.items()
        if value != _TRUE[name]
    ]


def _summary(facts: TraceFacts) -> dict[str, object]:
    return {
        "graphs": len(facts.graph_ids),
        "operations": list(facts.ops),
        "breaks": [(site.function, site.line) for site in facts.break_sites],
        "recompiles": [(r.kind, r.before, r.after) for r in facts.recompiles],
        "frames given up": len(facts.skipped) + len(facts.raised),
    }


def _breaks_once(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y + 1


_TRUE = {
    "graphs": 4,
    "operations": [1, 1, 1, 1],
    "breaks": [(_breaks_once.__name__, _breaks_once.__code__.co_firstlineno + 2)],
    # The function, and what is left of it after the break.
    "recompiles": [("size", "2", "3")] * 2,
    "frames given up": 0,
    "graphs by its counter": 4,
    "times of compiling": ["begins", "ends"] * 4,
    "compiled regions that a later call runs": 2,
}
