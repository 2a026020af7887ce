"""Whether compiled code is to be wrong: what tests plant, and their targets ask for."""

from __future__ import annotations

WRONG: list[None] = []
