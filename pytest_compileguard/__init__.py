"""A pytest plugin that guards ``torch.compile``: graph breaks, recompiles, parity, speed."""

from __future__ import annotations

from pytest_compileguard.spec import compile_check

__version__ = "0.1.0"

__all__ = ["compile_check"]
