"""Arrays of subclasses of numpy's are compared wherever they are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.compiler import is_compiling

from tests.dynamo.checked import Checked, check

pytestmark = [
    pytest.mark.usefixtures("compiler_loaded"),
    pytest.mark.filterwarnings("ignore:the matrix subclass"),
]

X = torch.ones(3)
FIELDS = [("a", "i8"), ("b", "U3")]
Made = Callable[[], Any]


class Own(np.ndarray[Any, Any]):
    """A subclass of the user's, which may hold more."""

    unit: str = ""


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def put(array: Any, value: int) -> None:
    (array["a"] if array.dtype.names else array)[..., 0] = value


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def new(make: Made, value: int) -> Any:
    made = make()
    put(made, value)
    return made


def more(planted: bool) -> int:  # noqa: FBT001  # all that there is to say
    return 2 if planted and is_compiling() else 1


MASKED = np.ma.zeros(3)
RECORDS = np.rec.array([(0, "a"), (1, "b")], dtype=FIELDS)


def kept(make: Made, *, planted: bool) -> Checked:
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.array = make()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            put(self.array, more(planted))
            return x * 2

    return check(Kept(), *[(X,)] * 2, locates=False)


def made(make: Made, *, planted: bool) -> Checked:
    class Makes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            self.array = new(make, more(planted))
            return y + 1

    return check(Makes(), (X,), locates=False)


def given(make: Made, *, planted: bool) -> Checked:
    held = make()

    def target(x: torch.Tensor, array: Any) -> torch.Tensor:
        y = x * 2
        put(held, more(planted))
        put(array, more(planted))
        return y + 1

    return check(target, (X, make()), locates=False)


def of_globals(_make: Made, *, planted: bool) -> Checked:
    def target(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        put(MASKED, more(planted))
        put(RECORDS, more(planted))
        return y + 1

    return check(target, (X,), locates=False)


MAKES: dict[str, Made] = {
    "masked": lambda: np.ma.zeros(3),
    "matrix": lambda: np.matrix([[0.0, 0.0]]),
    "records": lambda: np.rec.array([(0, "a"), (1, "b")], dtype=FIELDS),
    "own": lambda: np.zeros(3).view(Own),
}
CASES: list[tuple[str, Callable[..., Checked]]] = [
    (name, place) for name in MAKES for place in (kept, made, given)
]
CASES += [("masked", of_globals)]


@pytest.mark.parametrize(("name", "place"), CASES)
def test_what_compiled_code_leaves_in_an_array_is_compared(
    name: str, place: Callable[..., Checked]
) -> None:
    sound = place(MAKES[name], planted=False)

    assert sound.verdict.outcome == "passed", sound.told
    assert "isolation" not in {f.metric for f in sound.verdict.findings}
    assert "compiled differs from eager" in place(MAKES[name], planted=True).told


@pytest.mark.parametrize("attribute", ("mask", "unit"))
def test_what_an_array_holds_beside_its_items_is_compared(attribute: str) -> None:
    make = MAKES["masked" if attribute == "mask" else "own"]

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
    def sets(array: Any, value: int) -> None:
        setattr(array, attribute, [value == 2, False, False])

    def target(x: torch.Tensor, array: Any) -> torch.Tensor:
        y = x * 2
        sets(array, more(planted=True))
        return y + 1

    assert "compiled differs from eager" in check(target, (X, make()), locates=False).told


def test_an_array_holds_in_each_call_what_the_test_put_there() -> None:
    array = MAKES["own"]()

    def target(x: torch.Tensor) -> torch.Tensor:
        return x * torch.from_numpy(np.asarray(array))

    seen = check(target, *[(X.double(),)] * 3, before=lambda call: put(array, call))
    assert "parity" not in {f.metric for f in seen.verdict.findings if f.status == "failed"}
