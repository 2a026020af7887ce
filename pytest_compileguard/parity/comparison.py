"""Compares one leaf of the compiled side (actual) with that of the eager side (expected).

Values are compared by ``torch.testing.assert_close``, NaN equal to NaN, with its
tolerances by dtype unless the test gives others.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from pytest_compileguard.isolation.storages import is_plain, same_bits
from pytest_compileguard.parity.arrays import in_native_order, is_of_numpy, items_of
from pytest_compileguard.parity.kinds import defines_equality
from pytest_compileguard.parity.tolerance import Tolerance

_PIECE = 2**20
"""Elements that are compared at once: copies of some 80 MB."""
_PLAIN = (bool, int, str, bytes, type(None), torch.dtype, torch.device, torch.Size, type)


_NO_NUMBERS = "SUMm"
"""Kinds of arrays that hold words or times."""
STRIDE = "stride: "
"""Begins what is told of two tensors that differ in nothing else of their form."""


class IncomparableError(Exception):
    """There is no way to tell whether two leaves agree."""


_MOST_ROUNDING_STEPS, _MOST_ROUNDING_SHARE = 1e4, 0.1
"""How far rounding may lead: so many steps of the dtype, and so large a part of the numbers."""


class Difference(NamedTuple):
    """Why two leaves are not the same."""

    kind: str
    """``value``: same form, other numbers; ``kind``: another form altogether."""
    message: str
    rounding: bool = False
    """Whether another order of the same operations could make such a difference."""


def compare(
    actual: Any, expected: Any, tolerance: Tolerance, *, form: bool = True
) -> Difference | None:
    """Compare two leaves; ``form`` includes strides and ``requires_grad``.

    Raises:
        IncomparableError: There is no way to tell whether they agree.
    """
    if actual is expected and not isinstance(expected, torch.Tensor):
        return None
    if isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
        judge = _nested if expected.is_nested else _values
        return _form(actual, expected, strict=form) or judge(actual, expected, tolerance)
    if type(actual) is not type(expected):
        names = type(actual).__qualname__, type(expected).__qualname__
        return Difference("kind", f"compiled gives {names[0]}, eager gives {names[1]}")
    if is_of_numpy(actual):
        return _arrays(items_of(actual), items_of(expected), tolerance)
    if isinstance(actual, float | complex):
        return _numbers(actual, expected, tolerance)
    return _others(actual, expected)


def _form(actual: torch.Tensor, expected: torch.Tensor, *, strict: bool) -> Difference | None:
    if strict and type(actual) is not type(expected):
        names = type(actual).__name__, type(expected).__name__
        return Difference("kind", f"type: compiled {names[0]}, eager {names[1]}")
    for name in ("is_nested", "dtype", "shape", "device", "layout", "requires_grad"):
        if name == "shape" and expected.is_nested:
            # Each jagged tensor has a length of its own, made up; others have no shape.
            a, e = [actual.size(0)], [expected.size(0)]
        else:
            a, e = getattr(actual, name), getattr(expected, name)
        if a != e:
            plain = (list(a), list(e)) if name == "shape" else (a, e)
            return Difference("kind", f"{name}: compiled {plain[0]}, eager {plain[1]}")
    if strict and expected.layout == torch.strided and not expected.is_nested:
        a, e = _visible_strides(actual), _visible_strides(expected)
        if a != e:
            return Difference(
                "kind", f"{STRIDE}compiled {actual.stride()}, eager {expected.stride()}"
            )
    return None


def _nested(
    actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance
) -> Difference | None:
    """Compare the parts that nested tensors are made of."""
    parts = _parts(actual)
    for name, part in _parts(expected).items():
        if found := compare(parts[name], part, tolerance, form=False):
            return found._replace(message=f"{name}: {found.message}")
    return None


def _parts(nested: Any) -> dict[str, torch.Tensor]:
    if nested.layout == torch.jagged:
        return {"offsets": nested.offsets(), "values": nested.values()}
    return {f"part {index}": part for index, part in enumerate(nested.unbind())}


def _visible_strides(tensor: torch.Tensor) -> list[int]:
    """Strides of the dimensions that have any: those of size 1 are never used."""
    if tensor.numel() == 0:
        return []
    return [s for n, s in zip(tensor.size(), tensor.stride(), strict=True) if n > 1]


def _values(
    actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance
) -> Difference | None:
    rtol, atol = tolerance.for_dtype(expected.dtype)
    actual, expected = _computable(actual), _computable(expected)
    if _are_one(actual, expected):
        return None
    pair = actual.detach(), expected.detach()
    try:
        return _difference(*pair, rtol, atol)
    except NotImplementedError:
        return Difference("value", f"other bits, of {expected.dtype}, which has no arithmetic")


def _difference(
    actual: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float
) -> Difference | None:
    try:
        for a, e in pieces(actual, expected):
            torch.testing.assert_close(
                a, e, rtol=rtol, atol=atol, equal_nan=True, check_stride=False
            )
    except AssertionError as error:
        message = _word(actual, expected, rtol, atol, str(error))
        return Difference("value", message, _may_be_rounding(actual, expected))
    return None


def _computable(tensor: torch.Tensor) -> torch.Tensor:
    """Give numbers of 8 bits, and complex ones of 16, in a type that has arithmetic."""
    if tensor.dtype == torch.complex32:
        return tensor.detach().to(torch.complex64)
    return tensor.detach().to(torch.float32) if "float8" in str(tensor.dtype) else tensor


def _may_be_rounding(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether the difference is small beside the numbers, as rounding that piles up is."""
    dtype = expected.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        return False
    if actual.layout != torch.strided or actual.is_quantized or actual.is_nested:
        return True  # there is no telling
    greatest, scale = 0.0, 0.0
    for a, e in pieces(actual, expected):
        greatest = max(greatest, float(gap(a, e).max()))
        scale = max(scale, float(e.abs().nan_to_num(0, posinf=0).max()))
    return greatest <= _rounding_share(torch.finfo(dtype).eps) * scale


