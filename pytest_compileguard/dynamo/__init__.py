"""The only room that knows torch's private compiler names.

One passive handler on torch's structured trace sees every compile: no fact comes from a
wrapped backend or a patched function. torch's own counters, and the regions that a profiler sees
running, are the cross-checks. ``ensure_understood`` tries all of it out once per
process and fails closed on a torch that answers otherwise.
"""

from __future__ import annotations

from pytest_compileguard.dynamo.arguments import unknown_backend, unknown_options
from pytest_compileguard.dynamo.compiled_form import InPlace, compiled_form
from pytest_compileguard.dynamo.counters import LOGS_ALL_BREAKS, Counters, counters
from pytest_compileguard.dynamo.first_use import caches_disabled, use_backend_once
from pytest_compileguard.dynamo.listening import configured, tracing, watching
from pytest_compileguard.dynamo.optimizers import make_capturable
from pytest_compileguard.dynamo.polyfills import as_written
from pytest_compileguard.dynamo.raised import (
    raised_at_run,
    raised_while_compiling,
    weights_refused,
)
from pytest_compileguard.dynamo.refusals import LOOKS_UP_NEW_FRAMES
from pytest_compileguard.dynamo.regions import CallTrace, probing
from pytest_compileguard.dynamo.self_test import ensure_understood
from pytest_compileguard.dynamo.stages import (
    EAGER_RANDOM_NUMBERS,
    INDUCTOR_TRIALS,
    STAGES,
    graph_places,
    inductor_configured,
    load_stages,
    named_backend,
    only_first,
)
from pytest_compileguard.dynamo.stance import eager_stance
from pytest_compileguard.dynamo.state import (
    NewTensorsOn,
    ResetWatch,
    forget_compiled_code,
    hindrances,
    is_compiled_code,
    load_backend,
    new_tensors_on,
)
from pytest_compileguard.dynamo.trace_file import trace_lines
from pytest_compileguard.dynamo.windows import while_compiling

__all__ = [
    "EAGER_RANDOM_NUMBERS",
    "INDUCTOR_TRIALS",
    "LOGS_ALL_BREAKS",
    "LOOKS_UP_NEW_FRAMES",
    "STAGES",
    "CallTrace",
    "Counters",
    "InPlace",
    "NewTensorsOn",
    "ResetWatch",
    "as_written",
    "caches_disabled",
    "compiled_form",
    "configured",
    "counters",
    "eager_stance",
    "ensure_understood",
    "forget_compiled_code",
    "graph_places",
    "hindrances",
    "inductor_configured",
    "is_compiled_code",
    "load_backend",
    "load_stages",
    "make_capturable",
    "named_backend",
    "new_tensors_on",
    "only_first",
    "probing",
    "raised_at_run",
    "raised_while_compiling",
    "trace_lines",
    "tracing",
    "unknown_backend",
    "unknown_options",
    "use_backend_once",
    "watching",
    "weights_refused",
    "while_compiling",
]
