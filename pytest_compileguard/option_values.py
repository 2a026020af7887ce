"""Reads the values of options, and refuses those that are not allowed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_compileguard.errors import OptionError


class BareOrChosen(argparse.Action):
    """Store what stands behind the ``=``, or the constant where there is no ``=``.

    Each form is a name of the option, whole: with an optional value argparse would take the
    path that follows a bare option for its value.
    """

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        _values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        chosen = (option_string or "").partition("=")[2]
        setattr(namespace, self.dest, chosen or self.const)


def read_choice(choices: Sequence[str], value: str, origin: str) -> str:
    """Take one of the values that are allowed.

    Raises:
        OptionError: It is another one.
    """
    if value not in choices:
        raise OptionError(f"{origin}: {value!r}: must be one of {', '.join(choices)}")
    return value


def _text(value: str, _origin: str, _base: Path) -> str:
    return value


def _path(value: str, _origin: str, base: Path) -> Path:
    return base / Path(value).expanduser()


def _number(value: str, origin: str, _base: Path) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise OptionError(f"{origin}: {value!r}: must be a finite number above 0")
    return number


def _count(value: str, origin: str, _base: Path) -> int:
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise OptionError(f"{origin}: {value!r}: must be a whole number, 1 or more")
    return int(value)


READERS: dict[str, Callable[[str, str, Path], Any]] = {
    "text": _text,
    "path": _path,
    "number": _number,
    "count": _count,
}
"""By kind of option: what reads a value, given where it came from and what paths relate to."""
