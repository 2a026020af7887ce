"""What the program is told of the call, and how it finds things by name."""

from __future__ import annotations

import importlib
from functools import reduce
from pathlib import Path
from typing import Any

SETTINGS: dict[str, Any] = {}

HERE = Path(__file__).resolve().parent


def imported(place: tuple[str, str]) -> Any:
    """Import ``qualname`` from ``module``."""
    return reduce(getattr, place[1].split("."), importlib.import_module(place[0]))
