"""What torch does with a program without the plugin: its own deviations are no false reds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from pytest_compileguard.parity.leaves import leaves_of
from tests.dynamo.random_programs import Program

Seen = list[tuple[str, Any]]


def deviation(program: Program) -> str | None:
    """The first thing in which ``torch.compile`` differs from eager, bit for bit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager = _trace(program, program.make())
        torch.compiler.reset()
        compiled = _trace(program, torch.compile(program.make(), backend="aot_eager"))
        torch.compiler.reset()
    for expected, actual in zip(eager, compiled, strict=False):
        if expected != actual:
            return f"eager {expected}, compiled {actual}"
    return None if len(eager) == len(compiled) else "another number of values"


def _trace(program: Program, target: Callable[..., Any]) -> Seen:
    seen: Seen = []
    for args in program.calls():
        with program.around():
            try:
                seen += _call(target, args)
            except Exception as error:  # noqa: BLE001  # compared like any result
                seen.append(("error", type(error).__name__))
    return [*seen, ("next random numbers", torch.rand(2).tolist())]


def _call(target: Callable[..., Any], args: tuple[Any, ...]) -> Seen:
    torch.manual_seed(3)
    output = leaves_of(target(*args), "output", objects=True)
    leaves = [*output, *leaves_of(args, "arguments")]
    seen = [(leaf.path, _bits(leaf.value)) for leaf in leaves]
    tensors = [leaf.value for leaf in leaves if isinstance(leaf.value, torch.Tensor)]
    keys = [tensor.untyped_storage()._cdata for tensor in tensors]
    seen.append(("aliasing", [keys.index(key) for key in keys]))
    starts = [t for t in tensors if t.requires_grad and t.grad_fn is not None]
    ends = [t for t in args if t.requires_grad and t.is_leaf]
    if torch.is_grad_enabled() and starts:
        found = torch.autograd.grad(
            starts, ends, [torch.ones_like(t) for t in starts], allow_unused=True
        )
        seen += [("gradient", _bits(gradient)) for gradient in found]
    return seen


def _bits(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    plain = value.detach().resolve_conj()
    return str(value.dtype), value.stride(), value.requires_grad, repr(plain.tolist())
