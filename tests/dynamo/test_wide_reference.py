"""The float64 reference is one, also of code that names narrower types or starts from integers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # as torch's own documentation has it

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")


class Program(NamedTuple):
    """Legitimate code in which rounding decides, and what it is called with."""

    run: Callable[..., Tensor]
    draw: Callable[[torch.Generator], tuple[Tensor, ...]]
    autocast: bool = False


def less_its_mean(image: Tensor) -> Tensor:
    x = (image.to(torch.get_default_dtype()) / 255 - 0.485) / 0.229
    return x - x.mean((1, 2), keepdim=True)


def mean_of_centred(numbers: Tensor) -> Tensor:
    x = numbers / 7
    return (x - x.mean()).mean()


def loss_after_norm(x: Tensor, w: Tensor) -> Tensor:
    out = F.batch_norm(F.linear(x, w), None, None, training=True).square()
    return out.to(torch.get_default_dtype()).mean() * 1e-2


def near_policies(parts: Tensor) -> Tensor:
    x, w, d = parts[:8], parts[8:12], parts[12:]
    near, own = F.linear(x, w + d * 1e-2), F.linear(x, w)
    return F.kl_div(F.log_softmax(near, -1), F.softmax(own, -1), reduction="batchmean")


def white_images(g: torch.Generator) -> tuple[Tensor]:
    images = torch.randint(0, 256, (8, 16, 16), generator=g, dtype=torch.uint8)
    images[0] = 255
    return (images,)


def normal(g: torch.Generator, *sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.randn(size, generator=g) for size in sizes)


PROGRAMS = {
    "an image less its mean": Program(less_its_mean, white_images),
    "integers over a number": Program(
        mean_of_centred, lambda g: (torch.randint(0, 1000, (200,), generator=g),)
    ),
    "nearly constant rows": Program(
        lambda x: F.layer_norm(x, (32,)), lambda g: (1 + 1e-7 * normal(g, (16, 32))[0],)
    ),
    "a loss cast within autocast": Program(
        loss_after_norm, lambda g: normal(g, (16, 16), (2, 16)), autocast=True
    ),
    "a difference that bfloat16 swallows": Program(
        near_policies, lambda g: normal(g, (16, 16)), autocast=True
    ),
}


def computing(run: Callable[..., Tensor], *, times: float) -> Callable[..., Any]:
    """Make a backend that is as right as numbers can be, or wrong by a factor."""

    def in_float64(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        del graph, inputs

        def compiled(*given: Tensor) -> list[Tensor]:
            before = torch.get_default_dtype()
            torch.set_default_dtype(torch.float64)
            try:
                wide = (t.double() if t.is_floating_point() else t for t in given)
                with torch.autocast("cpu", enabled=False):
                    return [(run(*wide) * times).to(before)]
            finally:
                torch.set_default_dtype(before)

        return compiled

    return in_float64


def outcome(name: str, *, times: float) -> str:
    program = PROGRAMS[name]
    calls = [program.draw(torch.Generator().manual_seed(seed)) for seed in range(4)]
    around: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if program.autocast:
        around = torch.autocast("cpu", dtype=torch.bfloat16)
    backend = computing(program.run, times=times)
    seen = check(program.run, *calls, around=lambda _: around, backend=backend)
    return seen.verdict.outcome


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_exactly_right_passes(name: str) -> None:
    assert outcome(name, times=1) == "passed"


def test_what_is_wrong_fails_all_the_same() -> None:
    assert outcome("a loss cast within autocast", times=1.5) == "failed"
    assert outcome("an image less its mean", times=1.5) == "failed"


def test_small_numbers_made_of_integers_are_judged() -> None:
    def tiny(counts: Tensor) -> Tensor:
        return counts.float() * 1e-8

    counts = torch.randint(1, 100, (20,), generator=torch.Generator().manual_seed(0))
    for times, expected in ((1, "passed"), (-1, "failed")):
        backend = computing(tiny, times=times)
        assert check(tiny, (counts,), backend=backend).verdict.outcome == expected


def test_code_that_bears_no_other_type_keeps_its_reference() -> None:
    def strict(x: Tensor) -> Tensor:
        mask = (x > 0).float()
        if mask.dtype != torch.float32:
            raise TypeError(mask.dtype)
        return (x * mask).softmax(0)

    x = torch.randn(64, generator=torch.Generator().manual_seed(0)) * 30
    backend = computing(lambda x: (x * (x > 0)).softmax(0), times=1)
    assert check(strict, (x,), backend=backend).verdict.outcome == "passed"
