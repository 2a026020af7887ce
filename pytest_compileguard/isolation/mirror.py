"""Copies a target and keeps the copy in step with it.

A mirror remembers the twin of each object that it met. Reflecting an object again
brings its twin to the object's present state, in place, so that the twin keeps its
identity from call to call, as Dynamo's guards demand. Parameters are shared, not
copied: a twin costs no parameter memory. Only a target that holds an optimizer gets
parameters of its own, since it writes to them.
"""

from __future__ import annotations

import collections
import copy
import enum
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from pytest_compileguard.isolation import tensors
from pytest_compileguard.isolation.functions import Cells, rebuild, stateful_names

_ATOMIC = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type,
    enum.Enum,
    types.ModuleType,
    types.BuiltinFunctionType,
    types.CodeType,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
    torch.SymInt,
)
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_SEQUENCES = (list, collections.deque)
# Where `module.compile()` keeps the compiled code.
_IN_PLACE = "_compiled_call_impl"


def is_compiler_mark(name: str) -> bool:
    """Whether an attribute is what ``torch.compile`` leaves on the object that it compiles."""
    return name in (_IN_PLACE, "_is_torch_compile") or name.startswith("_torchdynamo_")


class CompiledForm(Protocol):
    """How something that is compiled already can be taken apart and compiled again."""

    @property
    def plain(self) -> Any: ...
    @property
    def compile(self) -> Callable[[Any], Any]: ...


