"""Tells which of the process's random generators two sides of a call left in different states."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_compileguard.isolation.ambient import RandomState


def generators_that_differ(eager: RandomState, compiled: RandomState) -> Iterator[str]:
    """What is told of each beside "random state"; nothing of torch's."""
    if not compiled.same_tensors_drawn(eager):
        yield ""
    if compiled.python != eager.python:
        yield " of Python"
    known = compiled.numpy is not None and eager.numpy is not None  # else nobody imported it
    if known and _of_numpy(compiled) != _of_numpy(eager):
        yield " of numpy"


def _of_numpy(state: RandomState) -> tuple[object, ...]:
    """The state in a form that has equality."""
    return tuple(part.tobytes() if hasattr(part, "tobytes") else part for part in state.numpy)
