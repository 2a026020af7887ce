"""A failing call is saved with a program that makes it again, in a process of its own."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from pytest_compileguard.observation import MismatchKind
from pytest_compileguard.reproduction.saving import safe_name
from tests.conftest import Run, RunSuite

LIBRARY = """
import torch
from torch import nn

def scaled(graph, inputs):
    return lambda *args: [out * 1.5 for out in graph(*args)]

class Sevenfold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 7

def wrong_gradient(graph, inputs):
    return lambda *args: [Sevenfold.apply(out) for out in graph(*args)]

def forgetful(graph, inputs):
    for node in list(graph.graph.nodes):
        if "add_" in str(node.target):
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.recompile()
    return graph.forward

def copied(graph, inputs):
    return lambda *args: [out.clone() for out in graph(*args)]

def sine(x, *, scale=1):
    return x.sin() * scale

def shifted(x):
    return (x + 1).sin()

def counting(x, total):
    total.add_(x.sum())
    return x * 2

def flat(x):
    return x.view(-1)

def random(x):
    return nn.functional.dropout(x, 0.5)

def two_faced(x):
    return x + 1 if torch.compiler.is_compiling() else x

def total(out):
    return out["out"].sum()

class Refusing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise NotImplementedError("no backward pass")

@torch.compiler.disable
def refusing(x):
    return Refusing.apply(x)

def apart(x):
    return {"bad": refusing(x), "good": x.sin()}

def used(x):
    loss = x.sum()
    loss.backward()
    return {"bad": loss, "good": x.sin()}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return {"out": self.linear(x["in"])}
"""

SUITE = """
import torch
from torch import ones, randn
from library import *

def test_it(compileguard):
    torch.manual_seed(3)
    {body}
"""

DRIVER = """
import contextlib, io, json, runpy, sys
told = []
for file in sys.argv[1:]:
    text, code = io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(text):
            runpy.run_path(file, run_name="__main__")
    except SystemExit as stop:
        code = stop.code
    told.append((code, text.getvalue()))
