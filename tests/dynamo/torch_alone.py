"""What torch does with a program without the plugin: its own deviations are no false reds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from pytest_compileguard.parity.errors_raised import same_error
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
        if not _alike(expected[1], actual[1]) or expected[0] != actual[0]:
            return f"eager {expected}, compiled {actual}"
    return None if len(eager) == len(compiled) else "another number of values"


def _alike(expected: Any, actual: Any) -> bool:
    if isinstance(expected, Exception) and isinstance(actual, Exception):
        return same_error(actual, expected)
    return bool(expected == actual)


def _trace(program: Program, target: Callable[..., Any]) -> Seen:
    seen: Seen = []
    for args in program.calls():
        with program.around():
            ends = _origins(args)
            torch.manual_seed(3)
            try:
                value = target(*args)
            except Exception as error:  # noqa: BLE001  # compared like any result
                seen.append(("error", error))
            else:
                seen += _results(value, args)
                seen += _gradients(value, args, ends)
            seen += _left(target, args)
    return [*seen, ("next random numbers", torch.rand(2).tolist())]


def _results(value: Any, args: tuple[Any, ...]) -> Seen:
    leaves = [*leaves_of(value, "output", objects=True), *leaves_of(args, "arguments")]
    seen = [(leaf.path, _bits(leaf.value)) for leaf in leaves]
    tensors = [leaf.value for leaf in leaves if isinstance(leaf.value, torch.Tensor)]
    keys = [tensor.untyped_storage()._cdata for tensor in tensors]
    return [*seen, ("aliasing", [keys.index(key) for key in keys])]


def _left(target: Callable[..., Any], args: tuple[Any, ...]) -> Seen:
    """What a call leaves behind, also one that raises: an error of tracing comes before writing."""
    tensors = [leaf.value for leaf in leaves_of(args, "arguments")]
    if isinstance(target, torch.nn.Module):
        tensors += target.state_dict().values()
    members = [getattr(target, name, None) for name in ("count", "seen", "names", "kept")]
    kept = leaves_of(members, "members", objects=True)
    return [("left", _bits(value)) for value in (*tensors, *(leaf.value for leaf in kept))]


def _gradients(value: Any, args: tuple[Any, ...], ends: list[torch.Tensor]) -> Seen:
    if not ends:
        return []
    leaves = leaves_of((value, args), "result", objects=True)
    tensors = [leaf.value for leaf in leaves if isinstance(leaf.value, torch.Tensor)]
    try:
        starts = [t for t in tensors if t.requires_grad and t.grad_fn is not None]
        weights = [torch.ones_like(t) for t in starts]
        found = torch.autograd.grad(starts, ends, weights, allow_unused=True) if starts else ()
    except Exception as error:  # noqa: BLE001  # compared like any result
        return [("error of the gradients", error)]
    return [("gradient", _bits(gradient)) for gradient in found]


def _origins(args: tuple[Any, ...]) -> list[torch.Tensor]:
    """The leaves that gradients of the arguments flow to, also of those that are no leaves."""
    found = {id(t): t for t in args if t.requires_grad and t.is_leaf}
    waiting = [t.grad_fn for t in args if t.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            found[id(node.variable)] = node.variable
        waiting += [before for before, _ in node.next_functions if before is not None]
    return list(found.values())


def _bits(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    plain = value.detach().resolve_conj()
    return str(value.dtype), value.stride(), value.requires_grad, repr(plain.tolist())
