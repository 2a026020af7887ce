"""Keeps records out of pytest's log capture, which takes everything that torch says.

Newer pytest attaches its handlers to logs that don't propagate, too; so what counts is
the handlers, not the logs.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

_TRACE = "torch.__trace"


@contextlib.contextmanager
def all_records_hidden() -> Iterator[None]:
    """Hide every record, as long as a shadow call runs."""
    with _filtered(_reject):
        yield


@contextlib.contextmanager
def trace_hidden() -> Iterator[None]:
    """Hide torch's structured trace: each event would be an empty line under a failure."""
    with _filtered(_is_no_trace):
        yield


def _reject(_record: logging.LogRecord) -> bool:
    return False


def _is_no_trace(record: logging.LogRecord) -> bool:
    return record.name != _TRACE


@contextlib.contextmanager
def _filtered(keeps: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if type(handler).__module__.startswith("_pytest.")
    ]
    for handler in handlers:
        handler.addFilter(keeps)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(keeps)