print(json.dumps(told))
"""


def reproduced(*files: str) -> list[tuple[int, str]]:
    """Run programs in one fresh process, from another folder; exit codes and what they print."""
    command = [sys.executable, "-c", DRIVER, *(str(Path(file).resolve()) for file in files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return [(code, text) for code, text in json.loads(done.stdout)]


def failing(run_suite: RunSuite, body: str, *arguments: str) -> Run:
    run = run_suite(
        SUITE.format(body=body), "--compileguard-artifacts=saved", *arguments, library=LIBRARY
    )
    run.result.assert_outcomes(failed=1)
    return run


SHOWN = {
    "compileguard(sine, backend=scaled)(randn(3), scale=2)": "output: Tensor-likes are not close",
    "compileguard(Net(), backend=scaled)({'in': randn(2, 3)})": "output['out']: Tensor-likes",
    "compileguard(Net().forward, backend=wrong_gradient)({'in': randn(2, 3)})": (
        "gradient of linear.weight: Tensor-likes"
    ),
    "compileguard(counting, backend=forgetful)(ones(3), ones(1))": "argument[1] after the call",
    "compileguard(flat, backend=copied)(ones(2, 3))": "memory of output: compiled 'its own'",
    "compileguard(two_faced, backend='aot_eager', dynamic=False)(ones(2))": "output: Tensor-likes",
    "m = Net(); compileguard.training(m, torch.optim.SGD(m.parameters(), lr=1), total, "
    "backend=wrong_gradient)({'x': {'in': ones(2, 3)}})": "linear.weight.grad: Tensor-likes",
    "compileguard(sine, backend='eager', reference=shifted)(ones(2))": (
        "output against the reference: Tensor-likes"
    ),
    "compileguard(Net(), backend='eager', reference=Net())({'in': ones(2, 3)})": (
        "output['out'] against the reference: Tensor-likes"
    ),
    "compileguard(sine, backend=scaled)((x := ones(2, requires_grad=True)) * 1)": "gradient of",
    # Beside what can't be differentiated.
    "compileguard(apart, backend=wrong_gradient)(ones(2, requires_grad=True))": (
        "gradient of argument[0]: Tensor-likes"
    ),
    "compileguard(used, backend=wrong_gradient)(ones(2, requires_grad=True))": (
        "gradient of argument[0]: Tensor-likes"
    ),
}


def test_programs_show_the_differences(run_suite: RunSuite) -> None:
    tests = [
        SUITE.format(body=body).replace("test_it", f"test_{number:02}")
        for number, body in enumerate(SHOWN)
    ]
    run = run_suite("".join(tests), "--compileguard-artifacts=saved", library=LIBRARY)
    run.result.assert_outcomes(failed=len(SHOWN))
    run.result.stdout.fnmatch_lines(["*reproduce it: python saved/*/reproduce.py"])
    saved = [check["reproduction"] for check in run.checks]
    assert [(one["problem"], one["missing"]) for one in saved] == [("", [])] * len(SHOWN)

    told = reproduced(*(one["file"] for one in saved))
    assert [code for code, _ in told] == [1] * len(SHOWN)
    for (_, text), expected in zip(told, SHOWN.values(), strict=True):
        assert expected in text


def test_program_finds_no_difference_once_the_fault_is_mended(run_suite: RunSuite) -> None:
    saved = failing(run_suite, "compileguard(random, backend=scaled)(ones(50))").check
    Path("library.py").write_text(LIBRARY.replace("out * 1.5", "out * 1"), encoding="utf-8")
    ((code, text),) = reproduced(saved["reproduction"]["file"])
    assert (code, text.splitlines()[-1]) == (0, "no difference")


KINDS = {
    # Another structure, or another form.
    "compileguard(pair)(ones(3))": "output (type): compiled 'list', eager 'tuple'",
    "compileguard(typed)(ones(3))": "output: The values for attribute 'dtype' do not match",
    "compileguard(strided)(ones(3, 2))": "output: The values for attribute 'stride()'",
    "compileguard(severed)(ones(3, requires_grad=True))": "requires_grad: compiled False, eager",
    # State of the target, of its arguments and of what surrounds it.
    "compileguard(Counting())(ones(3))": "n after the call: compiled 2, eager 1",
    "compileguard(Keeping())(ones(3))": "items[0] after the call: Tensor-likes are not close",
    "compileguard(Buffered())(ones(3))": "seen after the call: Tensor-likes are not close",
    "compileguard(Naming())(ones(3))": "new after the call: compiled 1, eager nothing",
    "compileguard(Shared())(ones(3))": "Shared.total after the call: compiled 2, eager 1",
    "STATE['k'] = ones(3); compileguard(Global())(ones(3)); STATE['k'] = torch.zeros(3)": (
        "library:STATE['k'] after the call: Tensor-likes are not close"
    ),
    "STATE['k'] = ones(3); compileguard(plain)(ones(3)); STATE.clear()": (
        "library:STATE['k'] after the call: Tensor-likes are not close"
    ),
    "compileguard(adding)(ones(3))": "argument[0] after the call: Tensor-likes",
    "compileguard(viewed)(ones(3))": "memory of output: compiled 'its own', eager 'with argument",
    "compileguard(drawing)(ones(3))": "random numbers drawn (0): Tensor-likes",
    # Gradients.
    "compileguard(missing)(ones(3, requires_grad=True), ones(3, requires_grad=True))": (
        "gradient of argument[1]: compiled None, eager a Tensor of [3]"
    ),
    "compileguard(other)(ones(3, requires_grad=True))": "gradient of argument[0]: Tensor-likes",
    "compileguard(backward)(ones(3, requires_grad=True))": "argument[0].grad: Tensor-likes",
    "m = Counting(); compileguard.training(m, torch.optim.SGD(m.parameters(), lr=1), torch.sum)"
    "(ones(3))": "model.n after the call: compiled 2, eager 1",
    "suppressed(compileguard(raising))(ones(3))": (
        "exception: compiled raises nothing, eager raises ValueError"
    ),
}
TWO_FACED = """
import contextlib
import torch
from torch import nn

STATE = {}

def compiling():
    return torch.compiler.is_compiling()

def suppressed(guarded):
    def call(x):
        with contextlib.suppress(ValueError):
            guarded(x)
    return call

