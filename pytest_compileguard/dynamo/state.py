"""torch's process-wide state: what hinders a check, and what a check asks of it."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Iterable
from types import CodeType
from typing import NamedTuple

import torch
import torch._dynamo.config
import torch._dynamo.utils
import torch.overrides
import torch.utils._device
from torch._dynamo import eval_frame

from pytest_compileguard.answers import attribute


def forget_compiled_code() -> None:
    """Drop everything that was compiled in this process, as a new process would start."""
    torch.compiler.reset()


def is_compiled_code(codes: Iterable[CodeType]) -> bool:
    """Whether Dynamo keeps compiled code for any of these."""
    return any(eval_frame._debug_get_cache_entry_list(code) for code in codes)


# By a module of torch, Dynamo would compile what reads it, where a log calls that.
_CLEARED_BY_RESET = torch._dynamo.utils.guard_failures


class ResetWatch:
    """Tells whether torch dropped the code it had compiled since this was made."""

    def __init__(self) -> None:
        # Whoever resets torch clears this table; no code of torch looks a key of ours up.
        _CLEARED_BY_RESET[self] = []

    @property
    def was_reset(self) -> bool:
        return self not in _CLEARED_BY_RESET

    def forget(self) -> None:
        """Leave no trace in torch's table."""
        _CLEARED_BY_RESET.pop(self, None)


def load_backend(backend: object) -> None:
    """Import inductor ahead of its first use: what it warns of while loading is nobody's doing."""
    if backend in (None, "inductor"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("torch._inductor.compile_fx")


class NewTensorsOn(NamedTuple):
    """On which device new tensors lie, as Dynamo's guards tell it apart; ``None``: not set.

    ``torch.get_default_device`` names an index even where none was given, which is another device.
    """

    by_default: torch.device | None
    """By ``torch.set_default_device``."""
    within: torch.device | None
    """By ``with torch.device(...)``, which comes first."""


def new_tensors_on() -> NewTensorsOn:
    """Read what is in force now."""
    by_default = torch.utils._device.CURRENT_DEVICE
    modes = torch.overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    set_by = [m.device for m in modes if isinstance(m, torch.utils._device.DeviceContext)]
    within = set_by if by_default is None else set_by[1:]  # what is set stands at the bottom
    return NewTensorsOn(by_default, within[-1] if within else None)


def hindrances(target: object) -> tuple[str, ...]:
    """Name what keeps ``torch.compile`` from compiling, or from being observed, right now."""
    found = []
    if torch._dynamo.config.disable:  # torch reads TORCH_COMPILE_DISABLE only when it is imported
        found.append("torch.compile is switched off (TORCH_COMPILE_DISABLE or config.disable)")
    if os.environ.get("TORCHDYNAMO_DISABLE") == "1":
        found.append("torch.compile is switched off by TORCHDYNAMO_DISABLE=1")
    code = getattr(torch.compile, "__code__", None)
    if code is None or code.co_filename != torch.__file__:
        found.append("torch.compile is patched, so what it gives is not what users run")
    found += _foreign_stance()
    if attribute(target, "_torchdynamo_disable") is True:
        found.append("the target is marked with torch.compiler.disable")
    wrapped = attribute(target, "_orig_mod")
    if attribute(wrapped, "_compiled_call_impl") is not None:
        found.append(
            "torch.compile has no effect on a module that is compiled in place: its own "
            "compile() holds"
        )
    if modes := torch.utils._python_dispatch._get_current_dispatch_mode_stack():
        names = ", ".join(sorted({type(mode).__name__ for mode in modes}))
        found.append(f"a torch dispatch mode is active ({names})")
    return tuple(found)


def _foreign_stance() -> list[str]:
    """Name what a stance changes: also one that compiles hides recompiles, or the backend."""
    found, current = [], eval_frame._stance
    if current.stance != "default":
        found.append(f"torch.compiler.set_stance({current.stance!r}) is active")
    if current.backend is not None:
        found.append(f"torch.compiler.set_stance(force_backend={current.backend!r}) is active")
    if current.skip_guard_eval_unsafe:
        found.append("torch.compiler.set_stance(skip_guard_eval_unsafe=True) is active")
    return found
