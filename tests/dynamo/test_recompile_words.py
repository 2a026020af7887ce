"""What a failure says of a recompile whose guard torch words as an expression, or with advice."""

# mypy: disallow-untyped-calls=False, warn-return-any=False, disallow-untyped-decorators=False

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")


def indexed(x: Tensor, i: int) -> Tensor:
    return x[i] * 2


def applied(module: nn.Module, x: Tensor) -> Tensor:
    return module(x)


@torch.library.custom_op("compileguard_tests::positions", mutates_args=())
def positions(x: Tensor) -> Tensor:
    return x.nonzero()


@positions.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty((torch.library.get_ctx().new_dynamic_size(), x.dim()), dtype=torch.int64)


def counted(x: Tensor) -> Tensor:
    return positions(x) + 1


def apart_for_four(x: Tensor) -> Tensor:
    return positions(x) + 1 if x.shape[0] == 4 else positions(x) + 2


def test_number_that_code_bounds_is_named_with_its_bounds() -> None:
    seen = check(indexed, *((torch.ones(5), i) for i in (0, 1, 2, -1)), max_recompiles=0)

    bounds = "(0 to 4|>= 0)"  # before torch 2.13, an index is bounded from below only
    assert re.search(rf"call 4, 0/2 indexed: i {bounds} -> -1 \(value\)", seen.told)
    assert re.search(f"branches on i: what was compiled holds while it is {bounds};", seen.told)
    assert "the value is constant" not in seen.told


def summed(*args: Tensor, **kwargs: Tensor) -> Tensor:
    return torch.stack([*args, *kwargs.values()]).sum()


@torch.compiler.disable(recursive=False)
def passed_on(*tensors: Tensor) -> Tensor:
    return summed(**dict(zip("abc", tensors, strict=False)))


def by_keyword(*args: Tensor) -> Tensor:
    return passed_on(*[x.sin() for x in args])


@pytest.mark.parametrize(("target", "kind"), ((summed, "positional"), (by_keyword, "keyword")))
def test_number_of_arguments_is_no_length_to_pad(target: Callable[..., Tensor], kind: str) -> None:
    x = torch.ones(3)
    seen = check(target, (x, x), (x,), max_recompiles=0)

    assert f"that length is the number of {kind} arguments" in seen.told
    assert "pad to one length" not in seen.told


def test_size_of_a_parameter_is_advised_as_torch_keeps_it() -> None:
    calls = ((nn.Linear(3, n), torch.ones(2, 3)) for n in (3, 4))
    seen = check(applied, *calls, max_recompiles=0)

    (recompile,) = seen.facts.recompiles
    assert (recompile.before, recompile.after) == ("3", "4")
    assert "-> 4 (size)" in seen.told
    assert "set torch._dynamo.config.force_parameter_static_shapes = False" in seen.told
    assert "mark_dynamic" not in seen.told


def test_positions_are_named_wherever_they_stand_in_an_expression() -> None:
    square = torch.ones(2, 1, 6, 6)
    calls = (torch.ones(2, 1, 5, 5), square, square.to(memory_format=torch.channels_last))
    seen = check(nn.Conv2d(1, 2, 3), *((x,) for x in calls), max_recompiles=0)

    assert "argument 0.stride(1) argument 0.size(2)*argument 0.size(3) -> 1" in seen.told
    advice = "mark dimension 2 of argument 0 with torch._dynamo.mark_dynamic(tensor, 2)"
    assert advice in seen.told


def test_frame_without_a_graph_that_becomes_dynamic() -> None:
    seen = check(counted, *((torch.ones(n),) for n in (3, 4, 5, 6)), max_recompiles=0)

    assert "call 2, 0/1 counted: x.size(0) 3 -> 4 (automatic dynamic)" in seen.told
    assert [r.call for r in seen.facts.recompiles] == [1, 1]


def test_frame_without_a_graph_is_not_dynamic_while_a_branch_holds_it_to_one_size() -> None:
    seen = check(apart_for_four, *((torch.ones(n),) for n in (3, 4, 5)), max_recompiles=0)

    assert "call 2, 0/1 apart_for_four: x.size(0) 3 -> 4 (size)" in seen.told
    assert "call 3, 0/2 apart_for_four: x.size(0) 4 -> 5 (automatic dynamic)" in seen.told
