"""Settings that other modules set by name."""

from __future__ import annotations

from typing import Any

A: Any = 0
B: Any = [0]


def put(module: Any, name: str, value: Any) -> None:
    setattr(module, name, value)
