"""The terminal of a pytest session, where progress is shown."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import pytest

from pytest_compileguard.progress import Progress

_SPARE = 2


def open_progress(config: pytest.Config) -> Progress:
    """Show progress where a person looks on: not in logs, not with ``-q`` or ``-s``.

    To be called while the session starts: later on, output is captured.
    """
    watched = (
        not hasattr(config, "workerinput")
        and config.getoption("verbose", -1) >= 0
        and config.getoption("capture", "no") != "no"  # then the test writes in the same line
        and os.environ.get("TERM", "dumb") != "dumb"
    )
    descriptor = _terminal() if watched else None
    if descriptor is None:
        return Progress()
    config.add_cleanup(lambda: os.close(descriptor))
    return Progress(_TerminalScreen(config, descriptor))


def _terminal() -> int | None:
    """Open the terminal anew, if output goes to one: capturing takes the usual way to it."""
    try:
        descriptor = sys.stdout.fileno()
        return os.dup(descriptor) if os.isatty(descriptor) else None
    except (OSError, ValueError):
        return None


class _TerminalScreen:
    def __init__(self, config: pytest.Config, descriptor: int) -> None:
        self._plugins = config.pluginmanager
        self._descriptor = descriptor

    def room(self) -> int:
        reporter: Any = self._plugins.getplugin("terminalreporter")
        capture: Any = self._plugins.getplugin("capturemanager")
        # While output is not captured, somebody else has the terminal: a debugger.
        if reporter is None or capture is None or not capture.is_globally_capturing():
            return 0
        writer = reporter._tw  # noqa: SLF001  # no public one
        return int(writer.fullwidth - writer.width_of_current_line - _SPARE)

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._descriptor, text.encode("ascii"))
