"""Makes the call, and tells what it gives and what it leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from pytest_compileguard.reproduction.program.nested import leaves
from pytest_compileguard.reproduction.program.settings import HERE, SETTINGS, imported
from pytest_compileguard.reproduction.program.state import meet_surroundings, state_of

AFTER = " after the call"
IN_BACKWARD = "exception in backward"


def both_sides(
    load: Callable[[], Any],
) -> tuple[dict[str, Any], dict[str, Any], Collection[str] | None]:
    """Make both calls. Where eager can't differentiate all results, tell those that it can."""
    expected, only = side(load()), None
    if IN_BACKWARD in expected:
        names = [n.removesuffix(AFTER) for n, value in expected.items() if is_start(value)]
        only = [n for n in names if IN_BACKWARD not in side(load(), only=[n])]
        expected = side(load(), only=only)
    actual = side(load(), compiled=True, only=only)
    if only and IN_BACKWARD in actual:  # it differentiates all outputs of a graph at once
        return side(load(), compiled=True, only=[]), side(load(), only=[]), []
    return actual, expected, only


def side(
    target: Any, *, compiled: bool = False, only: Collection[str] | None = None
) -> dict[str, Any]:
    """Make the call from what was saved; the values that are to be compared, by name.

    ``only`` tells which results to differentiate; all, without it.
    """
    saved = torch.load(HERE / "call.pt", weights_only=SETTINGS["weights_only"])
    made = target
    if compiled:
        arguments = dict(SETTINGS["compile"])
        if SETTINGS["backend"]:
            arguments["backend"] = imported(SETTINGS["backend"])
        # Of a step of training, the model is compiled, and perhaps the optimizer.
        compile_by = getattr(target, "compiled_by", lambda compile_: compile_(target))
        made = compile_by(lambda part: torch.compile(part, **arguments))
    args = [fresh(arg, index) for index, arg in enumerate(saved["args"])]
    kwargs = {name: fresh(arg, name) for name, arg in saved["kwargs"].items()}
    meet_surroundings()
    torch.set_rng_state(saved["rng"])
    for index, state in enumerate(saved["cuda_rng"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state, index)
    with modes():
        return called(made, target, args, kwargs, only)


def called(
    made: Any,
    target: Any,
    args: list[Any],
    kwargs: dict[str, Any],
    only: Collection[str] | None,
) -> dict[str, Any]:
    """Call it and differentiate what comes out; what it gives, and what it leaves."""
    before = {**dict(leaves([*args, kwargs], "argument")), **state_of(target)}
    values: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    try:
        outputs = dict(leaves(made(*args, **kwargs), "output"))
    except Exception as error:  # noqa: BLE001  # compared with what the other side raises
        values["exception"] = kind_of(error)
    inputs = dict(leaves([*args, kwargs], "argument"))
    after = {**inputs, **state_of(target)}
    values |= outputs
    results = {**outputs, **inputs}
    chosen = {n: t for n, t in results.items() if only is None or n in only}
    values |= gradients(chosen, before)
    values |= {f"{name}{AFTER}": value for name, value in after.items()}
    ends = {n: t for n, t in {**outputs, **before, **after}.items() if isinstance(t, torch.Tensor)}
    values |= {f"{n}.grad": t.grad for n, t in ends.items() if t.is_leaf and t.grad is not None}
    values |= {f"memory of {n}": others for n, others in sharing({**after, **outputs}).items()}
    drawn = [torch.get_rng_state()]
    drawn += torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return values | {f"random numbers drawn ({at})": state for at, state in enumerate(drawn)}


def gradients(results: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Gradients of what a call gave by what it was given and what it met."""
    starts = [value for value in results.values() if is_start(value)]
    ends = {name: t for name, t in before.items() if differentiable(t)}
    if not torch.is_grad_enabled() or not starts or not ends:
        return {}
    weights = [weight(number, start) for number, start in enumerate(starts)]
    try:
        found = torch.autograd.grad(starts, list(ends.values()), weights, allow_unused=True)
    except Exception as error:  # noqa: BLE001  # compared with what the other side raises
        return {IN_BACKWARD: kind_of(error)}
    return {f"gradient of {n}": g for n, g in zip(ends, found, strict=True)}


def differentiable(value: Any) -> bool:
    """Whether gradients start from, or flow to, a value."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def is_start(value: Any) -> bool:
    """Whether a call computed a value in a way that can be differentiated."""
    return differentiable(value) and value.grad_fn is not None


def weight(number: int, output: torch.Tensor) -> torch.Tensor:
    """A random weight for one output, equal on both sides."""
    generator = torch.Generator().manual_seed(number)
    drawn = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    return drawn.to(device=output.device, dtype=output.dtype)


def kind_of(error: Exception) -> str:
    """The type of an error; of one that torch wrapped, the type of that."""
    wrapped = error.__cause__ if type(error).__name__ == "TorchRuntimeError" else None
    return type(wrapped or error).__name__


def sharing(tensors: dict[str, Any]) -> dict[str, str]:
    """For each tensor, names of the others that it shares memory with."""
    together: dict[int, set[str]] = {}
    places = {name: memory(tensor) for name, tensor in tensors.items()}
    for name, place in places.items():
        if place is not None:
            together.setdefault(place, set()).add(name)
    empty: set[str] = set()
    others = {n: sorted(together.get(p or 0, empty) - {n}) for n, p in places.items()}
    return {n: f"with {', '.join(found)}" if found else "its own" for n, found in others.items()}


def memory(value: Any) -> int | None:
    """Where the storage of a tensor lies; ``None`` if it has none."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return value.untyped_storage().data_ptr() or None


def fresh(argument: Any, name: int | str) -> Any:
    """An argument that came out of another operation can be written to; a leaf can't."""
    return argument.clone() if name in SETTINGS["non_leaves"] else argument


@contextlib.contextmanager
def modes() -> Iterator[None]:
    """The modes that were in force at the call."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(SETTINGS["inference"]))
        stack.enter_context(torch.set_grad_enabled(SETTINGS["grad"]))
        for kind, enabled, dtype in SETTINGS["autocast"]:
            cast = torch.autocast(kind, dtype=getattr(torch, dtype), enabled=enabled)
            stack.enter_context(cast)
        torch.set_default_dtype(getattr(torch, SETTINGS["default_dtype"]))
        by_default, within = SETTINGS["default_devices"]
        torch.set_default_device(by_default)
        if within is not None:
            stack.enter_context(torch.device(within))
        yield
