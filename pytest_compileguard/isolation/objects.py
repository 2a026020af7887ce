"""Mirrors functions, methods, modules, optimizers and objects of the user's."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import sys
import types
import weakref
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from pytest_compileguard.errors import IsolationError
from pytest_compileguard.isolation.arrays import flagged_as, is_array
from pytest_compileguard.isolation.containers import EXACT_MAPPINGS, reflect_entries
from pytest_compileguard.isolation.inner_state import inner_state, keeps_inside
from pytest_compileguard.isolation.ownership import file_of, is_users

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_compileguard.isolation.mirror import Mirror

# Where `module.compile()` keeps the compiled code.
_IN_PLACE = "_compiled_call_impl"


@functools.lru_cache(maxsize=1024)
def _slots_of(kind: Hashable) -> tuple[str, ...]:
    """Names of the attributes that a class keeps in slots, as the interpreter knows them."""
    return tuple(
        name
        for base in getattr(kind, "__mro__", ())
        if "__slots__" in vars(base)
        for name, value in vars(base).items()
        if isinstance(value, types.MemberDescriptorType)
    )


def _kind(value: Any) -> Any:
    return type(value)


def attributes_of(value: Any) -> dict[str, Any]:
    """Attributes of an object, in its dictionary or in slots."""
    found = dict(getattr(value, "__dict__", {}))
    for name in _slots_of(_kind(value)):
        with contextlib.suppress(AttributeError):  # not set yet
            found[name] = object.__getattribute__(value, name)
    return found


def _has_attributes(value: Any) -> bool:
    return hasattr(value, "__dict__") or bool(_slots_of(_kind(value)))


def is_compiler_mark(name: str) -> bool:
    """Whether an attribute is what ``torch.compile`` leaves on the object that it compiles."""
    return name in (_IN_PLACE, "_is_torch_compile") or name.startswith("_torchdynamo_")


def is_sentinel(value: Any) -> bool:
    """Whether an object holds nothing and is known by its identity, as ``object()`` is."""
    kind = type(value)
    if getattr(value, "__dict__", None):
        return False
    if not _has_attributes(value):
        made = [base for base in kind.__mro__ if base is not object]
        return all("__slots__" in vars(base) for base in made)
    # What users' modules bind may be given attributes: that is put back as a part of them.
    if attributes_of(value) or is_users(file_of(kind)):
        return False
    return any(bound is value for bound in vars(sys.modules.get(kind.__module__, kind)).values())


def reflect_object(mirror: Mirror, real: Any, path: str) -> Any:
    """A module, an optimizer, or an object of the user's: attributes are mirrored."""
    mirror.holds_optimizer |= isinstance(real, torch.optim.Optimizer)
    if is_sentinel(real):
        mirror.remember(real, real, path, keep=False)
        return real
    lasts = _has_attributes(real) and not is_array(real)  # items are copied for each call
    twin = mirror.known(real) if lasts else None
    if twin is None:
        twin = _bare(mirror, real, path)
    if twin is real or not _has_attributes(twin):
        mirror.remember(real, twin, path, keep=mirror.keeps and keeps_inside(twin))
        return twin
    if type(twin) is not type(real):  # a lazy module has become what it stood for
        twin.__class__ = type(real)
    with mirror.owned_by(real):
        keeps, mirror.keeps = mirror.keeps, True
        mirror.remember(real, twin, path, keep=True)
        _reflect_attributes(mirror, real, twin, path)
        if (inner := inner_state(real)) is not None:
            inner.put_back(twin)
        _compile_in_place(mirror, real, twin)
        mirror.keeps = keeps
    return twin


def _reflect_attributes(mirror: Mirror, real: Any, twin: Any, path: str) -> None:
    _reflect_slots(mirror, real, twin, path)
    if not hasattr(real, "__dict__"):
        return
    own, values = vars(twin), vars(real)
    for name in [n for n in own if n not in values and not is_compiler_mark(n)]:
        del own[name]
    for name, value in list(values.items()):
        # Modules keep their parts in three dictionaries that users never see.
        if name in ("_modules", "_parameters", "_buffers") and type(value) in EXACT_MAPPINGS:
            own[name] = reflect_entries(mirror, value, path, "{path}.{key}")
        elif not is_compiler_mark(name):
            place = f"{path}.{name}".lstrip(".")
            if name in own:
                mirror.adopt(value, own[name], place)
            own[name] = mirror.reflect(value, place)


