"""A pytest plugin that guards ``torch.compile``: graph breaks, recompiles, parity, speed."""

from __future__ import annotations

__version__ = "0.1.0"

from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.guarded import GuardedCallable, GuardedTraining
from pytest_compileguard.spec import compile_check

__all__ = ["CompileGuard", "GuardedCallable", "GuardedTraining", "compile_check"]
