"""Names a target, its arguments and its code, as reports and isolation need them."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any


def target_name(target: Any) -> str:
    """Name of a function or method, or of the class of a module or callable object."""
    while isinstance(target, functools.partial):
        target = target.func
    inner = getattr(target, "_orig_mod", None)
    if inner is not None:
        target = inner
    if isinstance(target, types.MethodType):
        owner = target.__self__
        kind = owner if isinstance(owner, type) else type(owner)
        return f"{kind.__name__}.{target.__name__}"
    name = getattr(target, "__name__", None)
    return name if isinstance(name, str) else type(target).__name__


def argument_names(target: Any, count: int) -> tuple[str, ...]:
    """Parameter names of the first ``count`` positional arguments; ``args[i]`` beyond them."""
    called = getattr(target, "forward", target)
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in kinds][:count]
    return (*names, *(f"args[{i}]" for i in range(len(names), count)))


def own_code(target: Any) -> frozenset[types.CodeType]:
    """Code objects under which Dynamo may store what it compiles for a target.

    Two targets with code in common share compiled code. Submodules of torch's own
    classes are left out: they are inlined.
    """
    return frozenset(_code(target))


def _code(target: Any) -> Iterator[types.CodeType]:
    while isinstance(target, functools.partial):
        target = target.func
    target = getattr(target, "_torchdynamo_orig_callable", target)
    if isinstance(target, types.MethodType):
        yield from _code(target.__self__) if hasattr(target.__self__, "modules") else ()
        target = target.__func__
    if code := getattr(target, "__code__", None):
        yield code
    elif hasattr(target, "modules"):
        parts = [target, *(m for m in target.modules() if not _is_torch(type(m)))]
        forwards = (getattr(type(part), "forward", None) for part in parts)
        codes = (getattr(forward, "__code__", None) for forward in forwards)
        yield from (code for code in codes if code is not None)
    else:
        call = inspect.getattr_static(type(target), "__call__", None)
        yield from [call.__code__] if isinstance(call, types.FunctionType) else []


def _is_torch(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch"
