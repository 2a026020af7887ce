"""Graph breaks that the author of a test accepts on purpose.

An allowance is one of: the id of torch's registry (``GB0059``), a module (``torch.optim``,
``models.encoder``: all code in it and below), or a glob on the place (``*/encoder.py``,
``*/encoder.py:41``). A break in code of others also goes by the lines of the user's code that
lead to it: it is allowed if all of them are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath

import msgspec

from pytest_compileguard.code_origin import module_names
from pytest_compileguard.observation import BreakSite

DEFAULTS = ("torch.optim",)
"""torch breaks the graph in its own optimizers on purpose, and resumes after it."""

_ID = re.compile(r"^GB\d{4,}$")
_MODULE = re.compile(r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*$")


def allowed_sites(
    sites: Sequence[BreakSite], allowances: Sequence[str]
) -> tuple[tuple[BreakSite, ...], tuple[str, ...]]:
    """Mark the sites that are allowed; also the allowances that matched none of them."""
    wanted = (*allowances, *DEFAULTS)
    marked = tuple(
        msgspec.structs.replace(site, allowed=_is_allowed(site, wanted)) for site in sites
    )
    unused = (one for one in allowances if not any(_bears_on(site, one) for site in sites))
    return marked, tuple(unused)


def _is_allowed(site: BreakSite, allowances: Sequence[str]) -> bool:
    if any(_matches(site, one) for one in allowances):
        return True
    callers = site.called_from
    return bool(callers) and all(_any_at(line.file, line.line, allowances) for line in callers)


def _bears_on(site: BreakSite, allowance: str) -> bool:
    if _matches(site, allowance):
        return True
    return any(_any_at(line.file, line.line, [allowance]) for line in site.called_from)


def _matches(site: BreakSite, allowance: str) -> bool:
    if _ID.match(allowance):
        return site.id == allowance
    return _is_at(site.file, site.line, allowance)


def _any_at(file: str, line: int, allowances: Sequence[str]) -> bool:
    return any(_is_at(file, line, one) for one in allowances if not _ID.match(one))


def _is_at(file: str, line: int, allowance: str) -> bool:
    if _MODULE.match(allowance) and not allowance.endswith(".py"):
        return _in_module(file, allowance)
    file = PurePath(file).as_posix()
    places = (file, f"{file}:{line}")
    # A path as reports show it is relative.
    return any(fnmatchcase(p, allowance) or fnmatchcase(p, f"*/{allowance}") for p in places)


def _in_module(file: str, module: str) -> bool:
    """Whether a file is that module, or lies in that package."""
    return any(f"{name}.".startswith(f"{module}.") for name in module_names(file))
