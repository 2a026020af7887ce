"""Tells an error of compiling from one that compiled code raised as it ran."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch
import torch._dynamo.exc

from pytest_compileguard.dynamo.regions import CallTrace

_DYNAMO = Path(torch._dynamo.exc.__file__).parent
# By their paths: to import the backends takes 0.2 s.
_COMPILING = (str(_DYNAMO / "convert_frame.py"), str(_DYNAMO / "backends" / "common.py"))
"""Dynamo and what it calls; and backends, where a backward pass is compiled only when it runs."""


_WEIGHTS_TAKEN = "_make_grads"
"""The function in which autograd refuses weights, before it runs anything."""


def weights_refused(error: Exception | None) -> bool:
    """Whether autograd raised since the weights don't fit what is to be differentiated."""
    if error is None:
        return False
    passed = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(
        code.co_name == _WEIGHTS_TAKEN and code.co_filename == torch.autograd.__file__
        for code in passed
    )


def raised_at_run(error: Exception, trace: CallTrace) -> bool:
    """Whether an error of a call comes out of code that was compiled well, and ran."""
    ran = trace.graphs if trace.regions is None else trace.regions
    if not ran or isinstance(error, torch._dynamo.exc.TorchDynamoException):
        return False
    return not raised_while_compiling(error)


def raised_while_compiling(error: Exception) -> bool:
    """Whether an error came through the compiler: of a backward pass, while it was to run."""
    passed = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(file in _COMPILING for file in passed)
