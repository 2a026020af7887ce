"""Names a target, its arguments and its code, as reports and isolation need them."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

from pytest_compileguard.answers import answer, attribute, unwrapped
from pytest_compileguard.observation import CodeLine
from pytest_compileguard.source import source_line
from pytest_compileguard.training_step import TrainingStep

_MOST_DECORATOR_LINES = 50


def target_name(target: Any) -> str:
    """Name of a function or method, or of the class of a module or callable object."""
    while isinstance(target, functools.partial):
        target = target.func
    inner = attribute(target, "_orig_mod")
    if inner is not None:
        target = inner
    if isinstance(target, TrainingStep):
        return f"training({target_name(target.model)})"
    if isinstance(target, types.MethodType):
        owner = target.__self__
        kind = owner if isinstance(owner, type) else type(owner)
        return f"{kind.__name__}.{target.__name__}"
    name = attribute(target, "__name__")
    return name if isinstance(name, str) else type(target).__name__


def definition(target: Any) -> CodeLine | None:
    """Find the line that defines the function which calling the target runs, if it is Python."""
    if isinstance(target, types.MethodType):
        target = target.__func__
    function = unwrapped(next(_functions(target), None))
    function = attribute(function, "_torchdynamo_orig_callable", function)
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
    candidates = (target, attribute(target, "forward"), call)
    return any(answer(inspect.iscoroutinefunction, one, default=False) for one in candidates)


def argument_names(target: Any, count: int) -> tuple[str, ...]:
    """Parameter names of the first ``count`` positional arguments; ``args[i]`` beyond them."""
    called = attribute(target, "forward", target)
    signature = answer(inspect.signature, called, default=inspect.Signature())
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in signature.parameters.values() if p.kind in kinds][:count]
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
    return tuple(map(unwrapped, found.values()))


def _methods(target: Any) -> Iterator[Any]:
    while isinstance(target, functools.partial):
        target = target.func
    owner = target.model if isinstance(target, TrainingStep) else target
    owner = attribute(owner, "__self__", owner)
    if type(owner) is types.FunctionType or isinstance(owner, type):
        return
    kinds = dict.fromkeys(kind for part in _parts(owner) for kind in type(part).__mro__)
    for kind in kinds:
        if not is_torch(kind):
            yield from (part for part in vars(kind).values() if callable(part))


def _functions(target: Any) -> Iterator[Any]:
    """The functions that calling a target begins with."""
    while isinstance(target, functools.partial):
        target = target.func
    target = attribute(target, "_torchdynamo_orig_callable", target)
    if isinstance(target, type):
        return
    if isinstance(target, TrainingStep):
        yield from _functions(target.model)
        yield from _functions(target.loss_fn)
        yield from _functions(target.before_step) if target.before_step else ()
    elif isinstance(target, types.MethodType):
        yield from _forwards(target.__self__)
        yield target.__func__
    elif type(target) is types.FunctionType:
        yield target
    elif is_torch_module(target):
        yield attribute(type(target), "forward")
        yield from _forwards(target)
    else:
        yield inspect.getattr_static(type(target), "__call__", None)


def _forwards(owner: Any) -> Iterator[Any]:
    kinds = {type(part) for part in _parts(owner)} if is_torch_module(owner) else set()
    yield from (attribute(kind, "forward") for kind in kinds if not is_torch(kind))


def _parts(owner: Any) -> tuple[Any, ...]:
    """An object; with all modules in it, if it is a module of torch's that tells them."""
    return (
        answer(lambda: tuple(owner.modules()), default=()) if is_torch_module(owner) else (owner,)
    )


def is_torch_module(value: Any) -> bool:
    """Whether a value is an ``nn.Module``: torch is not loaded for this."""
    return is_torch_module_class(type(value))


def is_torch_module_class(kind: type) -> bool:
    """Whether a class is one of ``nn.Module``: torch is not loaded for this."""
    return any(k.__name__ == "Module" and is_torch(k) for k in kind.__mro__)


def _follow(function: Any, found: dict[types.CodeType, types.FunctionType]) -> None:
    """Add a function, and the helpers that it names, by their code.

    A file may have more of them in a row than Python may recurse.
    """
    left = [function]
    while left:
        function = left.pop()
        plain = unwrapped(function)
        if type(plain) is types.FunctionType and plain.__code__ not in found:
            found[plain.__code__] = function
            helpers = [h for h in named_values(plain) if type(h) is types.FunctionType]
            left += [helper for helper in reversed(helpers) if not is_torch(helper)]


def named_values(function: types.FunctionType) -> tuple[Any, ...]:
    """What a plain function names: globals, and what its closure holds."""
    cells = (cell for cell in function.__closure__ or () if not _is_empty(cell))
    named = (function.__globals__.get(name) for name in function.__code__.co_names)
    return (*named, *(cell.cell_contents for cell in cells))


def plain_functions(target: Any) -> tuple[types.FunctionType, ...]:
    """The functions of ``own_functions`` without their wrappers."""
    return tuple(map(unwrapped, own_functions(target)))


def _is_empty(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def is_torch(value: Any) -> bool:
    """Whether a function or class is torch's own."""
    return str(attribute(value, "__module__", "")).partition(".")[0] == "torch"


def kind_text(value: object) -> str:
    """Name the type of a value with its article: ``an int``."""
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeio' else 'a'} {kind}"
