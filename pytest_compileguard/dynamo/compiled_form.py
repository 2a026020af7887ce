"""Recognises what is compiled already, and how to compile a copy of it the same way."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import eval_frame

from pytest_compileguard.errors import UnsupportedTorchError
from pytest_compileguard.observation import Record


class InPlace(Record):
    """How to compile a copy of a target as the target itself was compiled."""

    plain: Any
    """The target without its compiled wrapper."""
    compile: Callable[[Any], Any]


def compiled_form(target: Any) -> InPlace | None:
    """Recognise the result of ``torch.compile``, or a module after ``module.compile()``.

    Raises:
        UnsupportedTorchError: It is compiled in a way that this torch does not let us repeat.
    """
    if isinstance(target, eval_frame.OptimizedModule):
        context = getattr(target, "dynamo_ctx", None)
        return InPlace(plain=target._orig_mod, compile=_required(context, target))
    if isinstance(target, types.MethodType) and compiled_form(target.__func__) is not None:
        return InPlace(plain=target, compile=lambda method: method)  # its function is compiled
    if isinstance(target, types.FunctionType) and hasattr(target, "_torchdynamo_orig_callable"):
        if getattr(target, "_torchdynamo_disable", False):
            return None
        return InPlace(
            plain=target._torchdynamo_orig_callable, compile=_required(_context(target), target)
        )
    if isinstance(target, torch.nn.Module) and target._compiled_call_impl is not None:
        context = _required(_context(target._compiled_call_impl), target)
        return InPlace(plain=target, compile=lambda module: context(module._call_impl))
    return None


def _context(wrapper: Any) -> Any:
    """Find the compile context that ``torch.compile`` keeps in its wrapper's closure."""
    cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__ or (), strict=False))
    return cells["self"].cell_contents if "self" in cells else None


def _required(context: Any, target: object) -> Callable[[Any], Any]:
    if not callable(context):
        raise UnsupportedTorchError(
            f"{type(target).__name__} is already compiled in a way that torch "
            f"{torch.__version__} does not let us repeat on a copy; pass the plain target"
        )
    if getattr(context, "_package", None) is not None:
        raise UnsupportedTorchError(
            f"{type(target).__name__} was compiled with caching_precompile, so stored code may run "
            "instead of what a trace would show; pass the plain target"
        )
    return context  # type: ignore[no-any-return]
