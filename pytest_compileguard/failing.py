"""Fails a test by what its checks found, as the test says that failures are to be taken."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest


def fail(item: pytest.Item, problem: str) -> NoReturn:
    """End the call phase of a test whose body is through."""
    if _succeeded_unexpectedly(item):
        # unittest saw the body alone. pytest takes what it told over what is raised here.
        item._excinfo.clear()  # type: ignore[attr-defined]  # noqa: SLF001  # no public name
        pytest.xfail(problem)
    pytest.fail(problem, pytrace=False)


def _succeeded_unexpectedly(item: pytest.Item) -> bool:
    """Whether ``unittest.expectedFailure`` fails the test since its body did not fail."""
    marked = (getattr(item, "obj", None), getattr(item, "cls", None))
    if not any(getattr(one, "__unittest_expecting_failure__", False) for one in marked):
        return False
    told: list[Any] = getattr(item, "_excinfo", None) or []
    return len(told) == 1 and isinstance(getattr(told[0], "value", None), pytest.fail.Exception)
