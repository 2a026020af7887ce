"""Finds code that asks whether it is compiled, and so may do something else when it is."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator

from pytest_compileguard.code_origin import is_users
from pytest_compileguard.observation import CodeLine
from pytest_compileguard.source import source_line
from pytest_compileguard.target import every_function

_ASKING = ("is_compiling", "is_dynamo_compiling", "is_torchdynamo_compiling")


def compile_branches(target: object) -> tuple[CodeLine, ...]:
    """Give the lines of a target's own code, as far as it can be followed, that ask this."""
    codes = [function.__code__ for function in every_function(target)]
    lines = (line for code in codes if is_users(code.co_filename) for line in _asking(code))
    return tuple(dict.fromkeys(lines))


def _asking(code: types.CodeType) -> Iterator[CodeLine]:
    number = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = getattr(instruction, "line_number", instruction.starts_line)  # from 3.13 on
        number = line or number
        if instruction.argval in _ASKING:
            file = code.co_filename
            yield CodeLine(
                file=file, line=number, function=code.co_name, source=source_line(file, number)
            )
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _asking(part)
