"""Names leaves of which every number is NaN on both sides: their agreement says nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from pytest_compileguard.answers import answer
from pytest_compileguard.parity.numbers import has_arithmetic, numbers_of

_MOST_NAMED = 3


def undefined_note(pairs: Iterable[tuple[str, Any, Any]]) -> str:
    """Say of which leaves, given with both sides, no number tells anything; empty: of none."""
    names = [path for path, *sides in pairs if all(map(_is_undefined, sides))]
    if not names:
        return ""
    named = few(names)
    return f"{named}: all numbers are NaN on both sides, so none tells whether they agree"


def few(names: list[str]) -> str:
    """The first few of many names."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _is_undefined(value: Any) -> bool:
    # A subclass of tensors may not know all of this: then it is compared as it was.
    return answer(_all_nan, value, default=False)


def _all_nan(value: Any) -> bool:
    numbers = numbers_of(value)
    if numbers is None or numbers.device.type == "meta" or numbers.numel() == 0:
        return False
    if not (numbers.is_floating_point() or numbers.is_complex()):
        return False
    if not has_arithmetic(numbers.dtype):
        return False
    if numbers.element_size() == 1:
        numbers = numbers.to(torch.float32)  # torch has no isnan of these
    first = numbers[(0,) * numbers.dim()]
    return bool(first.isnan()) and bool(numbers.isnan().all())
