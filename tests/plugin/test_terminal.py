"""What a person reads in the terminal, whole, as real runs print it."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from pytest_compileguard import progress
from pytest_compileguard.progress import Progress
from tests.conftest import RunSuite
from tests.golden_text import assert_golden

SUITE = """
import pytest
from library import double_relu, printing
from torch import ones

from pytest_compileguard import compile_check

pytestmark = compile_check(backend="aot_eager", max_graph_breaks=0, max_recompiles=0)


def test_breaks(compileguard):
    compileguard(printing)(ones(3))


@pytest.mark.parametrize("sizes", [(2, 3, 4), (5, 5)])
def test_sizes(compileguard, sizes):
    guarded = compileguard(double_relu, dynamic=False)
    for size in sizes:
        guarded(ones(size))


def test_differs(compileguard):
    def off_by_one(graph, inputs):
        return lambda *args: tuple(out + 1 for out in graph(*args))

    compileguard(double_relu, backend=off_by_one)(ones(3))


@pytest.mark.skip(reason="no such device")
def test_skipped(compileguard):
    pass


@compile_check(min_speedup=1.2)
def test_untimed(compileguard):
    compileguard(double_relu)(ones(3))


@pytest.mark.xfail(strict=True)
def test_known(compileguard):
    compileguard(printing)(ones(3))
"""


def ours(text: str, *, upto: str = "= short test summary info =") -> str:
    """Take the failures and the summary: without pytest's own head and foot."""
    start = re.search(r"^=+ (FAILURES|compileguard) =+$", text, re.MULTILINE)
    assert start is not None, text
    return text[start.start() :].partition(upto)[0].rpartition("\n")[0]


@pytest.mark.parametrize(
    ("name", "columns", "arguments"),
    (
        ("terminal", 100, ()),
        ("terminal-quiet", 100, ("-q",)),
        ("terminal-verbose", 120, ("-v", "--tb=no")),
        ("terminal-narrow", 44, ("--tb=no",)),
        ("terminal-strict", 80, ("--compileguard-strict", "-k", "untimed")),
        ("terminal-colours", 80, ("--color=yes", "--tb=no")),
    ),
)
def test_terminal(
    run_suite: RunSuite,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    columns: int,
    arguments: tuple[str, ...],
) -> None:
    for variable in ("PY_COLORS", "NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    text = str(run_suite(SUITE, *arguments).result.stdout)
    if name == "terminal-colours":
        text = text[text.rindex("\n", 0, text.index("= compileguard =")) + 1 :]
        text = text.partition("= short test summary info =")[0].rpartition("\n")[0]
        text = text.replace("\x1b", "<ESC>")
    else:
        text = ours(text)
    assert_golden(f"{name}.txt", text)


def test_no_colours_where_pytest_shows_none(run_suite: RunSuite) -> None:
    assert "\x1b" not in run_suite(SUITE, "--color=no").text


def test_letters_and_durations_of_pytest_keep_working(run_suite: RunSuite) -> None:
    run = run_suite(SUITE, "-rA", "--durations=0", "-vv")

    summary = run.text.partition("= short test summary info =")[2]
    found = re.findall(r"^(PASSED|FAILED|XFAIL|SKIPPED)", summary, re.MULTILINE)
    assert sorted(found) == ["FAILED"] * 3 + ["PASSED"] * 2 + ["SKIPPED", "XFAIL"]
    assert re.search(r"FAILED test_suite.py::test_breaks - .*1 of 4 checks failed", summary)
    assert re.search(r"^\d+\.\d+s call +test_suite.py::test_breaks$", run.text, re.MULTILINE)


LIBRARY_WITH_UMLAUT = """
def größe(x):
    y = x.sin()
    print("Größe → ☃")
    return y.cos()
"""


# --- progress --------------------------------------------------------------------------------


class Screen:
    """A screen that keeps what is written to it."""

    def __init__(self, room: int = 40) -> None:
        self.text = io.StringIO()
        self._room = room

    def room(self) -> int:
        return self._room

    def write(self, text: str) -> None:
        self.text.write(text)


def test_progress_counts_seconds_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY_S", 0.01)
    screen = Screen()
    with Progress(screen).counting("compiling test_größe"):
        wait_until(lambda: "0 s" in screen.text.getvalue())

    shown = " compiling test_gr??e, 0 s"
    assert screen.text.getvalue() == f"\x1b[K{shown}\x1b[{len(shown)}D\x1b[K"


def test_progress_is_silent_while_nothing_takes_long() -> None:
    screen = Screen()
    with Progress(screen).counting("compiling"):
        pass
    with Progress().counting("compiling"), Progress().said("timing"):
        pass
    with Progress(Screen(room=5)).said("timing test_a"):
        pass
    assert screen.text.getvalue() == ""


def test_progress_says_what_takes_a_known_time() -> None:
    screen = Screen(room=12)
    before = threading.active_count()
    with Progress(screen).said("timing test_with_a_long_name"):
        assert threading.active_count() == before  # nothing that could disturb the samples
        assert screen.text.getvalue() == "\x1b[K timing test"
    assert screen.text.getvalue().endswith("\x1b[12D\x1b[K")


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never happened")


SLOW = """
import time
from library import größe
from torch import ones

def slow(graph, inputs):
    time.sleep(0.5)
    return graph

def test_größe(compileguard):
    compileguard(größe, backend=slow, max_graph_breaks=0)(ones(3))
"""
IMPATIENT = "from pytest_compileguard import progress\nprogress.DELAY_S = 0.1\n"


def test_a_terminal_that_knows_ascii_only(pytester: pytest.Pytester, run_suite: RunSuite) -> None:
    """It shows progress, which a log does not, and escapes what it can't print."""
    pytester.makeconftest(IMPATIENT)
    assert "compiling test_gr" not in run_suite(SLOW, library=LIBRARY_WITH_UMLAUT).text

    master, slave = pty.openpty()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no"]
    environment = {**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "ascii"}
    child = subprocess.Popen(
        [*command, "--compileguard-no-timing"],
        cwd=pytester.path,
        stdout=slave,
        stderr=slave,
        env=environment,
    )
    os.close(slave)
    shown = read_all(master).decode("ascii")
    assert child.wait() == 1, shown
    assert re.search(r"test_suite.py \x1b\[K compiling test_gr\?\?e, \d s", shown)
    assert "timing test_gr" not in shown
    lines = shown.splitlines()
    assert r"test_gr\xf6\xdfe: graph breaks 1 > 0 (1 of 4 checks failed)" in lines
    assert r'    library.py:3 in gr\xf6\xdfe    print("Gr\xf6\xdfe \u2192 \u2603")' in lines
    assert "1 check: 1 failed" in lines


def read_all(descriptor: int) -> bytes:
    parts = []
    try:
        while part := os.read(descriptor, 65536):
            parts.append(part)
    except OSError:  # how Linux tells that the other end is closed
        pass
    os.close(descriptor)
    return b"".join(parts)
