"""Timed calls start from the same inputs, whatever they do to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.conftest import RunSuite

LIBRARY = """
import torch

WORST = [0.0]

def noting(graph, inputs):
    # Notes the largest value that compiled code ever returned.
    def run(*args):
        outputs = graph(*args)
        WORST[0] = max(WORST[0], *(float(output.abs().max()) for output in outputs))
        return outputs
    return run

def doubles_in_place(x):
    x.mul_(2)
    return x + 1

class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.ones(3))

    def forward(self, x):
        self.seen.mul_(2)
        return self.seen + x

class Cache:
    def __init__(self):
        self.sums = torch.ones(3)

def fills(x, cache):
    cache.sums.mul_(2)
    return cache.sums + x

def in_float8(x):
    return (x.float() * 2).to(x.dtype)

def tiring(graph, inputs):
    left = [1]
    def run(*args):
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("no more")
        return graph(*args)
    return run

def quiet(x):
    return torch.relu(x * 2)

def new_on(device, x):
    if torch.ones(3).device.type != device:
        raise RuntimeError("new tensors lie elsewhere")
    return x + 1

"""

TEST = """
import torch, library
from library import noting
from pytest_compileguard import compile_check

@compile_check(min_speedup=1e-6, backend=noting, max_time_s=0.2, dynamic=False)
def test_it(compileguard):
    {body}
"""


def run(run_suite: RunSuite, body: str) -> tuple[Any, str]:
    ended = run_suite(TEST.format(body=body), "-s", library=LIBRARY, timing=True)
    ended.result.assert_outcomes(passed=1)
    return ended.check["samples"], ended.text


def worst(text: str) -> float:
    return float(text.partition("worst=")[2].split()[0])


def test_an_input_that_is_mutated_is_restored_before_each_block(
    run_suite: RunSuite, pytester: Any
) -> None:
    pytester.makeconftest(CONFTEST)
    samples, text = run(run_suite, "compileguard(library.doubles_in_place)(torch.ones(3))")

    assert samples["restored"] == ["x"]
    assert samples["calls_per_block"] == 1
    assert samples["void"] is None
    # Unrestored, hundreds of calls would reach 2 ** 100 and more.
    assert worst(text) <= 8


def test_buffers_and_tensors_within_objects_are_restored(
    run_suite: RunSuite, pytester: Any
) -> None:
    pytester.makeconftest(CONFTEST)
    module, text = run(run_suite, "compileguard(library.Counts())(torch.ones(3))")
    assert module["restored"] == ["target.seen"]
    assert worst(text) <= 17

    cache, text = run(run_suite, "compileguard(library.fills)(torch.ones(3), library.Cache())")
    assert cache["restored"] == ["cache.sums"]
    assert worst(text) <= 17


@pytest.fixture
def _no_default_device() -> Iterator[None]:
    yield
    torch.set_default_device(None)


@pytest.mark.usefixtures("_no_default_device")
def test_timed_calls_make_new_tensors_where_the_call_made_them(run_suite: RunSuite) -> None:
    around = "x = torch.ones(3)\n    with torch.device('meta'):\n        "
    within, _ = run(run_suite, f"{around}compileguard(library.new_on)('meta', x)")
    assert within["void"] is None

    after = "torch.set_default_device('meta')"
    since, _ = run(run_suite, f"compileguard(library.new_on)('cpu', torch.ones(3)); {after}")
    assert since["void"] is None

    call = "compileguard(library.new_on)('meta', torch.ones(3, device='cpu'))"
    until, _ = run(run_suite, f"{after}; {call}; torch.set_default_device(None)")
    assert until["void"] is None


def test_a_call_that_mutates_nothing_keeps_its_long_blocks(run_suite: RunSuite) -> None:
    samples, _ = run(run_suite, "compileguard(library.quiet)(torch.ones(3))")

    assert samples["restored"] == []
    assert samples["calls_per_block"] > 1


CONFTEST = """
def pytest_unconfigure():
    import library
    print(f"worst={library.WORST[0]} ")
"""

SETUP = """
import torch, library

def test_it(compileguard):
    made = []
    def setup():
        made.append(len(made))
        {setup}
    guarded = compileguard(
        library.quiet, setup=setup, min_speedup=1e-6, backend="aot_eager", max_time_s=0.1
    )
    guarded(torch.ones(3))
    library.MADE = made
"""
MADE = """
def pytest_unconfigure():
    import library
    print(f"worst={len(library.MADE)} ")
"""


def test_setup_runs_before_each_timed_call_and_its_arguments_are_used(
    run_suite: RunSuite, pytester: Any
) -> None:
    pytester.makeconftest(MADE)
    setup = "return (torch.full((3,), float(len(made))),), {}"
    ended = run_suite(SETUP.format(setup=setup), "-s", library=LIBRARY, timing=True)
    samples = ended.check["samples"]

    ended.result.assert_outcomes(passed=1)
    assert samples["calls_per_block"] == 1
    timed = 2 * (len(samples["eager_s"]) + samples["warmup"])
    assert timed <= worst(ended.text) <= timed + 6


BROKEN_SETUPS = """
import pytest, torch, library