def pair(x):
    return [x, x + 1] if compiling() else (x, x + 1)

def typed(x):
    return x.double() if compiling() else x * 1

def strided(x):
    return (x * 2).t().contiguous().t() if compiling() else x * 2

def severed(x):
    return (x * 2).detach() if compiling() else x * 2

def plain(x):
    STATE["k"] = STATE["k"] * (3 if compiling() else 2)
    return x * 2

def adding(x):
    x += 2 if compiling() else 1
    return x * 2

def viewed(x):
    return x.view(-1).clone() if compiling() else x.view(-1)

def drawing(x):
    if compiling():
        torch.rand(2)
    return x * 2

def missing(x, y):
    return x * 2 + (y.detach() if compiling() else y)

def other(x):
    return x * 2 + (0 if compiling() else x - x.detach())

def backward(x):
    (x * (3 if compiling() else 2)).sum().backward()
    return x.detach() * 2

def raising(x):
    if compiling():
        return x * 2
    raise ValueError("no")

class Net(nn.Module):
    total = 0

    def __init__(self):
        super().__init__()
        self.n = 0
        self.items = []
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.leave(x, 2 if compiling() else 1)
        return x * self.scale

class Counting(Net):
    def leave(self, x, count):
        self.n += count

class Keeping(Net):
    def leave(self, x, count):
        self.items.append(x * count)

class Buffered(Net):
    def leave(self, x, count):
        self.seen += count

class Naming(Net):
    def leave(self, x, count):
        if count == 2:
            self.new = 1

class Shared(Net):
    total = 0

    def leave(self, x, count):
        Shared.total += count

class Global(Net):
    def leave(self, x, count):
        STATE["k"] = STATE["k"] * count + x
"""


def test_each_kind_of_difference_is_shown_until_it_is_mended(run_suite: RunSuite) -> None:
    marked = SUITE.replace("def test", "@pytest.mark.compile_check(backend='aot_eager')\ndef test")
    tests = [
        marked.format(body=body).replace("test_it", f"test_{number:02}")
        for number, body in enumerate(KINDS)
    ]
    arguments = ("--compileguard-artifacts=saved", "--compileguard-no-locate")
    run = run_suite("import pytest\n" + "".join(tests), *arguments, library=TWO_FACED)
    run.result.assert_outcomes(failed=len(KINDS))
    seen = [check["mismatches"] for check in run.checks]
    assert {m["kind"] for found in seen for m in found} == set(get_args(MismatchKind))
    saved = [check["reproduction"] for check in run.checks]
    assert not any(one["unshown"] for one in saved)

    told = reproduced(*(one["file"] for one in saved))
    for body, (code, text) in zip(KINDS, told, strict=True):
        assert (code, KINDS[body] in text) == (1, True), (body, text)
    mended = TWO_FACED.replace("torch.compiler.is_compiling()", "False")
    Path("library.py").write_text(mended, encoding="utf-8")
    told = reproduced(*(one["file"] for one in saved))
    assert [code for code, _ in told] == [0] * len(KINDS), told


def test_what_the_program_cannot_show_is_not_offered_as_a_reproduction(
    run_suite: RunSuite,
) -> None:
    library = TWO_FACED + "\nSTATE['function'] = lambda: 1\n"
    body = "STATE['k'] = ones(3); compileguard(plain, backend='aot_eager')(ones(3))"
    run = run_suite(SUITE.format(body=body), "--compileguard-artifacts=saved", library=library)
    run.result.assert_outcomes(failed=1)
    text = "*the call is saved, but can't show this (what STATE['k'] belongs to can't be saved): *"
    run.result.stdout.fnmatch_lines([text.replace("[", "[[]")])
    run.result.stdout.no_fnmatch_line("*reproduce it*")


def test_what_cannot_be_found_by_name_is_said_to_be_missing(run_suite: RunSuite) -> None:
    run = failing(run_suite, "compileguard(lambda x: x.sin(), backend=scaled)(ones(3))")
    saved = run.check["reproduction"]
    run.result.stdout.fnmatch_lines(["*to be filled in: the target can't be imported by name*"])
    ((code, text),) = reproduced(saved["file"])
    assert code == 2
    assert "missing: the target can't be imported by name" in text


def test_inputs_load_without_running_code(run_suite: RunSuite) -> None:
    failing(run_suite, "compileguard(sine, backend=scaled)(randn(3))")
    (file,) = Path("saved").glob("*/reproduce.py")
    assert "'weights_only': True" in file.read_text(encoding="utf-8")


def test_nothing_is_saved_unless_asked_for_or_where_nothing_fails(run_suite: RunSuite) -> None:
    run = run_suite(
        SUITE.format(body="compileguard(sine, backend='aot_eager')(ones(3))"),
        "--compileguard-artifacts=saved",
        library=LIBRARY,
    )
    run.result.assert_outcomes(passed=1)
    run = run_suite(
        SUITE.format(body="compileguard(sine, backend=scaled)(ones(3))"), library=LIBRARY
    )
    assert run.check["reproduction"] is None
    assert not Path("saved").exists()


def test_folder_that_cannot_be_made_is_told(run_suite: RunSuite) -> None:
    Path("saved").write_text("a file", encoding="utf-8")
    run = failing(run_suite, "compileguard(sine, backend=scaled)(ones(3))")
    run.result.stdout.fnmatch_lines(["*no reproduction was saved: can't write to saved*"])


@pytest.mark.parametrize(
    "key",
    ("../../etc/passwd", "/abs", "a" * 500, "t.py::t[../..]::n", "..", "", "nul\0", "\udc80", "ü"),
)
def test_names_of_folders_are_safe(key: str) -> None:
    name = safe_name(key)
    assert Path(name).name == name
    assert set(name) <= set("-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    assert 10 < len(name) < 100
    assert safe_name(key + "x") != name


def test_parameters_of_a_test_make_no_path(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import pytest, torch
        from library import *

        @pytest.mark.parametrize("name", ["../../up", "a/b'''; import os"])
        def test_it(compileguard, name):
            compileguard(sine, backend=scaled)(torch.ones(3))
        """,
        "--compileguard-artifacts=saved",
        library=LIBRARY,
    )
    run.result.assert_outcomes(failed=2)
    files = sorted(Path("saved").rglob("*.py"))
    assert len(files) == 2
    assert all(len(file.relative_to("saved").parts) == 2 for file in files)
    assert all(ast.parse(file.read_text(encoding="utf-8")).body for file in files)


