"""Copies a target and keeps the copy in step with it.

A mirror remembers the twin of each object that it met. Reflecting an object again
brings its twin to the object's present state, in place, so that the twin keeps its
identity from call to call, as Dynamo's guards demand. Parameters are shared, not
copied: a twin costs no parameter memory. Only a target that holds an optimizer gets
parameters of its own, since it writes to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from pytest_compileguard.errors import IsolationError
from pytest_compileguard.isolation import containers, gradients, objects, tensors, twin_functions
from pytest_compileguard.isolation.adoption import may_be_twin
from pytest_compileguard.isolation.pairs import Pairs
from pytest_compileguard.isolation.parameters import reflect_parameter
from pytest_compileguard.isolation.storages import StorageCopies, base_of
from pytest_compileguard.isolation.twin_functions import FunctionTwins
from pytest_compileguard.isolation.widening import Widening

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
NamedTensor = tuple[str, torch.Tensor]

_REFLECTIONS: tuple[tuple[Any, Callable[..., Any]], ...] = (
    *containers.REFLECTIONS,
    *objects.REFLECTIONS,
    *twin_functions.REFLECTIONS,
)


class Snapshot(Protocol):
    """What the surroundings of a call hold."""

    def whole(self, met: Container[int], barred: Container[int]) -> dict[int, Any]: ...


class CompiledForm(Protocol):
    """How something that is compiled already can be taken apart and compiled again."""

    @property
    def plain(self) -> Any: ...
    @property
    def compile(self) -> Callable[[Any], Any]: ...


class Mirror:
    """Twins of one side of the shadow call.

    ``compiles`` says whether code that the target compiled itself is compiled again
    in the twin (the compiled side), or left plain (the eager side). ``widening`` turns
    floating tensors into float64 ones, for a reference.
    """

    def __init__(
        self,
        *,
        share_parameters: bool,
        copies_gradients: bool = False,
        compiled_form: Callable[[Any], CompiledForm | None],
        compiles: bool = False,
        widening: Widening | None = None,
        themselves: dict[int, Any] | None = None,
    ) -> None:
        self.themselves = {} if themselves is None else themselves
        """What belongs to the surroundings of a call, by identity: it has no other twins."""
        self.notes: dict[str, None] = {}
        """What could not be copied and is shared, in words."""
        self.holds_optimizer = False
        self.shares_parameters = share_parameters
        self.copies_gradients = copies_gradients
        self.compiled_form = compiled_form
        self.compiles = compiles
        self.functions = FunctionTwins()
        self.keeps = True
        """Whether new twins live on after this call: those of the target's state do."""
        self.widening = widening
        self._pairs = Pairs()
        self._wrappers: set[int] = set()
        self._passed: dict[int, Any] = {}
        self._current: set[int] = set()
        self._storages = StorageCopies()
        self._state_storages = StorageCopies(widening=widening)
        self._leaves: list[NamedTensor] = []
        self._graded: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Tensors of this call that have a gradient, and their twins."""

    def fresh(self) -> Mirror:
        """Make another one that has copied nothing yet, of the same settings."""
        return Mirror(
            share_parameters=self.shares_parameters,
            copies_gradients=self.copies_gradients,
            compiled_form=self.compiled_form,
            compiles=self.compiles,
            widening=self.widening,
            themselves=self.themselves,
        )

    def target(self, real: Any) -> Any:
        """Bring the twin of the target to the target's present state, and return it."""
        self._passed = {}
        if self._pairs.drop_ended():
            self._state_storages.keep(self._pairs.original_storages())
        twin = self._target(real)
        while self.functions.are_unfinished(self._passed.values()):
            twin = self._target(real)
        return twin

    def _target(self, real: Any) -> Any:
        self._passed, self._current, self.keeps = {}, set(), True
        self.functions.made, self._graded = [], []
        twin = self.reflect(real, "")
        self._share_gradients()
        return twin

    def arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], names: tuple[str, ...]
    ) -> tuple[tuple[Any, ...], dict[str, Any], list[NamedTensor]]:
        """Copy the arguments of one call; also the leaves that gradients flow to, by path.

        ``names`` are those of the positional ones. Call it after ``target``: what an
        argument shares with the target stays shared.
        """
        leaves = pytree.tree_leaves((args, kwargs))
        found = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        found += [*tensors.common_bases(found), *gradients.gradients_of(found)]
        self._storages, self._leaves = StorageCopies(found, self.widening), []
        self.keeps = False
        copies = tuple(self.reflect(arg, n) for arg, n in zip(args, names, strict=True))
        named = {name: self.reflect(arg, name) for name, arg in kwargs.items()}
        self._share_gradients()
        return copies, named, self._leaves

    def state(self) -> dict[int, tuple[str, Any]]:
        """Path and twin of all that this call met and that lives on, by its original's identity.

        Paths are unique; what was met in the same order has the same path in every mirror.
        """
        found: dict[int, tuple[str, Any]] = {}
        taken: Counter[str] = Counter()
        for key, path, twin in self._pairs.items():
            if key in self._current and key not in self._wrappers:
                taken[path] += 1
                found[key] = (path if taken[path] == 1 else f"{path}#{taken[path]}", twin)
        return found

    def originals(self) -> list[Any]:
        """All objects that this call met."""
        return [real for real, _ in self._passed.values()]

    def dtypes(self) -> list[tuple[torch.Tensor, torch.dtype]]:
        """The twins of tensors that this call met, with the dtypes of the originals."""
        met = self._passed.values()
        return [(twin, real.dtype) for real, twin in met if isinstance(real, torch.Tensor)]

    def not_copied(self) -> list[Any]:
        """Those of them that stand for themselves, so that what they hold was not met."""
        return [real for key, (real, _) in self._passed.items() if key in self.themselves]

    def leaves(self, found: Snapshot, target: Any) -> bool:
        """Stop copying what the surroundings hold and put back; whether anything was copied.

        Else one of two names of an object would mean it, and the other its copy. What stood for
        itself once does so for ever, since code was compiled for it; the target never does.
        """
        barred = {id(target), id(getattr(target, "__self__", None))}
        met = self._passed.keys() - self.themselves.keys()
        whole = found.whole(met, barred)
        self.themselves.update((key, whole[key]) for key in met & whole.keys())
        return not met.isdisjoint(whole)

    def release(self) -> None:
        """Let go of the objects of one call: a test may count on their end."""
        self._passed, self._graded = {}, []
        self._storages = StorageCopies()

    def memo(self) -> dict[int, Any]:
        """The twins as ``copy.deepcopy`` wants them."""
        return self._pairs.living()

    def reflect(self, real: Any, path: str) -> Any:
        """Make or update the twin of one object; immutable ones are their own."""
        if isinstance(real, containers.ATOMIC):
            if isinstance(real, containers.NAMESPACES):
                self._passed[id(real)] = (real, real)
            return real
        if id(real) in self.themselves:
            self._passed[id(real)] = (real, real)
        if id(real) in self._passed:
            self.functions.met(real)
            return self._passed[id(real)][1]
        if isinstance(real, torch.Tensor):
            shared = isinstance(real, torch.nn.Parameter)
            return reflect_parameter(self, real, path) if shared else self._tensor(real, path)
        try:
            return self._reflect(real, path)
        except (IsolationError, RecursionError):
            raise
        except Exception as error:  # any class may refuse to be copied
            why = f"{type(real).__name__}; {type(error).__name__}: {error}"
            name = path or "the target"
            raise IsolationError(f"the call can't be isolated: {name} ({why})") from error

    def _reflect(self, real: Any, path: str) -> Any:
        form = self.compiled_form(real)
        if form is not None and form.plain is not real:
            return self._compiled(real, form, path)
        for kinds, reflection in _REFLECTIONS:
            if issubclass(type(real), kinds):  # a proxy says that it is what it stands for
                return reflection(self, real, path)
        return objects.reflect_object(self, real, path)

    def has_met(self, real: Any) -> bool:
        """Whether this call met an object, or needs no twin of it."""
        return id(real) in self._passed or id(real) in self.themselves

    def remember(self, real: Any, twin: Any, path: str, *, keep: bool) -> None:
        """Note the twin for this call and, with ``keep``, for all to come."""
        # The original is kept too, so that its id can't be taken by another object in the call.
        self._passed[id(real)] = (real, twin)
        self._current.add(id(real))
        self._wrappers.discard(id(real))
        if keep:
            self._pairs.add(real, twin, path)

    def owned_by(self, real: Any) -> AbstractContextManager[None]:
        """Copy what an object holds, which for arguments lives on as long as that object."""
        return nullcontext() if self.keeps else self._pairs.owned_by(real)

    def adopt(self, real: Any, existing: Any, path: str) -> None:
        """Take what the twin of a container holds already for the twin of a new object.

        Both sides make state of their own in a call (an optimizer's, a cache): guards on it
        hold only while it stays the same object.
        """
        if may_be_twin(real, existing, self._pairs):
            self._pairs.add(real, existing, path)

    def known(self, real: Any) -> Any:
        """The twin of earlier calls, or ``None``."""
        return self._pairs.twin(real)

    def key(self, real: Any, path: str) -> Any:
        """The key of a container in its twin; what is kept by ``id`` goes by the twin's."""
        return self._pairs.twin_id(real) if type(real) is int else self.reflect(real, path)

    def _compiled(self, real: Any, form: CompiledForm, path: str) -> Any:
        plain = self.reflect(form.plain, path)
        twin = self.known(real)
        if twin is None:
            twin = form.compile(plain) if self.compiles else plain
        self.remember(real, twin, path, keep=True)
        self._wrappers.add(id(real))
        return twin

    def _tensor(self, real: torch.Tensor, path: str) -> torch.Tensor:
        known = self.known(real)
        base = None if self.keeps else self._storages.base_given(real)
        if base is None and (below := base_of(real)) is not None and id(below) in self._passed:
            base = below
        if known is None and base is not None:
            twin = tensors.as_view(real, base, self.reflect(base, path))
            self.copy_gradient(real, twin)
            self.remember(real, twin, path, keep=self.keeps)
            return twin
        keep = self.keeps or known is not None
        if known is not None:
            twin = leaf = self._updated(real, known)
        else:
            of_state = self.keeps or self._state_storages.holds(real)
            storages = self._state_storages if of_state else self._storages
            if keep or not real.requires_grad:
                twin = leaf = tensors.copy_tensor(real, storages)
                if of_state and not keep and not tensors.may_overlap(real):
                    twin = leaf = self._updated(real, twin)  # the copy may be of an earlier call
            else:
                twin, leaf = tensors.copy_differentiable(real, storages)
        # Whatever may look at it or drop it: code of others by any name. Few tensors have one.
        self.copy_gradient(real, twin)
        if not keep and leaf.requires_grad:
            self._leaves.append((path, leaf))
        self.remember(real, twin, path, keep=keep)
        return twin

    def copy_gradient(self, real: torch.Tensor, twin: torch.Tensor) -> None:
        """Give a twin a gradient of its own."""
        gradients.copy_gradient(real, twin, self.widening)
        self.note_gradient(real, twin)

    def note_gradient(self, real: torch.Tensor, twin: torch.Tensor) -> None:
        """Note a twin with a gradient, which may turn out to be that of something else too."""
        if gradients.gradients_of([twin]):
            self._graded.append((real, twin))

    def _share_gradients(self) -> None:
        """Let gradients be, or lie in, what else the call has, as their originals do.

        That is known once all is copied.
        """
        gradients.share_gradients(
            self._graded, self._met, (self._state_storages, self._storages), self.widening
        )

    def _met(self, real: torch.Tensor) -> torch.Tensor | None:
        return self._passed[id(real)][1] if id(real) in self._passed else None

    def _updated(self, real: torch.Tensor, twin: torch.Tensor) -> torch.Tensor:
        if not tensors.same_form(real, twin):
            return tensors.copy_tensor(real, StorageCopies([real], self.widening))
        with torch.inference_mode(twin.is_inference()), torch.no_grad():
            twin.copy_(real)
        return twin if self.widening is None else self.widening(twin)
