"""Arrays of numpy in globals: objects in them, their shape and their flags are put back too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.compiler import is_compiling

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

ARRAYS: dict[str, Any] = {}
X = torch.ones(3)


@pytest.fixture(autouse=True)
def _begin() -> None:
    begin()


def begin() -> None:
    objects = np.array([[1], None, np.zeros(2)], dtype=object)
    nested = np.array([[{"n": 1}], [None]], dtype=object)
    locked, of_locked = np.zeros(2), np.zeros(2)
    ARRAYS.update(objects=objects, nested=nested, longer=np.zeros(2), turned=np.zeros((2, 3)))
    ARRAYS.update(locked=locked, base=of_locked, view=of_locked[:1], retyped=np.zeros(2))


def lengthen(array: Any, by: int) -> None:
    array.resize((len(array) + by,), refcheck=False)


def write_and_lock(array: Any, by: int) -> None:
    array.setflags(write=True)
    array += by
    array.setflags(write=False)


def lock_both(arrays: dict[str, Any], by: int) -> None:
    for name in ("base", "view"):
        arrays[name].setflags(write=True)
    arrays["base"] += by
    for name in ("base", "view"):
        arrays[name].setflags(write=False)


USES: dict[str, Callable[[dict[str, Any], int], object]] = {
    "objects": lambda arrays, by: arrays["objects"][0].append(by),
    "nested": lambda arrays, by: arrays["nested"][0, 0].update(n=arrays["nested"][0, 0]["n"] + by),
    "longer": lambda arrays, by: lengthen(arrays["longer"], by),
    "turned": lambda arrays, by: arrays["turned"].resize((3, by + 1), refcheck=False),
    "locked": lambda arrays, by: write_and_lock(arrays["locked"], by),
    "view": lock_both,
}


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch would refuse it
def use(name: str, by: int) -> None:
    USES[name](ARRAYS, by)


class Uses(torch.nn.Module):
    def __init__(self, name: str, more: int = 0) -> None:
        super().__init__()
        self.name = name
        self.more = more

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        use(self.name, 1 + (self.more if is_compiling() else 0))
        return y * 2


def state() -> Any:
    return {name: (repr(array), array.flags.writeable) for name, array in ARRAYS.items()}


@pytest.mark.parametrize("name", USES)
def test_it_is_left_as_the_call_leaves_it(name: str) -> None:
    Uses(name)(X)
    Uses(name)(X)
    expected = state()
    begin()

    checked = check(Uses(name), (X,), (X,))

    assert checked.verdict.outcome == "passed", checked.told
    assert state() == expected


@pytest.mark.parametrize("name", USES)
def test_it_is_compared(name: str) -> None:
    told = check(Uses(name, 1), (X,), locates=False).told
    assert "compiled differs from eager" in told
    assert "ARRAYS" in told


UNLOCKED = np.zeros(2)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch would refuse it
def lock(array: Any, *, locks: bool) -> None:
    array.setflags(write=not locks)


class Locks(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        lock(UNLOCKED, locks=not is_compiling())
        return y


def test_the_flag_is_left_as_the_call_leaves_it() -> None:
    check(Locks(), (X,), locates=False)
    assert not UNLOCKED.flags.writeable


FREQUENCIES = np.linspace(0, 1, 4, dtype=np.float32)
FREQUENCIES.setflags(write=False)
LARGE = np.ones(2**18 + 1, dtype=np.float32)
LARGE.setflags(write=False)
SHARED = np.broadcast_arrays(np.zeros((1, 4), np.float32), np.zeros((3, 1)))[0]


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize(
    "target",
    (
        lambda x: x * torch.from_numpy(FREQUENCIES),
        lambda x: x * torch.from_numpy(LARGE)[:4],
        lambda x: x + float(SHARED[0, 0]),
    ),
)
def test_array_that_may_not_be_written_to_is_read(target: Callable[..., Any]) -> None:
    seen = check(target, (torch.ones(4),), (torch.ones(4),), locates=False)
    assert seen.verdict.outcome == "passed", seen.told
    assert not FREQUENCIES.flags.writeable
    assert not LARGE.flags.writeable


LARGE_UNLOCKED = np.ones(2**18 + 1, dtype=np.float32)


class LocksLarge(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        lock(LARGE_UNLOCKED, locks=True)
        return y


def test_the_flag_of_a_large_one_is_left_as_the_call_leaves_it() -> None:
    seen = check(LocksLarge(), (X,), (X,))
    assert seen.verdict.outcome == "passed", seen.told
    assert not LARGE_UNLOCKED.flags.writeable


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch would refuse it
def try_to_write(array: Any) -> int:
    try:
        array[0] = 5
    except ValueError:
        return 1
    return 2


class Tries(torch.nn.Module):
    """Writes to an array that Dynamo does not meet."""

    def __init__(self, *, write: bool) -> None:
        super().__init__()
        self.array = np.zeros(2)
        self.array.setflags(write=write)

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch would refuse it
    def tried(self) -> int:
        return try_to_write(self.array)  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> Any:
        return x * self.tried()


@pytest.mark.parametrize("write", (True, False))
def test_copies_may_be_written_to_where_the_array_may(write: bool) -> None:  # noqa: FBT001
    target = Tries(write=write)
    seen = check(target, (X,), (X,))
    assert seen.verdict.outcome == "passed", seen.told
    assert target.array.flags.writeable == write


def test_an_array_that_compiling_lets_be_written_to_is_a_difference() -> None:
    def target(x: torch.Tensor, array: Any) -> Any:
        return x * try_to_write(array)

    array = np.zeros(2)
    array.setflags(write=False)
    told = check(target, (X, array), locates=False).told
    assert "output: greatest difference 1" in told
    assert "can't be isolated" not in told
    assert not array.flags.writeable


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch would refuse it
def retype(array: Any) -> None:
    array.dtype = np.int64


class Retypes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        retype(ARRAYS["retyped"])
        return y


def test_what_can_not_be_put_back_is_refused() -> None:
    checked = check(Retypes(), (X,))
    assert checked.verdict.outcome == "failed"
    assert "can't get back the type float64" in checked.told
    assert ARRAYS["retyped"].dtype == np.int64
