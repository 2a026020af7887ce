"""Tells whether the eager copy of a call is that call: else it proves nothing of it."""

from __future__ import annotations

import contextlib

import torch

from pytest_compileguard.parity.comparison import IncomparableError, compare
from pytest_compileguard.parity.leaves import leaves_of
from pytest_compileguard.parity.precision import within_precision
from pytest_compileguard.parity.side import Side
from pytest_compileguard.parity.tolerance import Tolerance
from pytest_compileguard.shadow.call import ShadowCall

_MOST_NAMED = 3


def why_not_isolated(expected: Side, made: ShadowCall) -> str | None:
    """Say what the eager copy does other than the real call: then it proves nothing of it."""
    if type(expected.error) is not type(made.error):
        return (
            f"a copy of the call {_outcome(expected.error)} where the call itself "
            f"{_outcome(made.error)}: the target can't be isolated{_first_imports(made)}"
        )
    if differs := copy_differs(expected, made):
        why = _first_imports(made) or (
            "; it may keep state in globals or classes that are not copied"
        )
        return (
            f"a copy of the call computes something else ({differs}): the target can't be "
            f"isolated{why}"
        )
    return None


def _first_imports(made: ShadowCall) -> str:
    """Say that a call imports modules, whose code did to others what is put back for the copy.

    It may have filled a table that the call reads: nothing tells that from what the call does.
    """
    if not made.imported:
        return ""
    names, more = ", ".join(made.imported[:_MOST_NAMED]), len(made.imported) - _MOST_NAMED
    names += f" and {more} more" if more > 0 else ""
    them = "it" if len(made.imported) == 1 else "them"
    return (
        f"; the call imports {names} for the first time, whose code runs once, so not for the "
        f"copy: import {them} before the call"
    )


def _outcome(error: Exception | None) -> str:
    return "returns" if error is None else f"raises {type(error).__name__} ({error})"


def copy_differs(expected: Side, made: ShadowCall) -> str | None:
    """Say where the eager copy differs from the real call: then it proves nothing of it."""
    if made.error is not None:
        return None
    real = leaves_of(made.value, "output", objects=True)
    if [leaf.path for leaf in real] != [leaf.path for leaf in expected.outputs]:
        return "its result has another structure"
    for own, copied in zip(real, expected.outputs, strict=True):
        found = None
        with contextlib.suppress(IncomparableError):
            found = compare(copied.value, own.value, Tolerance(None, None), form=False)
        inexact = (
            found is not None and found.kind == "value" and isinstance(own.value, torch.Tensor)
        )
        if inexact and within_precision(copied.value.detach(), own.value.detach()):
            continue  # some kernels add in another order each time
        if found is not None:
            return f"{own.path}: {found.message}".replace("compiled", "the copy").replace(
                "eager", "the call"
            )
    return None
