"""Tells whose code a file is, as a report on a graph break needs it."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import PurePath

from pytest_compileguard.observation import Origin
from pytest_compileguard.source import source_line

_STANDARD_LIBRARY = sysconfig.get_path("stdlib")


def origin(file: str) -> Origin:
    """Tell whose code a file is: torch's, a third party's, a test's, or of the tested package."""
    parts = PurePath(file).parts
    if "site-packages" in parts or "dist-packages" in parts:
        below = parts[max(i for i, part in enumerate(parts) if part.endswith("-packages")) + 1 :]
        return "torch" if below[:1] == ("torch",) else "third party"
    if file.startswith(_STANDARD_LIBRARY):
        return "third party"
    return "test" if _is_rewritten(file) else "package"


def _is_rewritten(file: str) -> bool:
    """Whether pytest rewrote the asserts of a module: it does so for tests and conftests."""
    modules = [m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == file]
    loaders = (getattr(module, "__loader__", None) for module in modules)
    return any(type(loader).__name__ == "AssertionRewritingHook" for loader in loaders)


def is_rewritten_assert(file: str, line: int) -> bool:
    """Whether a line is an assert that pytest rewrote: plain Python would not break there."""
    return source_line(file, line).startswith("assert") and _is_rewritten(file)
