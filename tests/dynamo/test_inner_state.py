"""Objects in globals that keep state inside: they are put back for each side, and compared."""

from __future__ import annotations

import array
import collections
import queue
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.compiler import is_compiling

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

TORCH = torch.Generator()
PYTHON = random.Random()  # noqa: S311  # nothing secret
NUMPY = np.random.default_rng(0)
OLD_NUMPY = np.random.RandomState(0)
SEED = np.random.SeedSequence(0)
SPAWNING = np.random.default_rng(0)
USERS_DICT: collections.UserDict[str, int] = collections.UserDict()
USERS_LIST: collections.UserList[int] = collections.UserList()
CHAIN: collections.ChainMap[str, int] = collections.ChainMap()
BYTES = bytearray(3)
ARRAY = array.array("d", [0, 0])
QUEUE: queue.Queue[int] = queue.Queue()
SYSTEM = random.SystemRandom()


USES: dict[str, Callable[[], object]] = {
    "TORCH": lambda: torch.rand(1, generator=TORCH),
    "PYTHON": lambda: [PYTHON.random()],
    "NUMPY": lambda: [NUMPY.random()],
    "OLD_NUMPY": lambda: [OLD_NUMPY.rand()],
    "SEED": lambda: SEED.spawn(1),
    "SPAWNING": lambda: SPAWNING.spawn(1),
    "USERS_DICT": lambda: USERS_DICT.update(n=USERS_DICT.get("n", 0) + 1),
    "USERS_LIST": lambda: USERS_LIST.append(1),
    "CHAIN": lambda: CHAIN.update(n=CHAIN.get("n", 0) + 1),
    "BYTES": lambda: BYTES.append(1),
    "ARRAY": lambda: ARRAY.__setitem__(0, ARRAY[0] + 1),
    "QUEUE": lambda: QUEUE.put(1),
}
STATES: dict[str, Callable[[], object]] = {
    "TORCH": lambda: TORCH.get_state().tolist(),
    "PYTHON": PYTHON.getstate,
    "NUMPY": lambda: NUMPY.bit_generator.state,
    "OLD_NUMPY": lambda: repr(OLD_NUMPY.get_state()),
    "SEED": lambda: SEED.n_children_spawned,
    "SPAWNING": lambda: seed_of(SPAWNING).n_children_spawned,
    "USERS_DICT": lambda: dict(USERS_DICT),
    "USERS_LIST": lambda: list(USERS_LIST),
    "CHAIN": lambda: dict(CHAIN),
    "BYTES": lambda: bytes(BYTES),
    "ARRAY": ARRAY.tolist,
    "QUEUE": lambda: list(QUEUE.queue),
}


def seed_of(generator: np.random.Generator) -> Any:
    return generator.bit_generator.seed_seq


@pytest.fixture(autouse=True)
def _begin() -> None:
    forget()


def forget() -> None:
    TORCH.manual_seed(0)
    PYTHON.seed(0)
    NUMPY.bit_generator.state = np.random.default_rng(0).bit_generator.state
    OLD_NUMPY.seed(0)
    for seed in (SEED, seed_of(SPAWNING)):
        seed.spawn(-seed.n_children_spawned)
    QUEUE.queue.clear()
    USERS_DICT.clear()
    USERS_LIST.clear()
    CHAIN.clear()
    BYTES[:] = bytes(3)
    ARRAY[0] = 0


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch would burn it in, or refuse
def use(name: str, times: int) -> None:
    for _ in range(times):
        USES[name]()


class Uses(torch.nn.Module):
    def __init__(self, name: str, more: int) -> None:
        super().__init__()
        self.name = name
        self.more = more

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        use(self.name, 1 + (self.more if is_compiling() else 0))
        return y * 2


def functional(name: str, more: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def target(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        use(name, 1 + (more if is_compiling() else 0))
        return y * 2

    return target


@pytest.mark.parametrize("target", (Uses, functional), ids=("module", "function"))
@pytest.mark.parametrize("name", USES)
def test_it_is_left_as_the_call_leaves_it(name: str, target: Any) -> None:
    use(name, 2)
    expected = STATES[name]()
    forget()

    checked = check(target(name, 0), *[(torch.ones(3),)] * 2)

    assert checked.verdict.outcome == "passed", checked.told
    assert STATES[name]() == expected


@pytest.mark.parametrize("target", (Uses, functional), ids=("module", "function"))
@pytest.mark.parametrize("name", USES)
def test_it_is_compared(name: str, target: Any) -> None:
    checked = check(target(name, 1), (torch.ones(3),), locates=False)

    assert "parity" in checked.told
    assert name in checked.told


def drawing_of_the_system(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    SYSTEM.random()
    return y * 2


def test_a_generator_without_a_state_is_left_alone() -> None:
    assert check(drawing_of_the_system, (torch.ones(3),)).verdict.outcome == "passed"
