"""Frames that run eager for good since the recompile limit: torch tells of each only once."""

from __future__ import annotations

import torch
import torch._dynamo.utils

from pytest_compileguard.observation import CodeLine
from pytest_compileguard.trace.break_text import plain_function
from pytest_compileguard.trace.compiles import RECOMPILE_LIMIT

LOOKS_UP_NEW_FRAMES = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)
"""Whether torch looks for code of frames too that it meets for the first time, of which it never
compiles some: then a look-up in vain alone says nothing."""


def refused_frames() -> tuple[CodeLine, ...]:
    """Functions that hit the limit, of the last compiles in this process (64, unless set)."""
    known: dict[str, CodeLine] = {}
    found: dict[CodeLine, None] = {}
    for metrics in torch._dynamo.utils.get_compilation_metrics():
        frame, _, number = str(metrics.compile_id).partition("/")
        if frame == number == "0":  # torch was reset: nothing from before it counts
            known, found = {}, {}
        if metrics.co_name:
            known[frame] = CodeLine(
                file=str(metrics.co_filename or "?"),
                line=int(metrics.co_firstlineno or 0),
                function=plain_function(str(metrics.co_name)),
                source="",
                role="definition",
            )
        if frame in known and RECOMPILE_LIMIT.search(f"{metrics.fail_type}: {metrics.fail_reason}"):
            found[known[frame]] = None
    return tuple(found)
