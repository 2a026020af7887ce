"""Keeps what a shadow call says from the test, which must see the output of one call only."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Discard prints and warnings, and keep log records from pytest's capture.

    A warning that a filter turns into an error still is one.
    """
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123  # a device
        stack.enter_context(contextlib.redirect_stdout(sink))
        stack.enter_context(contextlib.redirect_stderr(sink))
        stack.enter_context(warnings.catch_warnings(record=True))
        for handler in _pytest_handlers():
            handler.addFilter(_reject)
            stack.callback(handler.removeFilter, _reject)
        yield


def _reject(_record: logging.LogRecord) -> bool:
    return False


def _pytest_handlers() -> list[logging.Handler]:
    """Pytest's handlers; the same ones may also be attached to logs that don't propagate."""
    handlers = logging.getLogger().handlers
    return [h for h in handlers if type(h).__module__.startswith("_pytest.")]
