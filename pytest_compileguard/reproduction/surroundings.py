"""Names the globals and class attributes that a failing call met, so that they can be saved."""

from __future__ import annotations

import sys
import types
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_compileguard.isolation import snapshot
from pytest_compileguard.isolation.functions import stateful_names
from pytest_compileguard.isolation.snapshot import MISSING
from pytest_compileguard.observation import Mismatch
from pytest_compileguard.reproduction.importing import Place, place_of
from pytest_compileguard.shadow.call import ComparedCall
from pytest_compileguard.target import plain_functions


@dataclass(frozen=True, kw_only=True, slots=True)
class Met:
    """State that belongs neither to the target nor to its arguments."""

    globals: list[Place]
    """Module and name."""
    classes: list[Place]
    """Those whose attributes count."""
    values: dict[str, Any]
    """What was bound, by ``module:name`` and ``module:Class.name``."""
    paths: dict[str, str]
    """How findings call it, by the same names."""
    unsaved: list[str]
    """What another process would not find, or what can't be saved, as findings call it."""

    def without(self, names: Collection[str]) -> Met:
        """The same with some of its values not saved."""
        values = {name: value for name, value in self.values.items() if name not in names}
        paths = [self.paths[name] for name in self.values if name in names]
        return replace(self, values=values, unsaved=[*self.unsaved, *paths])


def met_by(failed: ComparedCall, target: Any) -> Met:
    """Find what a call met."""
    met = Met(globals=[], classes=[], values={}, paths={}, unsaved=[])
    for place, value in failed.scene.snapshot.bound:
        if isinstance(place.owner, dict):
            _add_global(met, place.owner, place.name, value)
        elif isinstance(place.owner, type):
            _add_class(met, place, value)
        else:
            met.unsaved.append(place.path)
    twin = failed.snapshot.target
    if isinstance(twin, types.FunctionType) and twin is not target:
        _add_own(met, target, twin)
    return met


def _add_own(met: Met, target: Any, twin: types.FunctionType) -> None:
    """Add the globals of the target's own file, of which its copy has copies."""
    space = getattr(target, "__globals__", None)
    for function in plain_functions(target):
        for name in stateful_names(function) if function.__globals__ is space else ():
            value = twin.__globals__.get(name, MISSING)
            if not isinstance(value, types.FunctionType):
                _add_global(met, function.__globals__, name, value)


def _add_global(met: Met, space: dict[str, Any], name: str, value: Any) -> None:
    module = str(space.get("__name__", ""))
    path, found = f"{module}.{name}", sys.modules.get(module)
    if module == "__main__" or found is None or vars(found) is not space:
        met.unsaved.append(path)
        return
    met.globals.append((module, name))
    if value is not MISSING:
        _add_value(met, f"{module}:{name}", path, value)


def _add_class(met: Met, state: snapshot.Place, value: Any) -> None:
    place = place_of(state.owner)
    if place is None:
        met.unsaved.append(state.path)
        return
    if place not in met.classes:
        met.classes.append(place)
    module, qualname = place
    _add_value(met, f"{module}:{qualname}.{state.name}", state.path, value)


def _add_value(met: Met, name: str, path: str, value: Any) -> None:
    met.values[name] = value
    met.paths[name] = path


def why_unshown(mismatches: Sequence[Mismatch], unsaved: Sequence[str]) -> str:
    """Say why the program can't show any of the differences; empty if it can show one."""
    reasons = [_why_unshown(mismatch, unsaved) for mismatch in mismatches]
    return reasons[0] if reasons and all(reasons) else ""


def _why_unshown(mismatch: Mismatch, unsaved: Sequence[str]) -> str:
    if mismatch.by_float64:
        return "it has no float64 reference, which alone tells them from rounding"
    # A global of the target's own file goes by its bare name.
    names = (*unsaved, *(name.rpartition(".")[2] for name in unsaved))
    if any(mismatch.path == n or mismatch.path.startswith((f"{n}[", f"{n}.")) for n in names):
        return f"what {mismatch.path} belongs to can't be saved"
    return ""
