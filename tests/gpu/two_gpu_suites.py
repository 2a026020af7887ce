"""Small suites and targets that use two GPUs."""

from __future__ import annotations

LIBRARY = """
import time
from pathlib import Path
from statistics import median

import torch

from pytest_compileguard.timing.device_lock import DeviceLockError, exclusive

def transform(x):
    return torch.relu(x * 2 + 1)

class Pipeline(torch.nn.Module):
    def __init__(self, *, wrong=False):
        super().__init__()
        self.first = torch.nn.Linear(256, 4096, device="cuda:0")
        self.second = torch.nn.Linear(4096, 4096, device="cuda:1")
        self.wrong = wrong

    def forward(self, x):
        y = self.second(torch.relu(self.first(x)).to("cuda:1"))
        return y * 1.05 if self.wrong and torch.compiler.is_compiling() else y

def near_and_whole(x, y):
    return torch.relu(x), (y @ y)[:1024]

def near_and_part(x, y):
    return torch.relu(x), y[:1024] @ y

def near_and_far(x, y):
    '''Hardly anything where x is; all of the work, begun last, where y is. Compiled does less.'''
    return near_and_part(x, y) if torch.compiler.is_compiling() else near_and_whole(x, y)

def noisy(x):
    return x + torch.rand_like(x)

def noisy_on_both(x, y):
    return x + torch.rand_like(x), y + torch.rand_like(y)

def draws_twice(x):
    y = x + torch.rand_like(x)
    return y + 0 * torch.rand_like(x) if torch.compiler.is_compiling() else y

def adds_positions(x):
    return x + torch.arange(len(x), device="cuda")

def adds_ones_and_moves(x):
    return (x + torch.ones(len(x), device="cuda")).to("cuda:1")

def wait_for_both():
    for index in range(2):
        torch.cuda.synchronize(index)

def by_hand_ms(call, calls=10):
    times_ms = []
    for _ in range(9):
        wait_for_both()
        start_s = time.perf_counter()
        for _ in range(calls):
            call()
        wait_for_both()
        times_ms.append(1e3 * (time.perf_counter() - start_s) / calls)
    return median(times_ms[2:])

def is_held(place):
    try:
        with exclusive(place, timeout_s=0):
            return False
    except DeviceLockError:
        return True

def note_locks():
    with Path("locks.txt").open("a") as file:
        print(is_held("cuda:0"), is_held("cuda:1"), file=file)
"""
HEAD = """
import json
from pathlib import Path
import pytest, torch, library
from pytest_compileguard import compile_check
QUICK = {"backend": "aot_eager", "min_speedup": 1e-3, "max_time_s": 0.5}
"""

ON_EACH = """
@pytest.mark.parametrize("place", ("cuda:0", "cuda:1"))
@compile_check(
    min_speedup=1.2, max_kernels_per_call=1, max_peak_memory_ratio=0.9, max_time_s=0.6
)
def test_it(compileguard, place):
    guarded = compileguard(library.transform)
    for _ in range(2):
        guarded(torch.randn(8192, 8192, device=place))
    assert torch.cuda.current_device() == 0
"""

LOCKS = """
@compile_check(**QUICK, setup=library.note_locks)
def test_it(compileguard):
    inputs = [torch.randn(1024, 1024, device=place) for place in {places}]
    compileguard(library.{target})(*inputs)
"""

PIPELINE = """
@compile_check(max_graph_breaks=0, max_time_s=0.5)
def test_sound(compileguard):
    model, x = library.Pipeline(), torch.randn(4096, 256, device="cuda:0")
    guarded = compileguard(model)
    for _ in range(2):
        guarded(x)
    Path("hand.json").write_text(json.dumps(library.by_hand_ms(lambda: model(x))))
"""

WRONG = """
@compile_check(backend="aot_eager")
def test_wrong(compileguard):
    guarded = compileguard(library.Pipeline(wrong=True))
    guarded(torch.randn(64, 256, device="cuda:0"))
"""

