"""Tells whose code a file is, as a report on a graph break needs it."""

from __future__ import annotations

import itertools
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import PurePath

from pytest_compileguard.observation import CodeLine, Origin
from pytest_compileguard.source import source_line

_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_THIS_PACKAGE = str(PurePath(__file__).parent)
StackLine = tuple[str, int, str]
"""File, line and function of one entry of a stack."""


def origin(file: str) -> Origin:
    """Tell whose code a file is: torch's, a third party's, a test's, or of the tested package."""
    return _others(file) or ("test" if _is_rewritten(file) else "package")


def is_users(file: str) -> bool:
    """Whether a file is of the tested package or of its tests, so that its owner can edit it."""
    return not file.startswith(("<", "?")) and _others(file) is None


def calling_lines(stack: Sequence[StackLine]) -> tuple[CodeLine, ...]:
    """Find the lines of the user's own code, innermost first, in a stack that ends innermost.

    What stands before the last line of this package is the test that made the call: it
    leads to everything, and so explains nothing.
    """
    below = itertools.takewhile(lambda entry: not _is_ours(entry), reversed(stack))
    return tuple(dict.fromkeys(_code_line(*entry) for entry in below if is_users(entry[0])))


def nearest_line(stack: Sequence[StackLine]) -> CodeLine | None:
    """Find the innermost line of the user's own code, the line of the test if there is no other."""
    own = (entry for entry in reversed(stack) if is_users(entry[0]))
    return next((_code_line(*entry) for entry in own), None)


def _is_ours(entry: StackLine) -> bool:
    return entry[0].startswith(_THIS_PACKAGE)


def _code_line(file: str, line: int, function: str) -> CodeLine:
    return CodeLine(file=file, line=line, function=function, source=source_line(file, line))


def _others(file: str) -> Origin | None:
    parts = PurePath(file).parts
    if "site-packages" in parts or "dist-packages" in parts:
        below = parts[max(i for i, part in enumerate(parts) if part.endswith("-packages")) + 1 :]
        return "torch" if below[:1] == ("torch",) else "third party"
    if file.startswith((_STANDARD_LIBRARY, _THIS_PACKAGE)):
        return "third party"
    return None


def _is_rewritten(file: str) -> bool:
    """Whether pytest rewrote the asserts of a module: it does so for tests and conftests."""
    modules = [m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == file]
    loaders = (getattr(module, "__loader__", None) for module in modules)
    return any(type(loader).__name__ == "AssertionRewritingHook" for loader in loaders)


def is_rewritten_assert(file: str, line: int) -> bool:
    """Whether a line is an assert that pytest rewrote: plain Python would not break there."""
    return source_line(file, line).startswith("assert") and _is_rewritten(file)


def module_names(file: str) -> frozenset[str]:
    """Give the names under which a file is imported, or would be from where Python searches."""
    modules = [m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == file]
    names = {str(module.__name__) for module in modules}
    path = PurePath(file).with_suffix("")
    roots = [PurePath(root) for root in sys.path if root and path.is_relative_to(root)]
    if roots:
        below = path.relative_to(max(roots, key=lambda root: len(root.parts))).parts
        names.add(".".join(below[:-1] if below[-1:] == ("__init__",) else below))
    return frozenset(names)
