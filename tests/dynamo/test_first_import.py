"""A module that a call imports for the first time: its code runs once, for no copy of the call."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

FILES = {
    "PK/__init__.py": "OPS = {}\nSCALE = 2\nCOUNT = 0\n",
    "PK/heavy.py": "import PK\nPK.OPS['double'] = lambda x: x * 2\n",
    "PK/scales.py": "import PK\nPK.SCALE = 3\n",
    "PK/light.py": "def f(x):\n    return x * 4\n",
    "PK/inner/__init__.py": "",
    "PK/inner/deep.py": "",
    "PK/above.py": """
from torch.compiler import is_compiling

PLANTED = False

def wrong():
    return int(PLANTED and is_compiling())

def binds_above(x):
    import PK.inner
    PK.SCALE = 1 + wrong()
    return x * 2

def binds_above_two(x):
    import PK.inner.deep
    PK.SCALE = 1 + wrong()
    return x * 2

def binds_above_by_string(x):
    import importlib
    importlib.import_module("PK.inner.deep")
    import sys
    setattr(sys.modules["PK"], "SCALE", 1 + wrong())
    return x * 2

def counts_above(x):
    import PK.inner.deep as deep
    import PK.inner
    PK.COUNT += 1 + wrong()
    return x * 2
""",
    "PK/targets.py": """
import os
import torch
import PK

@torch.compiler.disable
def load():
    import PK.heavy

@torch.compiler.disable
def load_scales():
    import PK.scales

def registers(x):
    load()
    return PK.OPS["double"](x)

def registers_itself(x):
    from PK import heavy
    return PK.OPS["double"](x)

def binds(x):
    load_scales()
    return x * PK.SCALE

def registers_and_binds(x):
    load_scales()
    return registers(x)

def needs_nothing(x):
    import PK.light
    return PK.light.f(x)

@torch.compiler.disable
def counts(x):
    import colorsys
    os.environ["LAZY_COUNT"] = str(int(os.environ.get("LAZY_COUNT", 0)) + 1)
    return x * int(os.environ["LAZY_COUNT"])

def counts_elsewhere(x):
    return counts(x)
""",
}
NUMBERS = itertools.count()
FIRST = "for the first time"


@pytest.fixture
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of a project whose package has parts that nothing has imported yet.

    It has a name of its own in each test: torch remembers the modules that code imports.
    """
    package = f"lazy_{next(NUMBERS)}"
    (tmp_path / package / "inner").mkdir(parents=True)
    for name, text in FILES.items():
        (tmp_path / name.replace("PK", package)).write_text(text.replace("PK", package))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    monkeypatch.setenv("LAZY_COUNT", "0")
    return importlib.import_module(f"{package}.targets")


def package_of(targets: Any) -> Any:
    return sys.modules[targets.__package__]


@pytest.mark.parametrize(
    ("name", "module", "copy"),
    (
        ("registers", "heavy", "raises KeyError"),
        ("registers_itself", "heavy", "raises KeyError"),
        ("binds", "scales", "computes something else"),
    ),
)
def test_what_its_code_registers_is_no_riddle(
    targets: Any, name: str, module: str, copy: str
) -> None:
    seen = check(getattr(targets, name), (torch.ones(3),))
    assert seen.verdict.outcome == "failed"
    assert f"a copy of the call {copy}" in seen.told, seen.told
    assert (
        f"the call imports {targets.__package__}.{module} {FIRST}, whose code runs once"
        in seen.told
    )
    assert "import it before the call" in seen.told
    assert "classes that are not copied" not in seen.told


def test_several_are_named(targets: Any) -> None:
    told = check(targets.registers_and_binds, (torch.ones(3),)).told
    both = ", ".join(f"{targets.__package__}.{name}" for name in ("heavy", "scales"))
    assert f"the call imports {both} {FIRST}" in told, told
    assert "import them before the call" in told


def test_imported_before_it_passes(targets: Any) -> None:
    for name in ("heavy", "scales"):
        importlib.import_module(f"{targets.__package__}.{name}")
    for name in ("registers", "registers_itself", "binds"):
        seen = check(getattr(targets, name), (torch.ones(3),))
        assert seen.verdict.outcome == "passed", seen.told


def test_only_the_first_call_says_so_and_the_test_keeps_what_it_left(targets: Any) -> None:
    told = check(targets.registers, *[(torch.ones(3),)] * 2).told
    assert FIRST in told, told
    assert [*package_of(targets).OPS] == ["double"]
    assert check(targets.registers, (torch.ones(3),)).verdict.outcome == "passed"


def test_one_that_registers_nothing_passes(targets: Any) -> None:
    seen = check(targets.needs_nothing, (torch.ones(3),))
    assert seen.verdict.outcome == "passed", seen.told


def test_other_state_is_not_put_down_to_a_module_of_others(targets: Any) -> None:
    told = check(targets.counts_elsewhere, (torch.ones(3),)).told
    assert "colorsys" in sys.modules
    assert "may keep state in globals or classes that are not copied" in told, told
    assert FIRST not in told


PARENTS = {
    "binds_above": "SCALE",
    "binds_above_two": "SCALE",
    "binds_above_by_string": "SCALE",
    "counts_above": "COUNT",
}


@pytest.mark.parametrize("name", PARENTS)
@pytest.mark.parametrize("planted", (False, True))
def test_an_import_binds_the_packages_above(targets: Any, name: str, *, planted: bool) -> None:
    importlib.import_module(f"{targets.__package__}.inner.deep")
    above: Any = importlib.import_module(f"{targets.__package__}.above")
    above.PLANTED = planted
    seen = check(getattr(above, name), (torch.ones(3),), locates=False)
    assert seen.verdict.outcome == ("failed" if planted else "passed"), seen.told
    assert not planted or f"{targets.__package__}.{PARENTS[name]}" in seen.told, seen.told
    assert getattr(package_of(targets), PARENTS[name]) == 1
