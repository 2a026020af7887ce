"""Tells an error of compiling from one that compiled code raised as it ran."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch._dynamo.exc

from pytest_compileguard.dynamo.regions import CallTrace

_DYNAMO = Path(torch._dynamo.exc.__file__).parent
# By their paths: to import the backends takes 0.2 s.
_COMPILING = (str(_DYNAMO / "convert_frame.py"), str(_DYNAMO / "backends" / "common.py"))
"""Dynamo and what it calls; and backends, where a backward pass is compiled only when it runs."""


def raised_at_run(error: Exception, trace: CallTrace) -> bool:
    """Whether an error of a call comes out of code that was compiled well, and ran."""
    ran = trace.graphs if trace.regions is None else trace.regions
    if not ran or isinstance(error, torch._dynamo.exc.TorchDynamoException):
        return False
    passed = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
    return not any(file in _COMPILING for file in passed)
