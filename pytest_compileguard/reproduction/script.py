"""Makes one call twice, eager and compiled, and prints where the two differ.

Where another implementation is given, the compiled side is held against that too.
Exit code 1: they differ. 0: they agree. 2: something is missing, and this says what.
It needs torch and the code under test; a step of training needs pytest-compileguard too.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import importlib
import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import torch

SETTINGS: dict[str, Any] = {}

HERE = Path(__file__).resolve().parent
ABSENT = object()
RAISED = ("exception", "exception in backward")
PLAIN = (bool, int, str, bytes, type(None), set, frozenset, enum.Enum, torch.dtype, torch.device)


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
    meet_surroundings()
    torch.set_rng_state(saved["rng"])
    for index, state in enumerate(saved["cuda_rng"]):
        torch.cuda.set_rng_state(state, index)
    with modes():
        return called(made, target, args, kwargs)


def called(made: Any, target: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
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
    values |= gradients({**outputs, **inputs}, before)
    values |= {f"{name} after the call": value for name, value in after.items()}
    ends = {n: t for n, t in {**outputs, **before, **after}.items() if isinstance(t, torch.Tensor)}
    values |= {f"{n}.grad": t.grad for n, t in ends.items() if t.is_leaf and t.grad is not None}
    values |= {f"memory of {n}": others for n, others in sharing({**after, **outputs}).items()}
    drawn = [torch.get_rng_state()]
    drawn += torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return values | {f"random numbers drawn ({at})": state for at, state in enumerate(drawn)}


def gradients(results: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Gradients of what a call gave by what it was given and what it met."""
    starts = [t for t in results.values() if differentiable(t) and t.grad_fn is not None]
    ends = {name: t for name, t in before.items() if differentiable(t)}
    if not torch.is_grad_enabled() or not starts or not ends:
        return {}
    weights = [weight(number, start) for number, start in enumerate(starts)]
    try:
        found = torch.autograd.grad(starts, list(ends.values()), weights, allow_unused=True)
    except Exception as error:  # noqa: BLE001  # compared with what the other side raises
        ran = "backward through the graph a second time" in str(error)  # by the call itself
        return {} if ran else {"exception in backward": kind_of(error)}
    return {f"gradient of {n}": g for n, g in zip(ends, found, strict=True)}


def kind_of(error: Exception) -> str:
    """The type of an error; of one that torch wrapped, the type of that."""
    wrapped = error.__cause__ if type(error).__name__ == "TorchRuntimeError" else None
    return type(wrapped or error).__name__


def results(values: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """What a caller gets from any implementation: not its state, nor where results lie."""
    return {
        name: value
        for name, value in values.items()
        if name == "exception"
        or (name.startswith("output") and not name.endswith((" after the call", ".grad")))
        or (name.startswith("argument[") and not name.endswith(".grad"))
        or (name.startswith("gradient of ") and name in others)
    }


def compared(actual: dict[str, Any], expected: dict[str, Any], against: str = "eager") -> list[str]:
    """Say in which values the two sides differ."""
    raised = [name for name in RAISED if name in {**actual, **expected}]
    if any(actual.get(name) != expected.get(name) for name in raised):
        pairs = ((n, actual.get(n, "nothing"), expected.get(n, "nothing")) for n in raised)
        return [f"{n}: compiled raises {a}, {against} raises {e}" for n, a, e in pairs]
    place = "" if against == "eager" else f" against the {against}"
    found = []
    for name in dict.fromkeys([*expected, *actual]):
        pair = actual.get(name, ABSENT), expected.get(name, ABSENT)
        if text := difference(name, *pair, against):
            found.append(f"{name}{place}: {text}")
    return found


def difference(name: str, actual: Any, expected: Any, against: str) -> str:
    """Say how two values differ; empty if they agree, or if nothing can tell."""
    strict = against == "eager"
    tensors = isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor)
    if name.startswith("gradient of ") and expected is None and isinstance(actual, torch.Tensor):
        expected = torch.zeros_like(actual)  # what is no part of a graph may have a gradient of 0
        tensors = True
    if type(actual) is not type(expected) and (not tensors or (strict and is_result(name))):
        return f"compiled {shown(actual)}, {against} {shown(expected)}"
    if tensors and actual.requires_grad != expected.requires_grad:
        return f"requires_grad: compiled {actual.requires_grad}, {against} {expected.requires_grad}"
    if tensors or isinstance(expected, float | complex) or hasattr(expected, "__array__"):
        return far(actual, expected, strides=strict and is_result(name))
    same = not isinstance(expected, PLAIN) or actual == expected
    return "" if same else f"compiled {shown(actual)}, {against} {shown(expected)}"


def is_result(name: str) -> bool:
    """Whether a value is what the call returns, whose form counts."""
    return name.startswith("output") and not name.endswith(" after the call")


