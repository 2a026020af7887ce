"""Compares what attributes, items, variables and globals are bound to after a call.

Two bindings agree if they are twins of one original, the very same object, or equal by the
meaning of their kind. What can't be told is noted, and never passed silently.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from pytest_compileguard.isolation.containers import ATOMIC
from pytest_compileguard.isolation.keys import without_addresses
from pytest_compileguard.isolation.snapshot import Snapshot
from pytest_compileguard.isolation.storages import memory_key
from pytest_compileguard.observation import MismatchPart
from pytest_compileguard.parity.float64_runs import About
from pytest_compileguard.parity.iterators import is_of_python
from pytest_compileguard.parity.judging import LeafJudge
from pytest_compileguard.parity.kinds import parts_of_kind, plain, tensor_attributes
from pytest_compileguard.parity.leaves import Leaf, Structure, bound_leaves_of
from pytest_compileguard.parity.plain import equal_leaves
from pytest_compileguard.parity.rebuilt import Rebuilt, are_flat, kind_name, rebuilt
from pytest_compileguard.parity.side import Place

_HOLDING = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)
"""What is called, and may write to what it holds."""


def same_paths(
    judge: LeafJudge,
    eager: list[Leaf],
    compiled: list[Leaf],
    part_otherwise: MismatchPart = "other",
) -> bool:
    """Whether both sides have the same leaves; if not, that is reported."""
    expected, actual = [leaf.path for leaf in eager], [leaf.path for leaf in compiled]
    if expected == actual:
        return True
    first = (eager or compiled)[0]
    part: MismatchPart = "structure" if isinstance(first.value, Structure) else part_otherwise
    if odd := sorted(set(expected) ^ set(actual))[:4]:
        message = f"another structure on the two sides: {', '.join(odd)}"
        judge.report(first.path, "kind", message, part=part)
        return False
    pairs = zip(expected, actual, strict=False)
    own, other = next(((e, a) for e, a in pairs if e != a), (first.path, first.path))
    message = f"another order of its parts: compiled has {other} where eager has {own}"
    judge.report(_around(own, other), "kind", message, part=part)
    return False


def _around(path: str, other: str) -> str:
    """The path of what two parts stand in."""
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(path, other, strict=False))
    common = "".join(letter for letter, _ in same)
    ends = {path[len(common) :][:1], other[len(common) :][:1]}
    return common if ends <= {"[", "."} else common[: max(common.rfind("["), common.rfind("."), 0)]


def rebound(eager: Snapshot, compiled: Snapshot) -> Iterator[tuple[str, str]]:
    """Names that one side binds to another object than the other, and what is told of each.

    What both sides find was there before the call, so it is itself, whatever it is like.
    """
    ids = [{id(value): place.path for place, value in side.bound} for side in (eager, compiled)]
    bound = {place.path: value for place, value in compiled.bound}
    for place, value in eager.bound:
        other = bound.get(place.path, value)
        if other is value or isinstance(value, ATOMIC) or isinstance(other, ATOMIC):
            continue
        if id(value) in ids[1] and id(other) in ids[0]:
            names = ids[0][id(other)], ids[1][id(value)]
            yield place.path, f"compiled binds {names[0]}, eager {names[1]}"


class Bindings:
    """Compares what names are bound to on both sides of one call."""

    def __init__(self, judge: LeafJudge, place: Place) -> None:
        self._judge = judge
        self._twins = judge.twins
        self._place: Place = place

    def compare(self, path: str, actual: Any, expected: Any) -> None:
        """Compare one; leaves of containers, partials, closures and the like each by itself."""
        actual, expected = plain(actual), plain(expected)
        if isinstance(expected, torch.Tensor) or actual is expected:
            self._leaf(path, actual, expected)
            return
        if self._is_settled(path, actual, expected):
            return
        twins = self._twins
        eager = bound_leaves_of(expected, path, parts_of_kind, twins.known_to_eager)
        compiled = bound_leaves_of(actual, path, parts_of_kind, twins.known_to_compiled)
        if [leaf.path for leaf in eager] != [leaf.path for leaf in compiled]:
            # One side keeps an object, and the other makes another one like it.
            eager = bound_leaves_of(expected, path, parts_of_kind)
            compiled = bound_leaves_of(actual, path, parts_of_kind)
        if same_paths(self._judge, eager, compiled):
            for own, made in zip(eager, compiled, strict=True):
                self._leaf(own.path, made.value, own.value)

    def _is_settled(self, path: str, actual: Any, expected: Any) -> bool:
        """Whether all is told of what compiled code rebuilds, without a look at its parts."""
        made = rebuilt(actual), rebuilt(expected)
        of_kind = [value for value in made if isinstance(value, Rebuilt)]
        if not of_kind or self._twins.are_one(actual, expected) is not None:
            return False
        kinds = kind_name(made[0]), kind_name(made[1])
        if kinds[0] != kinds[1]:
            self._of_another_kind(path, actual, expected, kinds)
            return True
        count = None
        if are_flat(of_kind):
            count = equal_leaves(of_kind[0].parts, of_kind[1].parts)
        self._judge.result.leaves += count or 0
        return count is not None

    def _of_another_kind(
        self, path: str, actual: Any, expected: Any, kinds: tuple[str, str]
    ) -> None:
        told = f"compiled gives {kinds[0]}, eager gives {kinds[1]}"
        both = actual, expected
        if all(map(is_of_python, both)) and any(rebuilt(value) is value for value in both):
            note = f"{path}: {told}, and nothing tells what is left of one of them"
            self._judge.result.unchecked[note] = None
            return
        self._judge.result.leaves += 1
        self._judge.report(path, "kind", told)

    def compare_attributes(self, path: str, actual: Any, expected: Any) -> None:
        """Compare what the call set on a tensor that it was given or met."""
        a, e = tensor_attributes(actual), tensor_attributes(expected)
        for name in dict.fromkeys([*e, *a]):
            if name in a and name in e:
                self.compare(f"{path}.{name}", a[name], e[name])
            else:
                side = "compiled" if name in a else "eager"
                self._judge.report(f"{path}.{name}", "mutation", f"only {side} has it")

    def compare_held(self, path: str, actual: Any, expected: Any) -> None:
        """Compare what functions hold that the call was given, though they are twins."""
        seen: set[int] = set()
        self._compare_held(path, actual, expected, seen)
        for held in expected if isinstance(expected, set | frozenset) else ():
            if (twin := self._twins.compiled_twin(held)) is not None:  # a set has no order
                self._compare_held(path, twin, held, seen)

    def _compare_held(self, path: str, actual: Any, expected: Any, seen: set[int]) -> None:
        if not isinstance(expected, _HOLDING) or actual is expected or id(expected) in seen:
            return
        seen.add(id(expected))
        a, e = parts_of_kind(actual) or {}, parts_of_kind(expected) or {}
        for name in [name for name in e if name in a]:
            if isinstance(e[name], _HOLDING):
                self._compare_held(f"{path}{name}", a[name], e[name], seen)
            else:
                self.compare(f"{path}{name}", a[name], e[name])

    def _leaf(self, path: str, actual: Any, expected: Any) -> None:
        judge, twins = self._judge, self._twins
        same = twins.are_one(actual, expected)
        if same is False:
            self._report(path, actual, expected)
        elif same or (actual is expected and not isinstance(expected, torch.Tensor)):
            judge.result.leaves += 1
        elif isinstance(expected, weakref.ref) and isinstance(actual, weakref.ref):
            self._referents(path, actual(), expected())
        elif isinstance(expected, types.ModuleType) or isinstance(actual, types.ModuleType):
            names = _module_name(actual), _module_name(expected)
            judge.result.leaves += 1
            judge.report(path, "mutation", f"compiled binds {names[0]}, eager {names[1]}")
        elif callable(expected) and callable(actual):
            self._callables(path, actual, expected)
        else:
            self._unshared(path, actual, expected)
            about = About(path, self._place, "mutation", isinstance(expected, Structure))
            judge.compare(about, actual, expected)

    def _referents(self, path: str, actual: Any, expected: Any) -> None:
        """When an object ends that nothing else holds, is no matter of the code."""
        if self._twins.are_one(actual, expected) is False:
            self._report(path, actual, expected)

    def _callables(self, path: str, actual: Any, expected: Any) -> None:
        """Compare classes, operators and the like: those that differ are called otherwise."""
        names = [without_addresses(repr(value)) for value in (actual, expected)]
        if names[0] != names[1]:
            self._judge.result.leaves += 1
            self._judge.report(path, "mutation", f"compiled {names[0]}, eager {names[1]}")
        elif not _are_equal(actual, expected):
            kind = type(expected).__qualname__
            note = f"{path}: values of type {kind} can't be compared"
            self._judge.result.unchecked[note] = None

    def _unshared(self, path: str, actual: Any, expected: Any) -> None:
        """Report a tensor that is a copy of what eager binds itself."""
        known = self._twins.compiled_twin(expected)
        if not isinstance(actual, torch.Tensor) or not isinstance(known, torch.Tensor):
            return
        if memory_key(known) is not None and memory_key(actual) != memory_key(known):
            name = self._twins.name(expected)
            message = f"compiled shares no memory with {name}, eager binds that itself"
            self._judge.report(path, "aliasing", message)

    def _report(self, path: str, actual: Any, expected: Any) -> None:
        self._judge.result.leaves += 1
        self._judge.report(path, "mutation", self._twins.told(actual, expected))


def _module_name(value: Any) -> str:
    """What a module is called; of anything else, its kind."""
    if not isinstance(value, types.ModuleType):
        return kind_name(value)
    return f"the module {getattr(value, '__name__', '')}"


def _are_equal(actual: Any, expected: Any) -> bool:
    with contextlib.suppress(Exception):  # any class may refuse in its own way
        return bool(actual == expected)
    return False
