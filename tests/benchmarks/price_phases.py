"""A pytest plugin for ``price.py``: how long the phases of all checks of a session took.

It wraps one function a phase, and writes inclusive seconds to ``$PRICE_PHASES`` at the end.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

BEGIN_S = time.perf_counter()
SECONDS: defaultdict[str, float] = defaultdict(float)


def pytest_sessionstart() -> None:
    SECONDS["starting pytest"] = time.perf_counter() - BEGIN_S
    begin_s = time.perf_counter()
    import torch  # noqa: F401, PLC0415  # its import is timed

    SECONDS["importing torch"] = time.perf_counter() - begin_s
    begin_s = time.perf_counter()
    from pytest_compileguard import (  # noqa: PLC0415  # imports torch
        dynamo,
        guard,
        phases,
        runner,
    )
    from pytest_compileguard.parity.sides import SideComparison  # noqa: PLC0415  # imports torch
    from pytest_compileguard.shadow.both_sides import Shadow  # noqa: PLC0415  # imports torch
    from pytest_compileguard.shadow.prepared import Prepared  # noqa: PLC0415  # imports torch
    from pytest_compileguard.timing import warm_calls  # noqa: PLC0415  # imports torch

    SECONDS["importing the plugin's rooms"] = time.perf_counter() - begin_s
    for owner, name, phase in (
        (guard.CompileGuard, "_call", "guarded calls"),
        (runner.Check, "start", "guarded calls / start"),
        (Shadow, "_prepare", "guarded calls / isolate"),
        (Shadow, "_shadow", "guarded calls / shadow"),
        (Prepared, "run", "guarded calls / shadow / both sides, compiling"),
        (SideComparison, "compare", "guarded calls / shadow / compare"),
        (guard.CompileGuard, "finish", "finish"),
        (runner, "gather_facts", "finish / gather facts"),
        (runner, "measure_warm_calls", "finish / measure"),
        (warm_calls, "sample_speed", "finish / measure / sample"),
        (warm_calls, "peak_memory", "finish / measure / memory"),
        (guard.CompileGuard, "close", "close"),
        (dynamo, "forget_compiled_code", "resetting torch (part of others)"),
        (phases, "make_environment", "environment"),
        (phases, "judge", "judge"),
    ):
        setattr(owner, name, timed(getattr(owner, name), phase))


def timed(function: Any, phase: str) -> Any:
    @functools.wraps(function)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        begin_s = time.perf_counter()
        try:
            return function(*arguments, **keywords)
        finally:
            SECONDS[phase] += time.perf_counter() - begin_s

    return wrapped


def pytest_unconfigure() -> None:
    SECONDS["whole session"] = time.perf_counter() - BEGIN_S
    Path(os.environ["PRICE_PHASES"]).write_text(json.dumps(SECONDS), encoding="utf-8")
