"""The table of rooms in CONTRIBUTING, held: who may import whom, torch and pytest."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

import pytest_compileguard

Access = Literal["no", "types", "lazily", "via", "yes"]
STRENGTH: dict[Access, int] = {"no": 0, "types": 1, "lazily": 2, "via": 2, "yes": 3}


class Room(NamedTuple):
    """What one file, or one folder, may import. ``via``: torch comes in by the rooms it uses."""

    torch: Access = "no"
    pytest: Access = "no"


# In the order of their layers: each imports only from rooms that stand above it.
ROOMS: dict[str, Room] = {
    "errors": Room(),
    "observation": Room(),
    "environment": Room(torch="lazily"),
    "finding": Room(),
    "metrics": Room(),
    "limit_values": Room(),
    "spec": Room(pytest="lazily"),
    "option_values": Room(),
    "option_list": Room(),
    "options": Room(pytest="types"),
    "contradictions": Room(),
    "plan": Room(),
    "source": Room(),
    "code_origin": Room(),
    "allowance": Room(),
    "log_capture": Room(),
    "answers": Room(),
    "training_step": Room(),
    "target": Room(),
    "compile_branches": Room(),
    "trace/compile_error": Room(),
    "trace/guard_text": Room(),
    "trace/recompile_reasons": Room(),
    "trace/event": Room(),
    "trace/dynamic_inputs": Room(),
    "trace/break_text": Room(),
    "trace/frames": Room(),
    "trace/given_up": Room(),
    "trace/compiles": Room(),
    "trace/inductor": Room(),
    "trace/graph_text": Room(),
    "trace/texts": Room(),
    "trace/code_digest": Room(),
    "dynamo": Room(torch="yes"),
    "isolation": Room(torch="yes"),
    "parity": Room(torch="yes"),
    "shadow/compiling": Room(torch="yes"),
    "shadow/inlined": Room(torch="yes"),
    "shadow/mirrors": Room(torch="yes"),
    "shadow/gradient_names": Room(torch="via"),
    "shadow/inputs": Room(torch="yes"),
    "shadow/prepared": Room(torch="yes"),
    "shadow/apart": Room(torch="yes"),
    "shadow/float64": Room(torch="yes"),
    "shadow/call": Room(torch="yes"),
    "shadow/failing": Room(torch="yes"),
    "shadow/isolated": Room(torch="yes"),
    "shadow/idle": Room(torch="yes"),
    "shadow/captured": Room(torch="yes"),
    "shadow/other_implementation": Room(torch="yes"),
    "shadow/locating": Room(torch="yes"),
    "reproduction": Room(torch="yes"),
    "artifacts": Room(torch="via"),
    "shadow/both_sides": Room(torch="yes"),
    "fallbacks": Room(torch="via"),
    "facts": Room(torch="via"),
    "watch": Room(torch="via"),
    "timing/stats": Room(),
    "timing/clock": Room(torch="lazily"),
    "timing/conditions": Room(torch="lazily"),
    "timing/device_lock": Room(torch="lazily"),
    "timing/gpu_state": Room(),
    "timing/disturbance": Room(),
    "timing/cpu_contention": Room(),
    "timing/sampling": Room(),
    "timing/blocks": Room(torch="types"),
    "timing/replay": Room(torch="yes"),
    "timing/run": Room(torch="types"),
    "timing/measuring": Room(torch="yes"),
    "timing/device_usage": Room(torch="yes"),
    "timing/warm_calls": Room(torch="via"),
    "gpu_pinning": Room(),
    "own_setup": Room(torch="via"),
    "runner": Room(torch="via"),
    "guarded": Room(),
    "progress": Room(),
    "guardable": Room(),
    "guard": Room(),
    "baseline/git": Room(),
    "baseline/entries": Room(),
    "baseline/entry_text": Room(),
    "baseline/storable": Room(),
    "baseline/reading": Room(),
    "baseline/places": Room(),
    "baseline/store": Room(),
    "baseline/look_up": Room(),
    "baseline/change": Room(),
    "baseline/pruning": Room(),
    "baseline/recording": Room(),
    "findings/wording": Room(),
    "speed": Room(),
    "findings/recompile_text": Room(),
    "findings/limit": Room(),
    "findings/breaks": Room(),
    "findings/inductor": Room(),
    "findings/compilation": Room(),
    "findings/departure_text": Room(),
    "findings/parity": Room(),
    "findings/cost": Room(),
    "findings/bottleneck": Room(),
    "findings/speed": Room(),
    "findings/code_change": Room(),
    "findings/baseline_advice": Room(),
    "findings/baseline_speed": Room(),
    "findings/baseline": Room(),
    "verdict": Room(),
    "baseline/orphans": Room(),
    "baseline/renames": Room(),
    "report": Room(),
    "benchmark_export": Room(),
    "benchmark_timer": Room(torch="lazily"),
    "outputs": Room(),
    "session": Room(),
    "cli": Room(),
    "collection": Room(pytest="yes"),
    "selection": Room(pytest="yes"),
    "phases": Room(),
    "failing": Room(pytest="yes"),
    "screen": Room(pytest="yes"),
    "plugin": Room(pytest="yes"),
    "__init__": Room(),
    "__main__": Room(),
}
LAYER = {name: number for number, name in enumerate(ROOMS)}

HOME = Path(pytest_compileguard.__file__).parent
CONTRIBUTING = Path(__file__).parents[1] / ".github" / "CONTRIBUTING.md"
FOLDERS = {name.partition("/")[0] for name in ROOMS if "/" in name}
"""Folders whose files are rooms of their own."""
FILES = sorted(
    file
    for file in HOME.rglob("*.py")
    if file.name != "__init__.py" or file.parent.name not in FOLDERS
)
PRIVATE = re.compile(r"torch\._(dynamo|inductor|functorch|logging|C|guards|subclasses)\b")


class Import(NamedTuple):
    """One import statement, and how early it runs."""

    module: str
    level: Access


def room_of(file: Path) -> str:
    return room_named(file.relative_to(HOME).with_suffix("").parts)


def room_named(parts: Sequence[str]) -> str:
    return "/".join(parts[:2]) if parts[0] in FOLDERS else parts[0]


def imports_of(file: Path) -> list[Import]:
    return list(_imports(ast.parse(file.read_text(encoding="utf-8")), "yes"))


def _imports(node: ast.AST, level: Access) -> Iterator[Import]:
    """Walk down; ``level`` weakens below a function or ``if TYPE_CHECKING``."""
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, level) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        yield from (Import(f"{base}.{alias.name}", level) for alias in node.names)
    elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        for statement in node.body:
            yield from _imports(statement, "types")
        for statement in node.orelse:
            yield from _imports(statement, level)
    else:
        deferred = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and level == "yes"
        for child in ast.iter_child_nodes(node):
            yield from _imports(child, "lazily" if deferred else level)


def strongest(file: Path, package: str) -> Access:
    levels = [i.level for i in imports_of(file) if i.module.split(".")[0] == package]
    return max(levels, key=STRENGTH.__getitem__, default="no")


def rooms_imported(file: Path) -> list[tuple[str, Access]]:
    """Rooms that ``file`` imports, apart from its own."""
    found = []
    for module, level in imports_of(file):
        parts = module.split(".")
        # The version is no room: it stands in the package itself, above all imports.
        if parts[0] != HOME.name or len(parts) < 2 or parts[1] == "__version__":
            continue
        named = room_named(parts[1:])
        room = named if named in ROOMS or (HOME / f"{named}.py").exists() else "__init__"
        if room != room_of(file):
            found.append((room, level))
    return found


def name_of(file: Path) -> str:
    return str(file.relative_to(HOME))


def test_table_lists_every_room() -> None:
    assert {room_of(file) for file in FILES} == set(ROOMS)


def test_contributing_shows_the_same_table() -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w/]+?)/?` \| .+ \| (\w+) / (\w+) \|$", text, re.MULTILINE)
    assert rows == [(name, room.torch, room.pytest) for name, room in ROOMS.items()]


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports_go_one_way(file: Path) -> None:
    layer = LAYER[room_of(file)]
    wrong = [
        room for room, level in rooms_imported(file) if level != "types" and LAYER[room] >= layer
    ]
    assert not wrong, f"{name_of(file)} imports rooms that stand below it: {wrong}"


@pytest.mark.parametrize("package", ("torch", "pytest"))
@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_torch_and_pytest_stay_where_they_may(file: Path, package: str) -> None:
    allowed: Access = getattr(ROOMS[room_of(file)], package)
    found = strongest(file, package)
    assert STRENGTH[found] <= STRENGTH[allowed], f"{name_of(file)}: {package} {found}"


def test_only_the_named_rooms_load_torch() -> None:
    loads = {name for name, room in ROOMS.items() if room.torch == "yes"}
    edges = [
        (room_of(file), room)
        for file in FILES
        for room, level in rooms_imported(file)
        if level == "yes"
    ]
    for _ in ROOMS:
        loads |= {user for user, used in edges if used in loads}
    assert loads == {name for name, room in ROOMS.items() if room.torch in {"yes", "via"}}


def test_nothing_imports_the_hooks() -> None:
    users = [name_of(file) for file in FILES if "plugin" in dict(rooms_imported(file))]
    assert not users


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_private_names_of_the_compiler_stay_in_one_room(file: Path) -> None:
    found = private_names_in(file)
    assert room_of(file) == "dynamo" or not found, f"{name_of(file)} names {found}"


def test_private_names_are_recognised_where_they_stand() -> None:
    known = [file for file in FILES if room_of(file) == "dynamo" and private_names_in(file)]
    assert len(known) > 3


def private_names_in(file: Path) -> list[str]:
    return sorted(set(_private_names(ast.parse(file.read_text(encoding="utf-8")))))


def _private_names(tree: ast.AST) -> Iterator[str]:
    """Find them in imports, attributes, and strings that are nothing but such a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            texts = [module for module, _ in _imports(node, "yes")]
        elif isinstance(node, ast.Attribute):
            texts = [ast.unparse(node)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts = [] if " " in node.value else [node.value]
        else:
            texts = []
        yield from (hit.group() for text in texts for hit in [PRIVATE.match(text)] if hit)
