"""Names a target, its arguments and its code, as reports and isolation need them."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

from pytest_compileguard.observation import CodeLine
from pytest_compileguard.source import source_line
from pytest_compileguard.training_step import TrainingStep

_MOST_DECORATOR_LINES = 50


def target_name(target: Any) -> str:
    """Name of a function or method, or of the class of a module or callable object."""
    while isinstance(target, functools.partial):
        target = target.func
    inner = getattr(target, "_orig_mod", None)
    if inner is not None:
        target = inner
    if isinstance(target, TrainingStep):
        return f"training({target_name(target.model)})"
    if isinstance(target, types.MethodType):
        owner = target.__self__
        kind = owner if isinstance(owner, type) else type(owner)
        return f"{kind.__name__}.{target.__name__}"
    name = getattr(target, "__name__", None)
    return name if isinstance(name, str) else type(target).__name__


def definition(target: Any) -> CodeLine | None:
    """Find the line that defines the function which calling the target runs, if it is Python."""
    if isinstance(target, types.MethodType):
        target = target.__func__
    function = next(_functions(target), None)
    function = inspect.unwrap(function) if callable(function) else function
    function = getattr(function, "_torchdynamo_orig_callable", function)
    if not isinstance(function, types.FunctionType):
        return None
    code = function.__code__
    line = _line_of_def(code.co_filename, code.co_firstlineno)
    return CodeLine(
        file=code.co_filename,
        line=line,
        function=code.co_name,
        source=source_line(code.co_filename, line),
        role="definition",
    )


def _line_of_def(file: str, first: int) -> int:
    """Skip decorators, at which the code of a function begins."""
    lines = range(first, first + _MOST_DECORATOR_LINES)
    if not source_line(file, first).startswith("@"):
        return first
    defs = (n for n in lines if source_line(file, n).startswith(("def ", "async def ")))
    return next(defs, first)


def is_coroutine(target: Any) -> bool:
    """Whether calling the target gives something to be awaited."""
    while isinstance(target, functools.partial):
        target = target.func
    call = inspect.getattr_static(type(target), "__call__", None)
    candidates = (target, getattr(target, "forward", None), call)
    return any(map(inspect.iscoroutinefunction, candidates))


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

    Two targets with code in common share compiled code: their own, or that of a helper
    that is compiled by itself since the graph breaks in it. torch's own code is left out:
    it is inlined.
    """
    return frozenset(function.__code__ for function in plain_functions(target))


def own_functions(target: Any) -> tuple[types.FunctionType, ...]:
    """Functions that run when a target is called, as far as they can be followed by their names.

    Those that are wrapped, by ``torch.compile`` for example, are given with their wrappers.
    """
    found: dict[types.CodeType, types.FunctionType] = {}
    for function in _functions(target):
        _follow(function, found)
    return tuple(found.values())


def every_function(target: Any) -> tuple[types.FunctionType, ...]:
    """Functions that may run when a target is called: with all methods of its objects."""
    found: dict[types.CodeType, types.FunctionType] = {}
    for function in (*_functions(target), *_methods(target)):
        _follow(function, found)
    return tuple(map(_plain, found.values()))


def _methods(target: Any) -> Iterator[Any]:
    while isinstance(target, functools.partial):
        target = target.func
    owner = target.model if isinstance(target, TrainingStep) else target
    owner = getattr(owner, "__self__", owner)
    if isinstance(owner, types.FunctionType | type):
        return
    parts = owner.modules() if hasattr(owner, "modules") else (owner,)
    kinds = dict.fromkeys(kind for part in parts for kind in type(part).__mro__)
    for kind in kinds:
        if not _is_torch(kind):
            yield from (part for part in vars(kind).values() if callable(part))


def _functions(target: Any) -> Iterator[Any]:
    """The functions that calling a target begins with."""
    while isinstance(target, functools.partial):
        target = target.func
    target = getattr(target, "_torchdynamo_orig_callable", target)
    if isinstance(target, type):
        return
    if isinstance(target, TrainingStep):
        yield from _functions(target.model)
        yield from _functions(target.loss_fn)
        yield from _functions(target.before_step) if target.before_step else ()
    elif isinstance(target, types.MethodType):
        yield from _forwards(target.__self__)
        yield target.__func__
    elif isinstance(target, types.FunctionType):
        yield target
    elif hasattr(target, "modules"):
        yield getattr(type(target), "forward", None)
        yield from _forwards(target)
    else:
        yield inspect.getattr_static(type(target), "__call__", None)


def _forwards(owner: Any) -> Iterator[Any]:
    parts = owner.modules() if hasattr(owner, "modules") and not isinstance(owner, type) else ()
    kinds = {type(part) for part in parts}
    yield from (getattr(kind, "forward", None) for kind in kinds if not _is_torch(kind))


def _follow(function: Any, found: dict[types.CodeType, types.FunctionType]) -> None:
    """Add a function, and the helpers that it names, by their code."""
    plain = _plain(function)
    if not isinstance(plain, types.FunctionType) or plain.__code__ in found:
        return
    found[plain.__code__] = function
    for helper in named_values(plain):
        if isinstance(helper, types.FunctionType) and not _is_torch(helper):
            _follow(helper, found)


def named_values(function: types.FunctionType) -> tuple[Any, ...]:
    """What a plain function names: globals, and what its closure holds."""
    cells = (cell for cell in function.__closure__ or () if not _is_empty(cell))
    named = (function.__globals__.get(name) for name in function.__code__.co_names)
    return (*named, *(cell.cell_contents for cell in cells))


def plain_functions(target: Any) -> tuple[types.FunctionType, ...]:
    """The functions of ``own_functions`` without their wrappers."""
    return tuple(map(_plain, own_functions(target)))


def _plain(function: Any) -> Any:
    return inspect.unwrap(function) if callable(function) else function


def _is_empty(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def _is_torch(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] == "torch"


def kind_text(value: object) -> str:
    """Name the type of a value with its article: ``an int``."""
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeio' else 'a'} {kind}"
