"""Hooks and callbacks that keep what they see in globals of this file."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

COUNT = 0
SEEN: dict[str, torch.Tensor] = {}
LOG: list[str] = []
KINDS: dict[str, object] = {}
REGISTRY: dict[str, nn.Module] = {}
PARAMETER = nn.Parameter(torch.ones(3))
RESIZED = torch.zeros(2)
Hook = Callable[..., Any]


class Meter(dict[str, int]):
    """A container that keeps a number beside its items."""

    total = 0


METER = Meter()


def forget() -> None:
    global COUNT  # noqa: PLW0603  # what is tested
    COUNT = 0
    RESIZED.resize_(2).zero_()
    KINDS.clear()
    METER.clear()
    METER.total = 0
    REGISTRY.clear()
    SEEN.clear()
    LOG.clear()


def state() -> tuple[int, dict[str, torch.Size], list[str]]:
    return COUNT, {name: tensor.shape for name, tensor in SEEN.items()}, list(LOG)


def count(*_: object) -> None:
    global COUNT  # noqa: PLW0603  # what is tested
    COUNT += 1


def keep(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
    SEEN["last"] = output.detach()


def naming(name: str) -> Hook:
    def hook(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        SEEN[name] = output.detach()
        LOG.append(name)

    return hook


def scaling(factor: float, *_: object) -> None:
    LOG.append(f"scaled by {factor}")


def planted_count(*_: object) -> None:
    global COUNT  # noqa: PLW0603  # what is tested
    COUNT += 2 if torch.compiler.is_compiling() else 1


def planted_keep(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
    SEEN["last"] = output.detach() * (2 if torch.compiler.is_compiling() else 1)


def called_back(x: torch.Tensor) -> torch.Tensor:
    LOG.append("called back")
    return x * 2


HOOKS: dict[str, Hook] = {
    "count": count,
    "keep": keep,
    "naming": naming("layer"),
    "partial": functools.partial(scaling, 2.0),
}


def planted_beside_registry(*_: object) -> None:
    global COUNT  # noqa: PLW0603  # what is tested
    COUNT += 100 if REGISTRY and COUNT and torch.compiler.is_compiling() else 1


def counted_beside_registry(*_: object) -> None:
    global COUNT  # noqa: PLW0603  # what is tested
    if REGISTRY:
        COUNT += 1


def planted_kind(*_: object) -> None:
    KINDS["list"] = [1, 2] if torch.compiler.is_compiling() else (1, 2)


def resize(*_: object) -> None:
    RESIZED.resize_(RESIZED.numel() + 1).fill_(1)


def metering(*_: object) -> None:
    METER.total += 1
    METER["calls"] = METER.total


def planted_metering(*_: object) -> None:
    METER.total += 2 if torch.compiler.is_compiling() else 1


def counting(x: torch.Tensor, by: int) -> torch.Tensor:
    global COUNT  # noqa: PLW0603  # what is tested
    COUNT += by
    return x * 2


def passing_on(function: Hook) -> Hook:
    """Decorate a function of another file."""

    @functools.wraps(function)
    def on(*args: Any) -> Any:
        return function(*args)

    return on
