"""Keeps what a shadow call says from the test, which must see the output of one call only."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from pytest_compileguard.log_capture import all_records_hidden


@contextlib.contextmanager
def silenced(*, compiling: bool = False) -> Iterator[None]:
    """Discard prints and warnings, and keep log records from pytest's capture.

    A warning that a filter turns into an error still is one; but while ``compiling``, one
    that torch's own code warns itself of is not: it says nothing of the code under test.
    """
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
        stack.enter_context(contextlib.redirect_stdout(sink))
        stack.enter_context(contextlib.redirect_stderr(sink))
        stack.enter_context(warnings.catch_warnings(record=True))
        if compiling:
            warnings.filterwarnings("ignore", module=r"torch(\.|$)")
        stack.enter_context(all_records_hidden())
        yield
