"""Writes the inputs of a failing call, and the program that makes it again."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from pytest_compileguard import dynamo
from pytest_compileguard.isolation.tensors import is_leaf
from pytest_compileguard.observation import Departure, Reproduction
from pytest_compileguard.parity.tolerance import Tolerance
from pytest_compileguard.plan import OWN_BACKEND, Plan
from pytest_compileguard.reproduction import surroundings
from pytest_compileguard.reproduction.importing import Place, import_roots, place_of
from pytest_compileguard.reproduction.program_text import program_text
from pytest_compileguard.shadow.call import ComparedCall

_MOST_IN_NAME = 80
_INEXACT = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
)


def save(
    failed: ComparedCall,
    target: Any,
    plan: Plan,
    root: Path,
    departure: Departure | None = None,
    reference: Any = None,
) -> Reproduction:
    """Write the files into a folder of the check; say where, or why that failed.

    Args:
        failed: The call, with its snapshot.
        target: What the test guards; its snapshot is a copy.
        plan: Of the check.
        root: Folder of all reproductions.
        departure: What locating found.
        reference: Another implementation that the call differs from.
    """
    folder = root / safe_name(plan.key)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _as_they_were(failed):
            met = surroundings.met_by(failed, target)
            problems = _save_met(met.values, folder / "globals.pt")
            met = met.without(problems)
            settings = _settings(failed, target, plan, folder, reference, met)
        settings |= {"unsaved": list(problems), "notes": _notes(problems)}
        file = folder / "reproduce.py"
        told = _told(plan, departure)
        file.write_text(program_text(settings, told), encoding="utf-8")
    except OSError as error:
        return Reproduction(file="", problem=f"can't write to {folder}: {error.strerror}")
    except Exception as error:  # noqa: BLE001  # the check has failed by what was found before
        return Reproduction(file="", problem=f"{type(error).__name__}: {error}")
    unshown = surroundings.why_unshown(failed.mismatches, met.unsaved)
    return Reproduction(file=str(file), missing=tuple(settings["missing"]), unshown=unshown)


@contextlib.contextmanager
def _as_they_were(failed: ComparedCall) -> Iterator[None]:
    """Give parameters, globals and classes what they held at the call; put the latter two back."""
    now = failed.scene.now()
    try:
        failed.restore_parameters()
        failed.scene.restore()
        yield
    finally:
        now.restore()


def safe_name(key: str) -> str:
    """Make a folder's name of any text: its readable part, and a sum that tells it apart."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", key.encode("ascii", "replace").decode())
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{readable[-_MOST_IN_NAME:].strip('_')}-{digest}"


def _settings(
    failed: ComparedCall,
    target: Any,
    plan: Plan,
    folder: Path,
    reference: Any,
    met: surroundings.Met,
) -> dict[str, Any]:
    missing: list[str] = []
    weights_only = _save_call(failed, folder / "call.pt", missing)
    place = _save_target(target, failed.snapshot.target, folder / "target.pt", missing)
    other = None
    if reference is not None:
        other = _save_target(reference, reference, folder / "reference.pt", missing)
    backend, arguments = _compile_arguments(plan, missing)
    modules = [module for module, _ in (*met.globals, *met.classes)]
    modules += [place[0] if place else type(failed.snapshot.target).__module__]
    modules += [backend[0]] if backend else []
    modules += [] if reference is None else [other[0] if other else type(reference).__module__]
    modes = failed.ambient
    return {
        "target": place,
        "has_reference": reference is not None,
        "reference": other,
        "compile": arguments,
        "backend": backend,
        "tolerances": _tolerances(Tolerance(plan.rtol, plan.atol)),
        "grad": modes.grad,
        "inference": modes.inference,
        "autocast": [
            (cast.device_type, cast.enabled, _name(cast.dtype)) for cast in modes.autocast
        ],
        "default_dtype": _name(modes.dtype),
        "default_devices": [device and str(device) for device in modes.new_tensors_on],
        "globals": met.globals,
        "classes": met.classes,
        "non_leaves": _non_leaves(failed),
        "weights_only": weights_only,
        "missing": missing,
        "roots": import_roots(modules, folder),
        "torch": str(torch.__version__),
    }


def _save_call(failed: ComparedCall, file: Path, missing: list[str]) -> bool:
    """Save arguments and random state; whether they load without running code."""
    args, kwargs, _ = failed.snapshot.copies
    random = failed.scene.random
    saved = {"args": args, "kwargs": kwargs, "rng": random.cpu, "cuda_rng": list(random.cuda)}
    if problem := _saved(saved, file):
        missing.append(f"the arguments of the call can't be saved: {problem}")
        return False
    try:
        torch.load(file, weights_only=True)
    except Exception:  # noqa: BLE001  # objects of classes that torch does not know
        return False
    return True


def _save_target(target: Any, copied: Any, file: Path, missing: list[str]) -> Place | None:
    """Say where a function is imported from; save what can't be."""
    place = place_of(target) if isinstance(target, types.FunctionType) else None
    if place is not None:
        file.unlink(missing_ok=True)
    elif problem := _saved(copied, file):
        missing.append(
            f"the {file.stem} can't be imported by name nor saved: put it into a module, and call "
            f"it here in place of loaded_{file.stem}() ({problem})"
        )
    return place


def _save_met(values: dict[str, Any], file: Path) -> dict[str, str]:
    """Save globals and class attributes together, for they may share parts; why some can't be."""
    if not (together := _saved(values, file)):
        return {}
    problems = {name: problem for name in values if (problem := _saved({name: values[name]}, file))}
    rest = {name: value for name, value in values.items() if name not in problems}
    if not problems or _saved(rest, file):
        return dict.fromkeys(values, together)
    return problems


def _notes(problems: dict[str, str]) -> list[str]:
    said = "is as its import makes it, for it can't be saved"
    return [f"{name} {said}: {problem}" for name, problem in problems.items()]


def _saved(value: Any, file: Path) -> str:
    """Write one file; why it can't be written, or empty."""
    try:
        torch.save(value, file)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001  # any class may refuse in its own way
        file.unlink(missing_ok=True)
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""


def _compile_arguments(
    plan: Plan, missing: list[str]
) -> tuple[tuple[str, str] | None, dict[str, Any]]:
    given = plan.arguments.given
    backend = given.pop("backend", None)
    if backend == OWN_BACKEND:
        missing.append("the test compiled the target itself: write its arguments into 'compile'")
        return None, {}
    odd = [name for name, value in given.items() if not _is_literal(value)]
    missing += [f"{n}={given.pop(n)!r} of torch.compile can't be written down" for n in odd]
    if backend is None or isinstance(backend, str):
        return None, given | ({} if backend is None else {"backend": backend})
    place = place_of(backend)
    if place is None:
        missing.append(f"the backend {plan.arguments.backend_name} can't be imported by name")
    return place, given


def _is_literal(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def _tolerances(given: Tolerance) -> dict[str, tuple[float, float]]:
    return {str(d): given.for_dtype(d) for d in _INEXACT} if given.explicit else {}


def _non_leaves(failed: ComparedCall) -> list[int | str]:
    args, kwargs, _ = failed.snapshot.copies
    named: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    return [n for n, value in named if isinstance(value, torch.Tensor) and not is_leaf(value)]


def _told(plan: Plan, departure: Departure | None) -> list[str]:
    told = [f"# {plan.key!a}"]
    if departure is not None and departure.stage is not None:
        told.append(f"# departs first at stage {departure.stage!a}, {departure.path!a}")
    return [*told, dynamo.EAGER_RANDOM_NUMBERS]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
