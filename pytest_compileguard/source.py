"""Looks at the source of the code under test: the text of a line, the function around it."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache


def source_line(file: str, line: int) -> str:
    """Read the text of a line, stripped; empty if the file can't be read."""
    return linecache.getline(file, line).strip()


def enclosing_function(file: str, line: int) -> int | None:
    """First line (decorators included) of the innermost function around a line.

    ``None`` if the source can't be read or parsed, or the line lies in no function.
    """
    around = [span for span in _functions(file) if span[0] <= line <= span[1]]
    return max(around)[0] if around else None


@lru_cache(maxsize=64)
def _functions(file: str) -> tuple[tuple[int, int], ...]:
    """First and last line of each function and lambda of a file."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    spans = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            spans.append((first, node.end_lineno or node.lineno))
        elif isinstance(node, ast.Lambda):
            spans.append((node.lineno, node.end_lineno or node.lineno))
    return tuple(spans)
