"""Says how another process finds what this one calls by name."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import reduce
from pathlib import Path
from typing import Any

Place = tuple[str, str]


def place_of(value: Any) -> Place | None:
    """Module and qualified name under which a function or class is found, if it is."""
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str) or module == "__main__":
        return None
    try:
        found = reduce(getattr, qualname.split("."), sys.modules[module])
    except (KeyError, AttributeError):  # a lambda, or a function within a function
        return None
    same = found is value or getattr(found, "__code__", found) is getattr(value, "__code__", value)
    return (module, qualname) if same else None


def import_roots(modules: list[str], folder: Path) -> list[str]:
    """Folders that imports start from, beside those of Python itself, relative to ``folder``."""
    roots = [_root(name) for name in modules]
    roots += [Path(entry) for entry in sys.path if entry and Path(entry).is_dir()]
    own = dict.fromkeys(root.resolve() for root in roots if root is not None)
    return [_relative(root, folder) for root in own if not _is_installed(root)]


def _is_installed(root: Path) -> bool:
    """Whether any interpreter with the same packages finds it by itself."""
    standard = Path(sysconfig.get_path("stdlib")).resolve()
    packages = {"site-packages", "dist-packages"}
    return root.is_relative_to(standard) or bool(packages & set(root.parts))


def _root(module: str) -> Path | None:
    """The folder from which a module that is loaded can be imported under its name."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if not isinstance(file, str):
        return None
    path = Path(file)
    parts = list(path.parent.parts if path.stem == "__init__" else path.with_suffix("").parts)
    names = module.split(".")
    return Path(*parts[: -len(names)]) if parts[-len(names) :] == names else None


def _relative(path: Path, folder: Path) -> str:
    try:
        return Path(os.path.relpath(path, folder.resolve())).as_posix()
    except ValueError:  # on another drive
        return path.as_posix()
