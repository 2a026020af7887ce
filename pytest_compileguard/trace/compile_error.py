"""Words an error of the compiled call: what, where in the user's code, what to do."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator

from pytest_compileguard.code_origin import is_users
from pytest_compileguard.observation import CodeLine
from pytest_compileguard.source import source_line

_NO_COMPILER = (
    "install a C++ compiler (the variable CXX names it), or check facts and parity with "
    'backend="aot_eager"'
)
_OTHERWISE = (
    'make the call by backend="eager", "aot_eager" and "aot_eager_decomp_partition": the first one '
    "that raises names the stage at fault; until that is mended, keep the code out of the graph by "
    "torch.compiler.disable"
)
_OPERATOR = re.compile(r"\b(?:torch\.ops|extern_kernels)\.[\w.]*\w")
_GENERATED = "torchinductor"
_USER_FRAME = re.compile(r'^\s*File "(.+?)", line (\d+), in (\S+)$', re.MULTILINE)


def explain_error(error: BaseException) -> tuple[str, str]:
    """Word an error of the compiled call, and the remedy if one is known."""
    names = {type(link).__name__ for link in _chain(error)}
    text = first_lines(str(error))
    if "InvalidCxxCompiler" in names or "InvalidCxxCompiler" in str(error):
        return "no working C++ compiler was found, inductor needs one", _NO_COMPILER
    if "OutOfMemoryError" in names:
        return f"out of device memory in the shadow call: {text}", "use smaller inputs in this test"
    place = _USER_FRAME.findall(str(error).partition("from user code:")[2])
    where = f"\nat {place[-1][0]}:{place[-1][1]} in {place[-1][2]}" if place else ""
    return f"{type(error).__name__}: {text}{where}", ""


def explain_run_error(error: Exception) -> tuple[str, str]:
    """Word an error that compiled code raised as it ran, with the operator where that is known."""
    text, remedy = explain_error(error)
    if remedy:
        return text, remedy
    stack = traceback.extract_tb(error.__traceback__)
    operators = [match[0] for entry in stack if (match := _OPERATOR.search(entry.line or ""))]
    own = [e for e in stack if is_users(e.filename) and _GENERATED not in e.filename]
    told = f"compiled code raised {type(error).__name__}, eager did not: {first_lines(str(error))}"
    told += f"\nat {own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else ""
    return told + (f"\nin the operator {operators[-1]}" if operators else ""), _OTHERWISE


def raised_at(traceback: str) -> CodeLine | None:
    """Find where an error of compiling was raised: the user's innermost line, else the last one.

    What torch appends as user code is what was compiled, and raised nothing.
    """
    entries = _USER_FRAME.findall(traceback.partition("from user code:")[0])
    own = [entry for entry in entries if is_users(entry[0])]
    if not entries:
        return None
    file, number, function = (own or entries)[-1]
    source = source_line(file, int(number))
    return CodeLine(file=file, line=int(number), function=function, source=source, role="raise")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what caused it, each once."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def first_lines(text: str, count: int = 6) -> str:
    """Keep of the text of an error what tells most, without empty lines."""
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip()]
    return "\n".join(lines[:count])
