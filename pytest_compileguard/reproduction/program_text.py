"""Makes one file of the parts of the program that makes a saved call again."""

from __future__ import annotations

import ast
import inspect
import pprint
from types import ModuleType
from typing import Any

from pytest_compileguard.reproduction.program import (
    calling,
    differences,
    main,
    nested,
    settings,
    state,
)

_PARTS = (settings, nested, state, calling, differences, main)
"""In this order they stand in the file: what runs it is last."""
_BLANK = "SETTINGS: dict[str, Any] = {}\n"
_OWN = f"{__package__}.program."


def program_text(given: dict[str, Any], told: list[str]) -> str:
    """Write the whole program.

    Args:
        given: Its settings.
        told: Lines that stand above the settings.
    """
    sources = [_Source(part) for part in _PARTS]
    filled = f"SETTINGS: dict[str, Any] = {pprint.pformat(given, width=100, sort_dicts=False)}\n"
    bodies = "\n\n\n".join(source.body for source in sources)
    return "\n".join(
        (
            f'"""{inspect.getdoc(main)}\n"""\n',
            "from __future__ import annotations\n",
            *_imports([node for source in sources for node in source.imports]),
            "",
            bodies.replace(_BLANK, "\n".join([*told, filled]), 1),
            "",
        )
    )


class _Source:
    """The text of one part, its imports apart from the rest."""

    def __init__(self, part: ModuleType) -> None:
        text = inspect.getsource(part)
        nodes = [n for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom)]
        self.imports = [node for node in nodes if not _is_own(node)]
        self.body = "\n".join(text.splitlines()[nodes[-1].end_lineno :]).strip("\n")


def _is_own(node: ast.Import | ast.ImportFrom) -> bool:
    """Whether it imports another part, or stands at the head of every file."""
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    return module == "__future__" or module.startswith(_OWN)


def _imports(nodes: list[ast.Import | ast.ImportFrom]) -> list[str]:
    """Word what all parts import, each module once."""
    whole: set[str] = set()
    names: dict[str, set[str]] = {}
    for node in nodes:
        found = {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names.setdefault(str(node.module), set()).update(found)
        else:
            whole |= found
    taken = [f"from {name} import {', '.join(sorted(names[name]))}" for name in sorted(names)]
    return [*(f"import {name}" for name in sorted(whole)), *taken]
