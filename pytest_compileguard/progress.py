"""Says on a terminal what takes long, and for how long; nothing of it stays there.

Compiling a large model takes minutes in which pytest prints nothing. The words stand behind
what pytest wrote in the current line and are erased before it writes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

DELAY_S = 3.0
"""What is through earlier is not worth a word."""
_TICK_S = 1.0
_LEAST_ROOM = 12


class Screen(Protocol):
    """Where progress is shown: a terminal that a person looks at."""

    def room(self) -> int:
        """Columns that are free in the current line."""

    def write(self, text: str) -> None:
        """Write at the cursor, at once."""


class Progress:
    """Shows one stage at a time; without a screen it does nothing."""

    def __init__(self, screen: Screen | None = None) -> None:
        self._screen = screen

    @contextmanager
    def counting(self, what: str) -> Iterator[None]:
        """Show what is being done and the seconds it has taken, once it takes long."""
        if self._screen is None:
            yield
            return
        done = threading.Event()
        show = _Line(self._screen).show
        ticker = threading.Thread(target=_tick, args=(show, what, done), daemon=True)
        ticker.start()
        try:
            yield
        finally:
            done.set()
            ticker.join()

    @contextmanager
    def said(self, what: str) -> Iterator[None]:
        """Show what is being done from its start; nothing wakes up meanwhile to disturb it."""
        if self._screen is None:
            yield
            return
        line = _Line(self._screen)
        line.show(what)
        try:
            yield
        finally:
            line.show("")


class _Line:
    """The words at the end of the current line of a screen."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._shown = 0

    def show(self, text: str) -> None:
        """Put a text in the place of the last one; an empty one leaves nothing."""
        room = self._screen.room()
        if room <= 0:  # the terminal is somebody else's now
            self._shown = 0
            return
        # One column a character, whatever the name of a test is made of.
        words = text.encode("ascii", "replace").decode("ascii")
        fitting = f" {words}"[:room] if text and room >= _LEAST_ROOM else ""
        back = f"\x1b[{self._shown}D" if self._shown else ""
        if back or fitting:
            self._screen.write(f"{back}\x1b[K{fitting}")
        self._shown = len(fitting)


def _tick(show: Callable[[str], None], what: str, done: threading.Event) -> None:
    start_s = time.monotonic()
    wait_s = DELAY_S
    while not done.wait(wait_s):
        show(f"{what}, {time.monotonic() - start_s:.0f} s")
        wait_s = _TICK_S
    show("")
