"""Says where the two sides differ."""

from __future__ import annotations

import enum
from typing import Any

import torch

from pytest_compileguard.reproduction.program.calling import AFTER, IN_BACKWARD
from pytest_compileguard.reproduction.program.settings import SETTINGS

ABSENT = object()
RAISED = ("exception", IN_BACKWARD)
PLAIN = (bool, int, str, bytes, type(None), set, frozenset, enum.Enum, torch.dtype, torch.device)


def results(values: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """What a caller gets from any implementation: not its state, nor where results lie."""
    return {
        name: value
        for name, value in values.items()
        if name == "exception"
        or (name.startswith("output") and not name.endswith((AFTER, ".grad")))
        or (name.startswith("argument[") and not name.endswith(".grad"))
        or (name.startswith("gradient of ") and name in others)
    }


def compared(actual: dict[str, Any], expected: dict[str, Any], against: str = "eager") -> list[str]:
    """Say in which values the two sides differ."""
    raised = [name for name in RAISED if name in {**actual, **expected}]
    if any(actual.get(name) != expected.get(name) for name in raised):
        pairs = ((n, actual.get(n, "nothing"), expected.get(n, "nothing")) for n in raised)
        return [f"{n}: compiled raises {a}, {against} raises {e}" for n, a, e in pairs]
    place = "" if against == "eager" else f" against the {against}"
    found = []
    for name in dict.fromkeys([*expected, *actual]):
        pair = actual.get(name, ABSENT), expected.get(name, ABSENT)
        if text := difference(name, *pair, against):
            found.append(f"{name}{place}: {text}")
    return found


def difference(name: str, actual: Any, expected: Any, against: str) -> str:
    """Say how two values differ; empty if they agree, or if nothing can tell."""
    strict = against == "eager"
    tensors = isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor)
    if name.startswith("gradient of ") and expected is None and isinstance(actual, torch.Tensor):
        expected = torch.zeros_like(actual)  # what is no part of a graph may have a gradient of 0
        tensors = True
    if type(actual) is not type(expected) and (not tensors or (strict and is_result(name))):
        return f"compiled {shown(actual)}, {against} {shown(expected)}"
    if tensors and actual.requires_grad != expected.requires_grad:
        return f"requires_grad: compiled {actual.requires_grad}, {against} {expected.requires_grad}"
    if tensors or isinstance(expected, float | complex) or hasattr(expected, "__array__"):
        return far(actual, expected, strides=strict and is_result(name))
    same = not isinstance(expected, PLAIN) or actual == expected
    return "" if same else f"compiled {shown(actual)}, {against} {shown(expected)}"


def is_result(name: str) -> bool:
    """Whether a value is what the call returns, whose form counts."""
    return name.startswith("output") and not name.endswith(AFTER)


def far(actual: Any, expected: Any, *, strides: bool) -> str:
    """Say by how much numbers differ; where the test says nothing, torch.testing decides."""
    tensors = isinstance(expected, torch.Tensor)
    kind = str(expected.dtype) if tensors else "torch.float64"
    rtol, atol = SETTINGS["tolerances"].get(kind, (None, None))
    if tensors:
        strides = strides and expected.layout == torch.strided and expected.numel() > 0
        actual, expected = actual.detach(), expected.detach()
    try:
        torch.testing.assert_close(
            actual, expected, equal_nan=True, check_stride=strides, rtol=rtol, atol=atol
        )
    except AssertionError as error:
        return str(error)
    except (TypeError, ValueError):  # no numbers
        return ""
    return ""


def shown(value: Any) -> str:
    """A value, or of one that takes many lines, its kind."""
    if value is ABSENT:
        return "nothing"
    if isinstance(value, torch.Tensor):
        return f"a {type(value).__name__} of {list(value.shape)}"
    return repr(value) if isinstance(value, (*PLAIN, float, complex)) else type(value).__name__
