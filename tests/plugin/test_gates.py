"""Each gate has a fault that it must catch, by itself: no other gate may be needed for it."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.conftest import RunSuite

FAULTY = '''
import torch


def sound(x):
    return torch.relu(x * 2 + 1)


def printing(x):
    y = x.sin()
    print("half way")
    return y.cos()


def break_in_loop(x):
    for _ in range(2):
        x = x.sin()
        print("again")
    return x


def calls_break_in_loop(x):
    return break_in_loop(x * 2).cos()


def unchanged(x):
    return x


def no_tensors(x):
    return [1, 2]


def adds_in_place(x):
    x.add_(1)
    return x * 2


def view(x):
    return x.view(-1)


def eager_only(x):
    if not torch.compiler.is_compiling():
        raise ValueError("not compiled")
    return x + 1


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen.add_(1)
        return x * 2


def backend(change):
    """A backend that spoils what the graph returns."""
    def compile(graph, inputs):
        return lambda *args: tuple(change(out) for out in graph(*args))
    return compile


off_by_one = backend(lambda out: out + 1)
in_double = backend(lambda out: out.double())
in_clones = backend(lambda out: out.clone())
wrong_slope = backend(lambda out: out + (out - out.detach()))
not_a_number = backend(lambda out: out * float("nan"))


def on_copies(graph, inputs):
    """A backend that forgets to write to the inputs."""
    return lambda *args: graph(*(arg.clone() for arg in args))


def broken(graph, inputs):
    raise RuntimeError("this backend is broken")


def broken_at_run_time(graph, inputs):
    def run(*args):
        raise RuntimeError("this kernel is broken")
    return run
'''
SUITE = """
import contextlib

import pytest
import torch
from torch import ones

import library
from pytest_compileguard import compile_check


def test_it(compileguard):
    {body}
"""


class Fault(NamedTuple):
    body: str
    metrics: tuple[str, ...]
    """The findings that fail; no other may, except as a consequence."""
    said: str


FAULTS = {
    "graph break": Fault(
        'compileguard(library.printing, backend="eager", max_graph_breaks=0)(ones(3))',
        ("graph_breaks",),
        "  graph breaks   observed 1    limit 0",
    ),
    "recompile": Fault(
        """guarded = compileguard(library.sound, backend="eager", dynamic=False, max_recompiles=0)
    for n in (2, 3):
        guarded(ones(n))""",
        ("recompiles",),
        "  recompiles     observed 1    limit 0",
    ),
    "one recompile more than allowed": Fault(
        """guarded = compileguard(library.sound, backend="eager", dynamic=False, max_recompiles=1)
    for n in (2, 3, 4):
        guarded(ones(n))""",
        ("recompiles",),
        "  recompiles     observed 2    limit 1",
    ),
    "frame given up": Fault(
        'compileguard(library.calls_break_in_loop, backend="eager")(ones(3))',
        ("fallbacks",),
        "  fallbacks      observed 1    limit 0",
    ),
    "whole target given up": Fault(
        'compileguard(library.break_in_loop, backend="eager")(ones(3))',
        ("compiled", "fallbacks"),
        "  compiled       nothing was compiled: 0 graphs in 1 call",
    ),
    "recompile limit hit": Fault(
        """guarded = compileguard(library.sound, backend="eager", dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=2):
        for n in (2, 3, 4):
            guarded(ones(n))""",
        ("fallbacks",),
        "torch's recompile limit was reached; from then on the frame runs eager",
    ),
    "a call ran eager": Fault(
        """guarded = compileguard(library.sound, backend="eager")
    guarded(ones(3))
    with torch.compiler.set_stance("force_eager"):
        guarded(ones(3))""",
        ("fallbacks",),
        "1 of 2 calls ran no compiled code: 2",
    ),
    "no graph": Fault(
        'compileguard(library.unchanged, backend="eager")(ones(3))',
        ("compiled",),
        "  compiled       nothing was compiled: 0 graphs in 1 call",
    ),
    "no tensor": Fault(
        'compileguard(library.no_tensors, backend="eager")(3)',
        ("compiled",),
        "  compiled       nothing was compiled: 0 graphs in 1 call",
    ),
    "compiler disabled": Fault(
        """with torch._dynamo.config.patch(disable=True):
        compileguard(library.sound, backend="eager")(ones(3))""",
        ("compiled",),
        "  compiled       nothing was compiled: 0 graphs in 1 call",
    ),
    "compiler raises": Fault(
        "compileguard(library.sound, backend=library.broken)(ones(3))",
        ("compiled",),
        "this backend is broken",
    ),
    "compiled code raises": Fault(
        "compileguard(library.sound, backend=library.broken_at_run_time)(ones(3))",
        ("compiled",),
        "this kernel is broken",
    ),
    "full graph": Fault(
        'compileguard(library.printing, backend="eager", fullgraph=True)(ones(3))',
        ("compiled",),
        "Failed to trace builtin operator",
    ),
    "wrong value": Fault(
        "compileguard(library.sound, backend=library.off_by_one)(ones(3))",
        ("parity",),
        "call 1, output: greatest difference",
    ),
    "not a number, whatever the tolerance": Fault(
        "compileguard(library.sound, backend=library.not_a_number, rtol=1e9, atol=1e9)(ones(3))",
        ("parity",),
        "call 1, output: ",
    ),
    "wrong type": Fault(
        "compileguard(library.sound, backend=library.in_double)(ones(3))",
        ("parity",),
        "float64",
    ),
    "wrong gradient": Fault(
        """x = ones(3, requires_grad=True)
    compileguard(library.sound, backend=library.wrong_slope)(x)""",
        ("parity",),
        "call 1, gradient of x: greatest difference",
    ),
    "mutation of an argument": Fault(
        "compileguard(library.adds_in_place, backend=library.on_copies)(ones(3))",
        ("parity",),
        "call 1, ",
    ),
    "mutation of a buffer": Fault(
        "compileguard(library.Counts(), backend=library.on_copies)(ones(3))",
        ("parity",),
        "seen",
    ),
    "aliasing": Fault(
        "compileguard(library.view, backend=library.in_clones)(ones(3))",
        ("parity",),
        "return a clone where callers must not see later writes",
    ),
    "exception": Fault(
        """with pytest.raises(ValueError, match="not compiled"):
        compileguard(library.eager_only, backend="eager")(ones(3))""",
        ("parity",),
        "ValueError",
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_fault_is_caught(run_suite: RunSuite, fault: Fault) -> None:
    run = run_suite(SUITE.format(body=fault.body), library=FAULTY)

    run.result.assert_outcomes(failed=1)
    failed = [f["metric"] for f in run.check["findings"] if f["status"] == "failed"]
    assert tuple(failed) == fault.metrics
    assert fault.said in run.text
    assert run.check["outcome"] == "failed"
    assert run.check["fails"]
    assert not run.check["recordable"]


SOUND = """
import pytest
from torch import ones

