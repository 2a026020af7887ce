"""Writes what was heard in the form that ``TORCH_TRACE`` has and ``tlparse`` reads."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import torch._logging._internal
import torch._logging.structured

from pytest_compileguard.dynamo.regions import CallTrace


def trace_lines(traces: Sequence[CallTrace]) -> Iterator[str]:
    """Give the records of all calls, each with its payload, in torch's own form."""
    formatter = torch._logging._internal.TorchLogsFormatter(trace=True)
    heard = [record for trace in traces for record in trace.records or ()]
    if heard:
        yield from map(formatter.format, _names_told_before(heard))
    yield from map(formatter.format, heard)


def _names_told_before(heard: Sequence[logging.LogRecord]) -> Iterator[logging.LogRecord]:
    """Tell the names of files that the records refer to by number.

    Torch tells each once in a process, which may have been before anybody listened.
    """
    metadata = (getattr(record, "metadata", {}) for record in heard)
    told = {entry["str"][1] for entry in metadata if "str" in entry}
    # A copy: another thread may compile meanwhile.
    for name, number in dict(torch._logging.structured.INTERN_TABLE).items():
        if number not in told:
            yield _record({"str": [name, number]}, like=heard[0])


def _record(metadata: dict[str, object], *, like: logging.LogRecord) -> logging.LogRecord:
    own = ("name", "levelname", "levelno", "pathname", "lineno", "created", "msecs", "process")
    copied = {name: getattr(like, name) for name in own}
    return logging.makeLogRecord({**copied, "metadata": metadata, "payload": None})
