"""A row or column of numbers that are tiny beside the rest of a result is compared all the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.dynamo.checked import check
from tests.dynamo.test_quiet import Change, outcome

pytestmark = pytest.mark.usefixtures("compiler_loaded")

TINY = 3e-6


def with_tiny(dim: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def head(x: torch.Tensor) -> torch.Tensor:
        first, rest = torch.split(x, [1, x.shape[dim] - 1], dim)
        return torch.cat((first.cos() * TINY, rest.sin()), dim)

    return head


def altered(dim: int, change: Change) -> Change:
    def alter(out: torch.Tensor) -> torch.Tensor:
        if out.dim() != 3:
            return out
        first, rest = torch.split(out, [1, out.shape[dim] - 1], dim)
        return torch.cat((change(first), rest), dim)

    return alter


@pytest.mark.parametrize("dim", (0, 1, 2))
@pytest.mark.parametrize("change", (torch.neg, torch.zeros_like, lambda x: 2 * x))
def test_a_slice_is_wrong_by_much_of_its_size(dim: int, change: Change) -> None:
    x = torch.rand(24, 25, 26)
    assert outcome(with_tiny(dim), x, altered(dim, change)) == "failed"
    assert outcome(with_tiny(dim), x, altered(dim, torch.clone)) == "passed"


def test_one_wrong_slice_is_told() -> None:
    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., object]:
        return lambda *args: tuple(map(altered(2, torch.neg), graph(*args)))

    told = check(with_tiny(2), (torch.rand(8, 8, 32),), backend=backend).told
    assert "in index 0 of dimension 2, wrong by float64" in told
    assert "64 of 64 elements differ" in told


def test_what_the_rounding_of_its_neighbours_may_be_is_no_fault() -> None:
    """Such a column may be what is left of numbers as large as the rest."""

    def rest(x: torch.Tensor) -> torch.Tensor:
        return torch.cat((((x + 1) - x)[:, :1] - 1 + 1e-7, x[:, 1:]), 1)

    assert outcome(rest, torch.rand(64, 40), lambda out: out) == "passed"

    def left(x: torch.Tensor) -> torch.Tensor:
        return torch.cat((((x + 3) - x - 3)[:, :1] * 4, x[:, 1:]), 1)

    def other(out: torch.Tensor) -> torch.Tensor:
        return torch.cat((-out[:, :1], out[:, 1:]), 1) if out.dim() == 2 else out

    assert outcome(left, torch.rand(64, 40), other) == "passed"


def test_small_results_of_inductor_are_no_fault() -> None:
    """Saturated and dead units, probabilities behind a mask, a normalized constant column."""

    def units(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ramp = torch.linspace(-1, 1, x.shape[1])
        scale = torch.where(ramp < -0.96, 1e-7, 1.0) * torch.where(ramp > 0.96, 8.0, 1.0)
        scaled = x.abs() * scale - torch.where((ramp - 0.5).abs() < 0.02, 5.2, 0.0)
        kinds = nn.functional.gelu, nn.functional.elu, torch.sigmoid, torch.expm1, torch.tanh
        found = [kind(scaled) for kind in kinds]
        found += [torch.softmax(scaled * 2, 1), nn.functional.layer_norm(scaled, (64,))]
        return (*found, scaled.t() @ scaled, (scaled - scaled.mean(0)) / (scaled.std(0) + 1))

    torch.manual_seed(0)
    x = torch.randn(48, 64, requires_grad=True)
    checked = check(units, (x,), backend="inductor")
    assert checked.verdict.outcome == "passed", checked.told
