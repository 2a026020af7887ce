"""What arrays of numpy hold, copied, and how they are given it back in place."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_compileguard.errors import IsolationError


def is_array(value: Any) -> bool:
    """Whether it is an array of numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


@dataclass(frozen=True, slots=True)
class ArrayContent:
    """Values and form of an array at one moment."""

    values: Any
    writeable: bool

    def parts(self) -> list[Any]:
        """The objects in it, if it is one of objects."""
        return self.values.ravel().tolist() if self.values.dtype.hasobject else []

    def shown(self, show: Callable[[Any], Any]) -> Any:
        """What can be compared: of an array of objects, lists of what is shown of each.

        Not whether it is read-only: Dynamo leaves arrays writeable that were not.
        """
        return _mapped(self.values, show) if self.values.dtype.kind == "O" else self.values

    def put_back(self, array: Any) -> None:
        """Give an array its values and its form; the form stays where it is the same."""
        try:
            if array.dtype != self.values.dtype:
                raise IsolationError(_refused(f"type {self.values.dtype}"))
            if array.shape != self.values.shape:
                array.resize(self.values.shape, refcheck=False)
            if not self._is_held_by(array):
                _make_writeable(array)
                array[...] = self.values
            if _is_writeable(array) != self.writeable:
                array.setflags(write=self.writeable)
        except ValueError as error:
            raise IsolationError(_refused(f"shape or flags ({error})")) from error

    def _is_held_by(self, array: Any) -> bool:
        """Whether it holds the very same bits, of objects the same ones."""
        return bool(array.tobytes() == self.values.tobytes())


class LargeArray(int):
    """The checksum of an array that is too large to copy, and whether it may be written to."""

    writeable: bool

    @classmethod
    def of(cls, array: Any, checksum: int) -> LargeArray:
        made = cls(checksum)
        made.writeable = _is_writeable(array)
        return made

    def put_back(self, array: Any) -> None:
        """Give an array its flag: Dynamo lets arrays be written to that were not."""
        if self.writeable:
            _make_writeable(array)
        elif _is_writeable(array):
            array.setflags(write=False)


def flagged_as(array: Any, twin: Any) -> Any:
    """Let a copy of an array be written to only if the array may be: code may ask, or try."""
    if is_array(array) and not _is_writeable(array):
        twin.setflags(write=False)
    return twin


def array_content(array: Any) -> ArrayContent:
    """Copy what an array holds."""
    return ArrayContent(array.copy(), _is_writeable(array))


def _is_writeable(array: Any) -> bool:
    with warnings.catch_warnings():  # numpy warns of those that share items with themselves
        warnings.simplefilter("ignore")
        return bool(array.flags.writeable)


def _mapped(values: Any, show: Callable[[Any], Any]) -> Any:
    if values.ndim == 0:
        return show(values.item())
    return [show(part) if values.ndim == 1 else _mapped(part, show) for part in values]


def _make_writeable(array: Any) -> None:
    """Let an array be written to, though what it is a view of may not be written to itself."""
    if _is_writeable(array):
        return
    if is_array(array.base) and not _is_writeable(array.base):
        _make_writeable(array.base)
        array.setflags(write=True)
        array.base.setflags(write=False)
    else:
        array.setflags(write=True)


def _refused(what: str) -> str:
    return (
        f"an array of numpy that a global holds can't get back the {what} it had before the call: "
        "bind the name to a new array instead, or hand the array in as an argument"
    )