EQUAL_NAMES = """
import torch
from torch import nn
import abc, other

STATE = {"k": torch.ones(3)}
OPEN = {"function": lambda: 1}

class Shared(abc.ABC):
    total = 0
    kept = torch.ones(3)
    opened = [lambda: 1]

class Net(nn.Module):
    def forward(self, x):
        count = 3 if torch.compiler.is_compiling() else 2
        Shared.total += count
        other.Shared.total += 10 * count
        STATE["k"] = STATE["k"] * count
        OPEN["x"] = Shared.opened
        return x * Shared.kept * STATE["k"]
"""
OTHER = "class Shared:\n    total = 0\n"


def test_only_what_cannot_be_saved_is_dropped_and_equal_names_are_kept_apart(
    run_suite: RunSuite,
) -> None:
    Path("other.py").write_text(OTHER, encoding="utf-8")
    body = """
    import other, library
    STATE['k'], Shared.kept, Shared.total, other.Shared.total = ones(3) * 5, ones(3) * 7, 1000, 2000
    compileguard(Net(), backend='aot_eager')(ones(3))
    """
    run = run_suite(SUITE.format(body=body), "--compileguard-artifacts=saved", library=EQUAL_NAMES)
    run.result.assert_outcomes(failed=1)
    ((code, text),) = reproduced(run.check["reproduction"]["file"])
    assert code == 1, text
    dropped = [line for line in text.splitlines() if line.startswith("notes: ")]
    assert [line.split(" ")[1] for line in dropped] == ["library:OPEN", "library:Shared.opened"]
    assert all("can't be saved" in line for line in dropped)
    assert "library:Shared.total after the call: compiled 1003, eager 1002" in text
    assert "other:Shared.total after the call: compiled 2030, eager 2020" in text
    assert "library:STATE['k'] after the call: Tensor-likes" in text
    assert "OPEN" not in text.replace(dropped[0], "")