def _rounding_share(eps: float) -> float:
    return min(_MOST_ROUNDING_STEPS * eps, _MOST_ROUNDING_SHARE)


def pieces(
    actual: torch.Tensor, expected: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Views of both that cover them: comparing makes copies, of one piece at a time."""
    for a, e, _ in placed_pieces(actual, expected):
        yield a, e


def placed_pieces(
    actual: torch.Tensor, expected: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor, tuple[int, int]]]:
    """The pieces, each with the dimension that is cut and where it starts there."""
    if not is_plain(expected) or not is_plain(actual) or expected.numel() <= _PIECE:
        yield actual, expected, (0, 0)
        return
    sizes = list(expected.shape)
    longest = sizes.index(max(sizes))
    length = max(1, _PIECE * sizes[longest] // expected.numel())
    for start in range(0, sizes[longest], length):
        cut = (longest, start, min(length, sizes[longest] - start))
        yield actual.narrow(*cut), expected.narrow(*cut), (longest, start)


def _are_one(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether both are the same memory, or the same bits: cheaper than tolerances."""
    if not is_plain(actual) or not is_plain(expected):
        return False
    shared = actual.data_ptr() == expected.data_ptr() and actual.stride() == expected.stride()
    return shared or same_bits(actual, expected)


def _word(
    actual: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float, fallback: str
) -> str:
    """Say how much, where, and both values."""
    if actual.layout != torch.strided or actual.is_quantized or actual.is_nested:
        return re.sub(r"\s+", " ", fallback).strip()
    greatest, index, count = -1.0, [0] * expected.dim(), 0
    for a_piece, e_piece, (cut, start) in placed_pieces(actual, expected):
        gaps = gap(a_piece, e_piece)
        allowed = atol + rtol * e_piece.to(gap_dtype(e_piece)).abs()
        count += int(((gaps > allowed) | (gaps == torch.inf)).sum())
        if float(gaps.max()) > greatest:
            greatest, worst = float(gaps.max()), gaps.argmax().cpu()
            index = [int(i) for i in torch.unravel_index(worst, e_piece.shape)]
            if index:
                index[cut] += start
    a, e = actual[tuple(index)].item(), expected[tuple(index)].item()
    wide = complex if expected.dtype.is_complex else float
    where = f" at index {index}" if index else ""
    difference = abs(wide(a) - wide(e))
    return (
        f"greatest difference {difference:.3g}{where}: compiled {a:.8g}, "
        f"eager {e:.8g}; {count} of {expected.numel()} elements differ "
        f"(rtol {rtol:g}, atol {atol:g})"
    )


def gap_dtype(tensor: torch.Tensor) -> torch.dtype:
    """The widest dtype of the kind, in which differences are taken."""
    return torch.complex128 if tensor.dtype.is_complex else torch.float64


def gap(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Absolute differences; infinite where exactly one is NaN, or infinities disagree."""
    wide = gap_dtype(expected)
    a, e = actual.to(wide), expected.to(wide)
    same = (a == e) | (a.isnan() & e.isnan())
    gaps = torch.nan_to_num((a - e).abs(), nan=math.inf, posinf=math.inf)
    return torch.where(same, 0.0, gaps)


def _numbers(actual: complex, expected: complex, tolerance: Tolerance) -> Difference | None:
    rtol, atol = tolerance.for_dtype(torch.float64)
    try:
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError:
        # Numbers of Python are mostly taken out of tensors of float32.
        share = _rounding_share(torch.finfo(torch.float32).eps)
        rounding = abs(actual - expected) <= share * abs(expected)
        return Difference("value", f"compiled {actual!r}, eager {expected!r}", rounding)
    return None


def _arrays(actual: Any, expected: Any, tolerance: Tolerance) -> Difference | None:
    """Compare numpy arrays and scalars as tensors, where torch has their dtype."""
    for name in ("dtype", "shape"):
        a, e = getattr(actual, name), getattr(expected, name)
        if a != e:
            return Difference("kind", f"{name}: compiled {a}, eager {e}")
    for name in actual.dtype.names or ():
        if found := _arrays(actual[name], expected[name], tolerance):
            return found._replace(message=f"{name}: {found.message}")
    if actual.dtype.names:
        return None
    if actual.dtype.kind in _NO_NUMBERS:
        same = actual.tobytes() == expected.tobytes()
        return None if same else Difference("value", f"compiled {actual}, eager {expected}")
    try:
        tensors = [torch.as_tensor(in_native_order(value)) for value in (actual, expected)]
    except TypeError:
        raise IncomparableError(f"arrays of {actual.dtype} can't be compared") from None
    return _values(tensors[0], tensors[1], tolerance)


def _others(actual: Any, expected: Any) -> Difference | None:
    kind = type(actual)
    if not isinstance(actual, _PLAIN) and (callable(actual) or not defines_equality(kind)):
        raise IncomparableError(f"values of type {kind.__qualname__} can't be compared")
    equal: object = None
    with contextlib.suppress(Exception):  # any class may refuse in its own way
        equal = actual == expected
    if not isinstance(equal, bool):
        raise IncomparableError(f"values of type {kind.__qualname__} can't be compared")
    if not equal and isinstance(actual, set | frozenset) and _is_unordered(actual, expected):
        raise IncomparableError("objects in a set have no order by which to compare copies")
    return None if equal else Difference("value", f"compiled {actual!r}, eager {expected!r}")


def _is_unordered(actual: frozenset[Any] | set[Any], expected: Any) -> bool:
    """Whether sets of one length hold objects that may be copies of each other."""
    plain = (*_PLAIN, float, complex)
    parts = [*actual, *expected]
    return len(actual) == len(expected) and not all(isinstance(part, plain) for part in parts)