SETUPS = {
    "given": lambda x: None,
    "raises": lambda: {}["x"],
    "number": lambda: 3,
    "tensor": lambda: torch.ones(3),
    "too few": lambda: ((), {}),
    "too many": lambda: ((torch.ones(3), 1), {}),
}

def guard(compileguard, name, **limits):
    compileguard(library.quiet, setup=SETUPS[name], max_time_s=0.1, **limits)(torch.ones(3))

@pytest.mark.parametrize("name", SETUPS)
def test_it(compileguard, name):
    guard(compileguard, name, min_speedup=1e-6, backend="aot_eager")

def test_without_limit(compileguard):
    guard(compileguard, "given")

def test_of_training(compileguard):
    model, data = torch.nn.Linear(2, 2), (torch.ones(3, 2), torch.ones(3, 2))
    step = compileguard.training(
        model,
        torch.optim.SGD(model.parameters(), 0.1),
        torch.nn.functional.mse_loss,
        setup=lambda: (data, {}),
        min_speedup=1e-6,
        backend="aot_eager",
        max_time_s=0.1,
    )
    step(*data)
"""


FAULTS = {
    "given": "raised TypeError: <lambda>() missing 1 required positional argument: 'x'",
    "raises": "raised KeyError: 'x'",
    "number": "returned an int: it may be None, or a pair of args and kwargs",
    "tensor": "returned a Tensor: it may be None, or a pair of args and kwargs",
    "too few": "gives no tensors where float32[3] was compared, and with them compiled raised "
    "TypeError when it was called again: quiet() missing 1 required positional argument: 'x'",
    "too many": "gives arguments, and with them compiled raised TypeError when it was called again:"
    " quiet() takes 1 positional argument but 2 were given",
}


def test_a_setup_that_raises_or_returns_nonsense_fails(run_suite: RunSuite) -> None:
    ended = run_suite(BROKEN_SETUPS, library=LIBRARY, timing=True)

    ended.result.assert_outcomes(failed=7, passed=1)
    found = {check["nodeid"].partition("::")[2]: check["findings"] for check in ended.checks}
    speedups = {
        test: next(finding for finding in findings if finding["metric"] == "speedup")
        for test, findings in found.items()
    }
    assert speedups.pop("test_of_training")["status"] == "passed"
    assert {speedup["status"] for speedup in speedups.values()} == {"failed"}
    for name, fault in FAULTS.items():
        assert speedups[f"test_it[{name}]"]["message"] == f"setup= {fault}"
    assert speedups["test_without_limit"]["message"] == f"setup= {FAULTS['given']}"
    assert "called without arguments" in speedups["test_without_limit"]["remedy"]


def test_arguments_of_another_shape_than_those_compared_are_told(run_suite: RunSuite) -> None:
    other = run_suite(
        SETUP.format(setup="return (torch.ones(70),), {}"), library=LIBRARY, timing=True
    )
    alike = run_suite(
        SETUP.format(setup="return (), {'x': torch.ones(3)}"), library=LIBRARY, timing=True
    )

    other.result.assert_outcomes(passed=1)
    note = "setup= gives float32[70] where float32[3] was compared: the times are of other inputs"
    assert note in other.check["samples"]["notes"]
    alike.result.assert_outcomes(passed=1)
    assert not [note for note in alike.check["samples"]["notes"] if "setup=" in note]


def test_new_arguments_that_make_it_compile_again_void_the_samples(run_suite: RunSuite) -> None:
    setup = "return (torch.ones(3 if len(made) < 60 else 4),), {}"
    ended = run_suite(SETUP.format(setup=setup), library=LIBRARY, timing=True)

    assert ended.status("speedup") == "inconclusive"
    assert "time(s) while sampling" in ended.text


def test_a_dtype_that_torch_can_not_compare_is_timed_all_the_same(run_suite: RunSuite) -> None:
    body = "compileguard(library.in_float8)(torch.ones(3).to(torch.float8_e4m3fn))"
    ended = run_suite(
        TEST.format(body=body).replace("backend=noting", 'backend="aot_eager"'),
        library=LIBRARY,
        timing=True,
    )

    ended.result.assert_outcomes(passed=1)
    assert ended.check["samples"]["void"] is None
    assert ended.status("speedup") == "passed"


def test_a_call_that_fails_when_it_is_made_again_is_told_and_never_passes(
    run_suite: RunSuite,
) -> None:
    body = "compileguard(library.quiet, backend=library.tiring)(torch.ones(3))"
    ended = run_suite(TEST.format(body=body), library=LIBRARY, timing=True)

    assert ended.status("speedup") == "inconclusive"
    assert "compiled raised RuntimeError when it was called again: no more" in ended.text