NEAR_AND_FAR = """
@compile_check(**QUICK, max_kernels_per_call=9)
def test_it(compileguard):
    x, y = torch.randn(64, device="{near}"), torch.randn(4096, 4096, device="{far}")
    compileguard(library.near_and_far)(x, y)
    sides = library.near_and_whole, library.near_and_part
    hand_ms = [library.by_hand_ms(lambda: side(x, y)) for side in sides]
    Path("hand.json").write_text(json.dumps(hand_ms))
"""

CURRENT = """
@compile_check(**QUICK)
def test_called_while_the_second_is_current(compileguard):
    with torch.cuda.device(1):
        compileguard(library.adds_positions)(torch.ones(1 << 20, device="cuda"))

@compile_check(**QUICK)
def test_called_while_the_first_is_current(compileguard):
    compileguard(library.adds_ones_and_moves)(torch.ones(1 << 20, device="cuda:0"))
"""

RANDOM = """
def seeded(target, inputs):
    torch.manual_seed(3)
    before = states()
    made = target(*inputs)
    return made if isinstance(made, tuple) else (made,), before, states()

def states():
    return [torch.cuda.get_rng_state(index) for index in range(2)]

@pytest.mark.parametrize("name, drawn_on", (("noisy", (1,)), ("noisy_on_both", (0, 1))))
def test_left(compileguard, name, drawn_on):
    target = getattr(library, name)
    inputs = [torch.ones(100, device=f"cuda:{index}") for index in drawn_on]
    expected, before, left = seeded(target, inputs)
    actual, _, now = seeded(compileguard(target), inputs)
    assert all(map(torch.equal, actual, expected))
    assert all(map(torch.equal, now, left))
    moved = [not torch.equal(*pair) for pair in zip(before, left)]
    assert moved == [index in drawn_on for index in range(2)]
"""

RANDOM_TIMED = """
LEFT = []

def states():
    return [torch.cuda.get_rng_state(index) for index in range(2)]

@compile_check(**QUICK)
def test_timed(compileguard):
    compileguard(library.noisy)(torch.ones(100, device="cuda:1"))
    LEFT.extend(states())

def test_after_timing():
    assert len(LEFT) == 2
    assert all(map(torch.equal, states(), LEFT))
"""

DRAWS_TWICE = """
@compile_check(backend="aot_eager")
def test_it(compileguard):
    compileguard(library.draws_twice)(torch.ones(100, device="cuda:1"))
"""

GRAPHS = """
@compile_check(mode="reduce-overhead", max_cudagraph_skips=0, max_recompiles=0, max_time_s=0.5)
def test_it(compileguard):
    guarded = compileguard(library.transform)
    with torch.no_grad():
        for _ in range(4):
            guarded(torch.randn(4096, 4096, device="cuda:1"))
"""

WORKERS = """
import os, time
import pytest, torch
from pathlib import Path
from pytest_compileguard import compile_check
from pytest_compileguard.timing.device_lock import exclusive

@pytest.mark.parametrize("number", range(2))
@compile_check(backend="aot_eager", min_speedup=1e-3, max_time_s=0.2)
def test_alone(compileguard, number):
    assert torch.cuda.device_count() == 1
    # Each holds its GPU until the other one holds its own: with one lock, they would wait forever.
    with exclusive("cuda:0", timeout_s=30):
        worker = os.environ["PYTEST_XDIST_WORKER"]
        Path(worker).write_text(str(torch.cuda.get_device_properties(0).uuid))
        end_s = time.monotonic() + 30
        while not all(Path(f"gw{number}").exists() for number in range(2)):
            assert time.monotonic() < end_s, "the other worker never held its GPU"
            time.sleep(0.02)
    compileguard(torch.relu)(torch.randn(1024, device="cuda"))
"""