def _reflect_slots(mirror: Mirror, real: Any, twin: Any, path: str) -> None:
    own, values = attributes_of(twin), attributes_of(real)
    for name in _slots_of(_kind(real)):
        if name in values:
            place = f"{path}.{name}".lstrip(".")
            if name in own:
                mirror.adopt(values[name], own[name], place)
            # Classes may forbid it through their own methods, as frozen ones do.
            object.__setattr__(twin, name, mirror.reflect(values[name], place))
        elif name in own:
            object.__delattr__(twin, name)


def _compile_in_place(mirror: Mirror, real: Any, twin: Any) -> None:
    """Repeat ``module.compile()`` on the twin: the compiled code belongs to one object."""
    if not hasattr(real, "__dict__"):
        return
    if vars(real).get(_IN_PLACE) is None:
        vars(twin).pop(_IN_PLACE, None)
    elif mirror.compiles and _IN_PLACE not in vars(twin):
        form = mirror.compiled_form(real)
        if form is not None:
            vars(twin)[_IN_PLACE] = form.compile(twin)


def _bare(mirror: Mirror, real: Any, path: str) -> Any:
    """Make an empty object of the same class; copy or share what has a will of its own."""
    if _is_plain(type(real)) and _has_attributes(real):
        return object.__new__(type(real))
    try:
        twin = copy.deepcopy(real, mirror.memo())
    except Exception as error:  # noqa: BLE001  # any class may refuse in its own way
        if isinstance(real, Iterator | io.IOBase) and not _is_only_written(real):
            # Sharing it would take from the test what the shadow reads.
            told = f"{path or 'the target'}, a {type(real).__name__}, is used up by reading"
            advice = _OPEN_OTHERWISE if isinstance(real, io.IOBase) else ""
            raise IsolationError(f"{told} and can't be copied{advice}") from None
        name, kind = path or "the target", type(real).__name__
        mirror.notes[f"{name} is shared, not copied ({kind}: {error})"] = None
        return real
    return flagged_as(real, twin)


_OPEN_OTHERWISE = "; read it before the call, or open it for writing alone"


def _is_only_written(value: Any) -> bool:
    """Whether it is a stream that is written to, as messages are: nobody reads from those.

    What stands in place of standard output may be readable, but ``open`` does not make its class.
    """
    if not isinstance(value, io.IOBase) or value.closed or not value.writable():
        return False
    stands_in = isinstance(value, io.TextIOBase) and type(value) is not io.TextIOWrapper
    return stands_in or not value.readable()


def _is_plain(kind: type) -> bool:
    """Whether attributes are all that an object of this class is made of."""
    overrides = any(
        name in vars(base)
        for base in kind.__mro__
        if base is not object
        for name in ("__new__", "__reduce__", "__reduce_ex__", "__deepcopy__")
    )
    native = kind.__flags__ & _HEAP_TYPE == 0
    return not overrides and not native


# Py_TPFLAGS_HEAPTYPE: the class was made by Python code.
_HEAP_TYPE = 1 << 9


def _reflect_weak(mirror: Mirror, real: weakref.ref[Any], path: str) -> Any:
    referent = real()
    return real if referent is None else weakref.ref(mirror.reflect(referent, path))


def _reflect_method(mirror: Mirror, real: types.MethodType, path: str) -> types.MethodType:
    owner = mirror.reflect(real.__self__, path)
    function = mirror.reflect(real.__func__, path)
    same = owner is real.__self__ and function is real.__func__
    twin = real if same else types.MethodType(function, owner)
    mirror.remember(real, twin, path, keep=False)  # its class is looked into
    return twin


def _reflect_partial(mirror: Mirror, real: functools.partial[Any], path: str) -> Any:
    # Dynamo inlines it into a frame of its own, so it is not the target's own function.
    function = mirror.reflect(real.func, path or "func")
    args = mirror.reflect(real.args, path)
    keywords = {name: mirror.reflect(v, f"{path}{name}") for name, v in real.keywords.items()}
    return type(real)(function, *args, **keywords)


def _reflect_generator(mirror: Mirror, real: torch.Generator, path: str) -> torch.Generator:
    known = mirror.known(real)
    twin = torch.Generator(device=real.device) if known is None else known
    twin.set_state(real.get_state())
    mirror.remember(real, twin, path, keep=True)
    return twin


REFLECTIONS: tuple[tuple[Any, Callable[[Mirror, Any, str], Any]], ...] = (
    (weakref.ref, _reflect_weak),
    (types.MethodType, _reflect_method),
    (functools.partial, _reflect_partial),
    (torch.Generator, _reflect_generator),
)