import library


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sound(compileguard, backend):
    limits = {"backend": backend, "max_graph_breaks": 0, "max_recompiles": 0}
    compileguard(library.sound, **limits)(ones(3, requires_grad=True))
    compileguard(library.adds_in_place, **limits)(ones(3))
    compileguard(library.view, **limits)(ones(3))
    counts = compileguard(library.Counts(), **limits)
    for _ in range(3):
        counts(ones(3))
"""


def test_nothing_is_blamed_without_a_fault(run_suite: RunSuite) -> None:
    """Without this the faults above could be those of the gates."""
    run = run_suite(SOUND, library=FAULTY)

    run.result.assert_outcomes(passed=2)
    assert {check["outcome"] for check in run.checks} == {"passed"}
    assert all(check["recordable"] for check in run.checks)
    assert len(run.checks) == 8


SPEED = """
import library
from torch import ones

from pytest_compileguard import compile_check


@compile_check(min_speedup=50, max_time_s=0.1, backend="eager")
def test_too_slow(compileguard):
    compileguard(library.sound)(ones(3))


@compile_check(min_speedup=0.001, max_time_s=0.1, backend="eager")
def test_fast_enough(compileguard):
    compileguard(library.sound)(ones(3))
"""


def test_a_promised_speedup_that_is_not_reached_fails(run_suite: RunSuite) -> None:
    run = run_suite(SPEED, library=FAULTY, timing=True)

    run.result.assert_outcomes(failed=1, passed=1)
    statuses = {f["limit"]: f["status"] for f in run.findings("speedup")}
    assert statuses == {50: "failed", 0.001: "passed"}
    run.result.stdout.fnmatch_lines(
        ["  speedup *observed *x *limit 50.00x *[[]*[]] at *wall clock"]
    )


def test_speedup_of_wrong_code_is_not_judged(run_suite: RunSuite) -> None:
    body = "compileguard(library.sound, backend=library.off_by_one, min_speedup=0.001)(ones(3))"

    run = run_suite(SUITE.format(body=body), library=FAULTY, timing=True)

    run.result.assert_outcomes(failed=1)
    assert run.status("parity") == "failed"
    assert run.status("speedup") == "inconclusive"
    assert run.check["observed"]["speedup"] is None


def test_a_call_that_ends_the_process_has_no_shadow_and_is_said(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import pytest
        import torch
        from library import double_relu

        def leaving(x, leave):
            if leave:
                raise SystemExit(1)
            return x.sin()

        def test_exit(compileguard):
            guarded = compileguard(leaving, backend="aot_eager")
            guarded(torch.ones(3), False)
            with pytest.raises(SystemExit):
                guarded(torch.ones(3), True)
        """
    )
    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(["*call 2: the call raised SystemExit*"])


def test_one_cause_is_told_once(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import torch
        from library import printing

        def test_it(compileguard):
            compileguard(printing, backend="aot_eager", fullgraph=True)(torch.ones(3))
        """
    )
    run.result.assert_outcomes(failed=1)
    failed = [f["metric"] for f in run.check["findings"] if f["status"] == "failed"]
    assert failed == ["compiled"]
    run.result.stdout.fnmatch_lines(["*at *library.py:8 in printing"])