def far(actual: Any, expected: Any, *, strides: bool) -> str:
    """Say by how much numbers differ; where the test says nothing, torch.testing decides."""
    tensors = isinstance(expected, torch.Tensor)
    kind = str(expected.dtype) if tensors else "torch.float64"
    rtol, atol = SETTINGS["tolerances"].get(kind, (None, None))
    if tensors:
        strides = strides and expected.layout == torch.strided and expected.numel() > 0
        actual, expected = actual.detach(), expected.detach()
    try:
        torch.testing.assert_close(
            actual, expected, equal_nan=True, check_stride=strides, rtol=rtol, atol=atol
        )
    except AssertionError as error:
        return str(error)
    except (TypeError, ValueError):  # no numbers
        return ""
    return ""


def shown(value: Any) -> str:
    """A value, or of one that takes many lines, its kind."""
    if value is ABSENT:
        return "nothing"
    if isinstance(value, torch.Tensor):
        return f"a {type(value).__name__} of {list(value.shape)}"
    return repr(value) if isinstance(value, (*PLAIN, float, complex)) else type(value).__name__


def leaves(
    value: Any, name: str, seen: set[int] | None = None, depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Take nested values apart; with ``seen``, each object once, and modules and functions too."""
    found = parts(value, deep=seen is not None)
    if found is None or depth > (8 if seen is None else 200):  # deeper than anybody nests
        yield name, value
        return
    if seen is not None:
        if id(value) in seen:
            return
        seen.add(id(value))
    yield f"{name} (type)", type(value).__qualname__
    for key, part in found.items():
        yield from leaves(part, (name + key).lstrip("."), seen, depth + 1)


def parts(value: Any, *, deep: bool) -> dict[str, Any] | None:
    """What a value consists of, by name; ``None`` if it is not taken apart."""
    if isinstance(value, Mapping):
        keys = enumerate(value)  # an optimizer's are parameters
        names = [at if isinstance(key, torch.Tensor) else repr(key) for at, key in keys]
        return {f"[{name}]": part for name, part in zip(names, value.values(), strict=True)}
    if isinstance(value, list | tuple | collections.deque):
        return {f"[{index}]": part for index, part in enumerate(value)}
    if isinstance(value, torch.Tensor | type | types.ModuleType | types.FunctionType | enum.Enum):
        return None
    if callable(value) and not deep:
        return None
    if isinstance(value, types.MethodType):
        found: dict[str, Any] = {"": value.__self__}
    elif isinstance(value, functools.partial):
        found = {"": value.func, ".args": value.args, ".keywords": value.keywords}
    else:
        found = attributes(value)
    return found or None


def attributes(value: Any) -> dict[str, Any]:
    """Attributes in the dictionary of an object and in slots, less the marks of the compiler."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__ if type(value).__module__ != "builtins" else ():
        slots = [n for n, v in vars(kind).items() if isinstance(v, types.MemberDescriptorType)]
        found |= {name: getattr(value, name, None) for name in slots}
    for part in ("_parameters", "_buffers", "_modules"):
        found |= found.pop(part, {}) if isinstance(value, torch.nn.Module) else {}
    marks = ("_compiled_call_impl", "_is_torch_compile")
    return {
        f".{name}": part
        for name, part in found.items()
        if name not in marks and not name.startswith("_torchdynamo_")
    }


def state_of(target: Any) -> dict[str, Any]:
    """What a target keeps, and the globals and class attributes that it uses, by name."""
    seen: set[int] = set()
    found = {} if isinstance(target, types.FunctionType) else dict(leaves(target, "", seen))
    for name, (owner, attribute) in places().items():
        if attribute in vars(owner):
            found |= dict(leaves(vars(owner)[attribute], name, seen))
    return found


def places() -> dict[str, tuple[Any, str]]:
    """Where the target may keep state outside of itself: module or class, and name."""
    found = {f"{m}.{n}": (importlib.import_module(m), n) for m, n in SETTINGS["globals"]}
    for place in SETTINGS["classes"]:
        kind = imported(place)
        names = [n for n, v in vars(kind).items() if not n.startswith("__") and is_kept(v)]
        found |= {f"{kind.__name__}.{name}": (kind, name) for name in names}
    return found


def is_kept(value: Any) -> bool:
    """Whether a part of a class is state, no function or the like."""
    descriptor = hasattr(type(value), "__get__") and not isinstance(value, torch.Tensor)
    return not descriptor and not isinstance(value, type) and not inspect.isbuiltin(value)


def meet_surroundings() -> None:
    """Give globals and classes what the call met in them."""
    if not SETTINGS["globals"] and not SETTINGS["classes"]:
        return
    start = torch.load(HERE / "globals.pt", weights_only=False)
    for name, (owner, attribute) in places().items():
        if name in start:
            setattr(owner, attribute, start[name])
        elif attribute in vars(owner):
            delattr(owner, attribute)


def differentiable(value: Any) -> bool:
    """Whether gradients start from, or flow to, a value."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def weight(number: int, output: torch.Tensor) -> torch.Tensor:
    """A random weight for one output, equal on both sides."""
    generator = torch.Generator().manual_seed(number)
    drawn = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    return drawn.to(device=output.device, dtype=output.dtype)


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
