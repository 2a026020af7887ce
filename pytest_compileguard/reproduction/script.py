"""Makes one call twice, eager and compiled, and prints where the two differ.

Where another implementation is given, the compiled side is held against that too.
Exit code 1: they differ. 0: they agree. 2: something is missing, and this says what.
It needs torch and the code under test; a step of training needs pytest-compileguard too.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import torch

SETTINGS: dict[str, Any] = {}

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Make both calls and compare them."""
    print(f"saved with torch {SETTINGS['torch']}, run with {torch.__version__}")  # noqa: T201
    for kind in ("notes", "missing"):
        for text in SETTINGS[kind]:
            print(f"{kind}: {text}")  # noqa: T201
    if SETTINGS["missing"]:
        return 2
    sys.path[:0] = [str((HERE / root).resolve()) for root in SETTINGS["roots"]]
    actual = side(loaded_target(), compiled=True)
    differences = compared(actual, side(loaded_target()))
    if SETTINGS["has_reference"]:
        other = results(side(loaded_reference()), actual)
        differences += compared(results(actual, other), other, against="reference")
    for difference in differences:
        print(difference)  # noqa: T201
    print(f"differences: {len(differences)}" if differences else "no difference")  # noqa: T201
    return 1 if differences else 0


def side(target: Any, *, compiled: bool = False) -> dict[str, Any]:
    """Make the call from what was saved; the values that are to be compared, by name."""
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
    torch.set_rng_state(saved["rng"])
    for index, state in enumerate(saved["cuda_rng"]):
        torch.cuda.set_rng_state(state, index)
    with modes():
        return called(made, target, args, kwargs)


def called(made: Any, target: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Call it and differentiate what comes out."""
    inputs = dict(leaves([*args, kwargs], "argument"))
    owned = state_of(target)
    values: dict[str, Any] = {}
    try:
        outputs = dict(leaves(made(*args, **kwargs), "output"))
    except Exception as error:  # noqa: BLE001  # compared with what the other side raises
        return {"exception": f"{type(error).__name__}"}
    values |= outputs
    ends = {n: t for n, t in {**inputs, **owned}.items() if differentiable(t)}
    starts = [
        t for t in {**outputs, **inputs}.values() if differentiable(t) and t.grad_fn is not None
    ]
    if torch.is_grad_enabled() and starts and ends:
        weights = [weight(number, start) for number, start in enumerate(starts)]
        with contextlib.suppress(RuntimeError):  # the call ran backward itself
            found = torch.autograd.grad(starts, list(ends.values()), weights, allow_unused=True)
            values |= {f"gradient of {n}": g for n, g in zip(ends, found, strict=True)}
    values |= {f"{name} after the call": value for name, value in {**inputs, **owned}.items()}
    values |= {f"{n}.grad": t.grad for n, t in owned.items() if t.is_leaf and t.grad is not None}
    values |= {f"memory of {n}": sharing(t, {**inputs, **owned}) for n, t in outputs.items()}
    return values | {"random numbers drawn": torch.get_rng_state()}


def results(values: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """What a caller gets from any implementation: not its state, nor where results lie."""
    return {
        name: value
        for name, value in values.items()
        if name == "exception"
        or (name.startswith("output") and not name.endswith(" after the call"))
        or name.startswith("argument[")
        or (name.startswith("gradient of ") and name in others)
    }


def compared(actual: dict[str, Any], expected: dict[str, Any], against: str = "eager") -> list[str]:
    """Say in which values the two sides differ."""
    names = dict.fromkeys([*expected, *actual])
    texts = (
        (name, difference(name, actual.get(name), expected.get(name), against)) for name in names
    )
    place = "" if against == "eager" else f" against the {against}"
    return [f"{name}{place}: {text}" for name, text in texts if text]


def difference(name: str, actual: Any, expected: Any, against: str) -> str:
    """Say how two values differ; empty if they agree."""
    tensors = isinstance(actual, torch.Tensor), isinstance(expected, torch.Tensor)
    if not all(tensors):
        same = not any(tensors) and (actual is expected or repr(actual) == repr(expected))
        return "" if same else f"compiled {actual!r}, {against} {expected!r}"
    strict = against == "eager"
    if strict and actual.requires_grad != expected.requires_grad:
        return f"requires_grad: compiled {actual.requires_grad}, eager {expected.requires_grad}"
    # Where the test says nothing, torch.testing decides.
    rtol, atol = SETTINGS["tolerances"].get(str(expected.dtype), (None, None))
    try:
        torch.testing.assert_close(
            actual.detach(),
            expected.detach(),
            equal_nan=True,
            check_stride=strict and name.startswith("output") and expected.numel() > 0,
            rtol=rtol,
            atol=atol,
        )
    except AssertionError as error:
        return str(error)
    return ""


def leaves(value: Any, name: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Take nested values apart."""
    if isinstance(value, Mapping):
        parts = {f"[{key!r}]": part for key, part in value.items()}
    elif isinstance(value, list | tuple):
        parts = {f"[{index}]": part for index, part in enumerate(value)}
    elif isinstance(value, torch.Tensor) or callable(value) or not hasattr(value, "__dict__"):
        parts = None
    else:
        parts = {f".{key}": part for key, part in vars(value).items()}
    if parts is None or depth > 8:  # noqa: PLR2004  # deeper than anybody nests
        yield name, value
        return
    for key, part in parts.items():
        yield from leaves(part, name + key, depth + 1)


def state_of(target: Any) -> dict[str, torch.Tensor]:
    """Parameters and buffers of a module, or of that which a method or step belongs to."""
    owner = getattr(target, "__self__", getattr(target, "model", target))
    owner = target if isinstance(target, torch.nn.Module) else owner
    if not isinstance(owner, torch.nn.Module):
        return {}
    return {**dict(owner.named_parameters()), **dict(owner.named_buffers())}


def differentiable(value: Any) -> bool:
    """Whether gradients start from, or flow to, a value."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def weight(number: int, output: torch.Tensor) -> torch.Tensor:
    """A random weight for one output, equal on both sides."""
    generator = torch.Generator().manual_seed(number)
    drawn = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    return drawn.to(device=output.device, dtype=output.dtype)


def sharing(value: Any, others: dict[str, Any]) -> list[str]:
    """Names of the tensors that a value shares memory with."""
    place = memory(value)
    return [name for name, other in others.items() if place and memory(other) == place]


def memory(value: Any) -> int | None:
    """Where the storage of a tensor lies; ``None`` if it has none."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return value.untyped_storage().data_ptr() or None


def fresh(argument: Any, name: int | str) -> Any:
    """An argument that came out of another operation can be written to; a leaf can't."""
    return argument.clone() if name in SETTINGS["non_leaves"] else argument


def loaded_target() -> Any:
    """Import the target, or load the copy that was saved of it."""
    return loaded("target")


def loaded_reference() -> Any:
    """Import the other implementation, or load the copy that was saved of it."""
    return loaded("reference")


def loaded(name: str) -> Any:
    """Import one of the two, or load its copy."""
    if SETTINGS[name]:
        return imported(SETTINGS[name])
    # A pickle runs code when it is loaded: it is as trusted as the tests that wrote it.
    return torch.load(HERE / f"{name}.pt", weights_only=False)


def imported(place: tuple[str, str]) -> Any:
    """Import ``qualname`` from ``module``."""
    return reduce(getattr, place[1].split("."), importlib.import_module(place[0]))


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
        yield


if __name__ == "__main__":
    sys.exit(main())