class Mirror:
    """Twins of one side of the shadow call.

    ``compiles`` says whether code that the target compiled itself is compiled again
    in the twin (the compiled side), or left plain (the eager side). ``widens`` turns
    floating tensors into float64 ones, for a reference.
    """

    def __init__(
        self,
        *,
        share_parameters: bool,
        compiled_form: Callable[[Any], CompiledForm | None],
        compiles: bool = False,
        widens: bool = False,
    ) -> None:
        self.notes: dict[str, None] = {}
        """What could not be copied and is shared, in words."""
        self.holds_optimizer = False
        self.shares_parameters = share_parameters
        self._compiled_form = compiled_form
        self._compiles = compiles
        self._widens = widens
        self._pairs: dict[int, tuple[Any, Any]] = {}
        self._paths: dict[int, str] = {}
        self._passed: dict[int, Any] = {}
        self._storages = tensors.StorageCopies()
        self._state_storages = tensors.StorageCopies()
        self._leaves: list[tuple[str, torch.Tensor]] = []
        self._keep = True

    def target(self, real: Any) -> Any:
        """Bring the twin of the target to the target's present state, and return it."""
        self._passed, self._keep = {}, True
        return self._reflect(real, "")

    def arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], names: tuple[str, ...]
    ) -> tuple[tuple[Any, ...], dict[str, Any], list[tuple[str, torch.Tensor]]]:
        """Copy the arguments of one call; also the leaves that gradients flow to, by path.

        ``names`` are those of the positional ones. Call it after ``target``: what an
        argument shares with the target stays shared.
        """
        leaves = pytree.tree_leaves((args, kwargs))
        found = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self._storages, self._leaves = tensors.StorageCopies(found), []
        self._keep = False
        copies = tuple(self._reflect(arg, n) for arg, n in zip(args, names, strict=True))
        named = {name: self._reflect(arg, name) for name, arg in kwargs.items()}
        return copies, named, self._leaves

    def state(self) -> dict[int, tuple[str, Any]]:
        """Path and twin of all that lives on from call to call, by its original's identity."""
        return {key: (self._paths[key], twin) for key, (_, twin) in self._pairs.items()}

    def _reflect(self, real: Any, path: str) -> Any:
        if isinstance(real, _ATOMIC):
            return real
        key = id(real)
        if key in self._passed:
            return self._passed[key][1]
        if isinstance(real, torch.Tensor):
            return self._tensor(real, path)
        form = self._compiled_form(real)
        if form is not None and form.plain is not real:
            return self._compiled(real, form, path)
        for kinds, reflect in _REFLECTIONS:
            if isinstance(real, kinds):
                return reflect(self, real, path)
        return self._object(real, path)

    def _remember(self, real: Any, twin: Any, path: str, *, keep: bool) -> None:
        # The original is kept too, so that its id can't be taken by another object.
        self._passed[id(real)] = (real, twin)
        if keep:
            self._pairs[id(real)] = (real, twin)
            self._paths[id(real)] = path

    def _known(self, real: Any) -> Any:
        pair = self._pairs.get(id(real))
        return None if pair is None else pair[1]

    def _compiled(self, real: Any, form: CompiledForm, path: str) -> Any:
        plain = self._reflect(form.plain, path)
        twin = self._known(real)
        if twin is None:
            twin = form.compile(plain) if self._compiles else plain
        self._remember(real, twin, path, keep=True)
        return twin

    def _tensor(self, real: torch.Tensor, path: str) -> torch.Tensor:
        if isinstance(real, torch.nn.Parameter):
            return self._parameter(real, path)
        known = self._known(real)
        if known is not None:
            twin = self._updated(real, known)
        elif self._keep:
            twin = tensors.copy_tensor(real, self._state_storages)
        else:
            twin = tensors.copy_tensor(real, self._storages)
        if self._widens:
            twin = tensors.widened(twin)
        keep = self._keep or known is not None
        self._remember(real, twin, path, keep=keep)
        if not keep and twin.requires_grad:
            self._leaves.append((path, twin))
            if not real.is_leaf:
                twin = tensors.as_non_leaf(twin)
                self._remember(real, twin, path, keep=False)
        return twin

    def _updated(self, real: torch.Tensor, twin: torch.Tensor) -> torch.Tensor:
        if not tensors.same_form(real, twin):
            return tensors.copy_tensor(real, tensors.StorageCopies([real]))
        with torch.no_grad(), torch.inference_mode(twin.is_inference()):
            twin.copy_(real)
        return twin

    def _parameter(self, real: torch.nn.Parameter, path: str) -> torch.nn.Parameter:
        twin = self._known(real)
        data = real.detach()
        if twin is None:
            if self._widens:
                data = tensors.widened(data)
            elif not self.shares_parameters:
                data = data.clone()
            twin = torch.nn.Parameter(data, requires_grad=real.requires_grad)
            tensors.copy_attributes(real, twin)
        elif not self.shares_parameters:
            with torch.no_grad():
                twin.copy_(data)
        elif twin.data_ptr() != real.data_ptr() or twin.size() != real.size():
            twin.data = data
        if twin.requires_grad != real.requires_grad:
            twin.requires_grad_(real.requires_grad)
        self._remember(real, twin, path, keep=True)
        return twin  # type: ignore[no-any-return]

    def _mapping(self, real: Any, path: str) -> Any:
        return self._entries(real, path, "{path}[{key!r}]")

    def _entries(self, real: Any, path: str, form: str) -> Any:
        exact = type(real) in _MAPPINGS
        twin = self._known(real) if exact else None
        if twin is None:
            twin = copy.copy(real)
        self._remember(real, twin, path, keep=self._keep and exact)
        entries = {
            self._reflect(key, path): self._reflect(
                value, form.format(path=path, key=key).lstrip(".")
            )
            for key, value in list(real.items())
        }
        if list(twin) != list(entries):
            twin.clear()
        # Some subclasses forbid changes through their own methods.
        ordered = isinstance(real, collections.OrderedDict)
        put = collections.OrderedDict.__setitem__ if ordered else dict.__setitem__
        for key, value in entries.items():
            put(twin, key, value)
        return twin

    def _sequence(self, real: Any, path: str) -> Any:
        twin = self._known(real)
        if twin is None:
            twin = copy.copy(real)
        self._remember(real, twin, path, keep=self._keep)
        items = [self._reflect(item, f"{path}[{i}]") for i, item in enumerate(real)]
        twin.clear()
        twin.extend(items)
        return twin

    def _set(self, real: set[Any], path: str) -> set[Any]:
        twin = self._known(real)
        twin = copy.copy(real) if twin is None else twin
        self._remember(real, twin, path, keep=self._keep)
        items = [self._reflect(item, path) for item in real]
        twin.clear()
        twin.update(items)
        return twin  # type: ignore[no-any-return]

    def _tuple(self, real: tuple[Any, ...], path: str) -> tuple[Any, ...]:
        items = [self._reflect(item, f"{path}[{i}]") for i, item in enumerate(real)]
        if all(a is b for a, b in zip(items, real, strict=True)):
            return real
        if type(real) is tuple:
            return tuple(items)
        make = getattr(type(real), "_make", None)  # a named tuple
        return make(items) if make else tuple.__new__(type(real), items)

    def _weak(self, real: weakref.ref[Any], path: str) -> Any:
        referent = real()
        return real if referent is None else weakref.ref(self._reflect(referent, path))

    def _method(self, real: types.MethodType, path: str) -> types.MethodType:
        owner = self._reflect(real.__self__, path)
        function = self._reflect(real.__func__, path)
        same = owner is real.__self__ and function is real.__func__
        return real if same else types.MethodType(function, owner)

    def _partial(self, real: functools.partial[Any], path: str) -> functools.partial[Any]:
        function = self._reflect(real.func, path)
        args = self._reflect(real.args, path)
        keywords = {name: self._reflect(v, f"{path}{name}") for name, v in real.keywords.items()}
        return type(real)(function, *args, **keywords)

    def _function(self, real: types.FunctionType, path: str) -> Any:
        """Give a function cells and globals of its own where it holds state in them."""
        known = self._known(real)
        self._remember(real, real if known is None else known, path, keep=False)
        cells = Cells(
            closure=[self._reflect_cell(cell, path) for cell in real.__closure__ or ()],
            names={
                name: self._reflect(real.__globals__[name], name) for name in stateful_names(real)
            },
            defaults=self._reflect(real.__defaults__, path),
            keyword_defaults={
                name: self._reflect(value, name)
                for name, value in (real.__kwdefaults__ or {}).items()
            },
        )
        twin = rebuild(real, cells, known)
        self._remember(real, twin, path, keep=twin is not real)
        return twin

    def _reflect_cell(self, cell: types.CellType, path: str) -> Any:
        try:
            content = cell.cell_contents
        except ValueError:  # empty: the name is bound later
            return Cells.EMPTY
        return self._reflect(content, path)

    def _generator(self, real: torch.Generator, path: str) -> torch.Generator:
        twin = self._known(real)
        twin = torch.Generator(device=real.device) if twin is None else twin
        twin.set_state(real.get_state())
        self._remember(real, twin, path, keep=True)
        return twin  # type: ignore[no-any-return]

    def _object(self, real: Any, path: str) -> Any:
        """A module, an optimizer, or an object of the user's."""
        self.holds_optimizer |= isinstance(real, torch.optim.Optimizer)
        twin = self._known(real) if hasattr(real, "__dict__") else None
        if twin is None:
            twin = self._bare(real, path)
        if twin is real or not hasattr(twin, "__dict__"):
            self._passed[id(real)] = (real, twin)
            return twin
        keep, self._keep = self._keep, True
        self._remember(real, twin, path, keep=True)
        self._attributes(real, twin, path)
        self._compile_in_place(real, twin)
        self._keep = keep
        return twin

    def _attributes(self, real: Any, twin: Any, path: str) -> None:
        own, values = vars(twin), vars(real)
        for name in [n for n in own if n not in values and not is_compiler_mark(n)]:
            del own[name]
        for name, value in list(values.items()):
            # Modules keep their parts in three dictionaries that users never see.
            if name in ("_modules", "_parameters", "_buffers") and type(value) in _MAPPINGS:
                own[name] = self._entries(value, path, "{path}.{key}")
            elif not is_compiler_mark(name):
                own[name] = self._reflect(value, f"{path}.{name}".lstrip("."))

    def _compile_in_place(self, real: Any, twin: Any) -> None:
        """Repeat ``module.compile()`` on the twin: the compiled code belongs to one object."""
        if vars(real).get(_IN_PLACE) is None:
            vars(twin).pop(_IN_PLACE, None)
        elif self._compiles and _IN_PLACE not in vars(twin):
            form = self._compiled_form(real)
            if form is not None:
                vars(twin)[_IN_PLACE] = form.compile(twin)

    def _bare(self, real: Any, path: str) -> Any:
        """Make an empty object of the same class; copy or share what has a will of its own."""
        kind = type(real)
        plain = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__
        custom = "__deepcopy__" in dir(kind)
        if plain and not custom and hasattr(real, "__dict__") and not _has_slots(kind):
            try:
                return kind.__new__(kind)
            except TypeError:
                pass
        memo = {key: twin for key, (_, twin) in self._pairs.items()}
        try:
            twin = copy.deepcopy(real, memo)
        except Exception as error:  # noqa: BLE001  # any class may refuse in its own way
            name = path or "the target"
            self.notes[f"{name} is shared, not copied ({kind.__name__}: {error})"] = None
            twin = real
        self._remember(real, twin, path, keep=self._keep)
        return twin


def _has_slots(kind: type) -> bool:
    return any(getattr(base, "__slots__", ()) for base in kind.__mro__)


_REFLECTIONS: tuple[tuple[Any, Callable[[Mirror, Any, str], Any]], ...] = (
    (dict, Mirror._mapping),
    (_SEQUENCES, Mirror._sequence),
    (set, Mirror._set),
    (tuple, Mirror._tuple),
    (weakref.ref, Mirror._weak),
    (types.MethodType, Mirror._method),
    (functools.partial, Mirror._partial),
    (types.FunctionType, Mirror._function),
    (torch.Generator, Mirror._generator),
)
