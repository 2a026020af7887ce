"""The float64 reference of a call that draws random numbers draws the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pytest_compileguard.parity.draws import Recording, Replaying, UnrepeatableError
from tests.dynamo.checked import Checked, check

pytestmark = pytest.mark.usefixtures("compiler_loaded")


def attended(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.3)


Draws = Callable[[torch.Tensor], torch.Tensor]
DRAWS: dict[str, Draws] = {
    "dropout": lambda x: nn.functional.dropout(x, 0.3),
    "native_dropout": lambda x: torch.native_dropout(x, 0.3, True)[0],
    "all dropped": lambda x: torch.native_dropout(x, 1.0, True)[0],
    "dropout2d": lambda x: nn.functional.dropout2d(x.view(1, 4, 4, 4), 0.3),
    "alpha_dropout": lambda x: nn.functional.alpha_dropout(x, 0.3, training=True),
    "rand_like": lambda x: x + torch.rand_like(x),
    "randn": lambda x: x * torch.randn(x.shape, dtype=x.dtype),
    "normal": lambda x: x + torch.normal(0.0, 1.0, x.shape, dtype=x.dtype),
    "normal_": lambda x: x + torch.empty_like(x).normal_(),
    "bernoulli": lambda x: x * torch.bernoulli(x.detach().sigmoid()),
    "gumbel_softmax": nn.functional.gumbel_softmax,
    "multinomial": lambda x: x[torch.multinomial(x.detach().exp(), 3)],
    "randperm": lambda x: x[torch.randperm(len(x))],
    "attention": lambda x: attended(x.view(1, 4, 4, 4)),
}
X = torch.randn(64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_are_given_again_in_float64(name: str) -> None:
    draws, x = DRAWS[name], X.clone().requires_grad_()
    torch.manual_seed(3)
    with Recording() as recording:
        eager = draws(x)
    torch.manual_seed(4)
    with Replaying(recording.draws):
        exact = draws(x.double())

    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact.float(), eager)
    assert recording.draws


@pytest.mark.parametrize("name", DRAWS)
@torch.inference_mode()
def test_numbers_are_given_again_in_inference_mode(name: str) -> None:
    test_numbers_are_given_again_in_float64(name)


def test_dropout_of_a_model_that_does_not_train_draws_nothing() -> None:
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode, Recording() as recording:
            assert torch.equal(nn.Dropout(0.5).eval()(X), X)
        assert not recording.draws


def test_what_draws_and_computes_in_one_is_refused() -> None:
    one = pytest.raises(UnrepeatableError, match="rrelu_with_noise draws and computes in one")
    with one, Recording():
        nn.functional.rrelu(X, training=True)
    with pytest.raises(UnrepeatableError, match="rand_like draws where nothing"), Replaying([]):
        torch.rand_like(X)


def test_attention_without_dropout_draws_nothing() -> None:
    x = torch.randn(1, 4, 16, 8)
    with Recording() as recording:
        nn.functional.scaled_dot_product_attention(x, x, x)
        torch.native_dropout(x, 0.0, True)
    assert recording.draws == []


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rise, self.fall = nn.Linear(32, 64), nn.Linear(64, 32)
        self.last = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.fall(nn.functional.dropout(nn.functional.gelu(self.rise(x)), 0.1)))  # type: ignore[no-any-return]


def scaled(factor: float) -> Callable[..., Any]:
    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda *args: tuple(out * factor for out in graph(*args))

    return backend


def under_autocast(seed: int, backend: str | Callable[..., Any]) -> Checked:
    torch.manual_seed(seed)
    x = torch.randn(64, 32)
    return check(
        Dropping(),
        (x,),
        around=lambda _call: torch.autocast("cpu", torch.bfloat16),
        backend=backend,
    )


@pytest.mark.parametrize("seed", range(4))
def test_rounding_under_autocast_with_dropout_is_no_error(seed: int) -> None:
    assert under_autocast(seed, "aot_eager").verdict.outcome == "passed"


def test_an_error_under_autocast_with_dropout_is_one() -> None:
    seen = under_autocast(0, scaled(1.03))
    assert seen.verdict.outcome == "failed"
    assert "no float64 reference" not in seen.told


def test_a_call_that_can_t_be_repeated_says_so() -> None:
    seen = check(lambda x: nn.functional.rrelu(x, training=True), (X,), backend=scaled(1.001))
    assert seen.verdict.outcome == "failed"
    assert "can't draw them again: rrelu_with_noise draws and computes in one" in seen.told


class OwnGenerator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + torch.empty_like(x).uniform_(generator=self.generator) + 1000) - 1000


def test_numbers_of_a_generator_of_the_target_are_given_again() -> None:
    """Eager keeps some 16 bits here, so a difference of the last of them is no error."""

    def rounds(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda *args: tuple(out + 2e-5 * out.sign() for out in graph(*args))

    sound = check(OwnGenerator(), (X,), backend=rounds)
    assert sound.verdict.outcome == "passed", sound.told
    assert check(OwnGenerator(), (X,), backend=scaled(1.01)).verdict.outcome == "failed"


def test_rounding_of_an_uneven_leaf_without_reference_is_no_error() -> None:
    """As the gradient of attention's three biases: that of the keys ought to be zero."""

    def parts(x: torch.Tensor) -> torch.Tensor:
        return torch.cat((nn.functional.rrelu(x, training=True) * 30, x[:24] * 1e-7))

    def rounds(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda *args: tuple(out + 5e-5 * (out.abs() > 1) for out in graph(*args))

    assert check(parts, (X,), backend=rounds).verdict.outcome == "passed"
