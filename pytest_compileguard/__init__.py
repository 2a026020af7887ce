"""A pytest plugin that guards ``torch.compile``: graph breaks, recompiles, parity, speed."""

from __future__ import annotations

__version__ = "0.1.0"

from pytest_compileguard.guard import CompileGuard, GuardedCallable
from pytest_compileguard.spec import compile_check

__all__ = ["CompileGuard", "GuardedCallable", "compile_check"]
