"""Tells whether both sides of a call raise the same."""

from __future__ import annotations

import re

# Torch words what an operator raised on the tensors that it traces with in its own error.
_WRAPPED = re.compile(r"\bgot (\w+)\(")


def same_error(actual: Exception | None, expected: Exception | None) -> bool:
    """Whether the types agree; of an error that torch wrapped, the type of what it wrapped."""
    if actual is None or expected is None:
        return actual is expected
    if type(actual) is type(expected):
        return True
    if type(actual).__name__ != "TorchRuntimeError":
        return False
    kinds = {type(error).__name__ for error in (actual.__cause__, actual.__context__) if error}
    kinds |= set(_WRAPPED.findall(str(actual)))
    return type(expected).__name__ in kinds
