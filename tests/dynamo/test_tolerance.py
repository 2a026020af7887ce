"""Rounding is no error: long sums, half types, softmax and norms near overflow, by inductor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812  # as everybody calls it

from pytest_compileguard.finding import Finding
from pytest_compileguard.parity.by_design import has_padded_rows
from pytest_compileguard.parity.precision import within_precision
from pytest_compileguard.parity.reference import acquits
from tests.dynamo.checked import Checked, check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

MILLION = 1_000_000


def long_sums(x: torch.Tensor) -> Any:
    return x.sum(), x.abs().mean(), x.var(), (x * x).sum(), x.cumsum(0)[-1], x.exp().prod().log()


def near_overflow(x: torch.Tensor) -> Any:
    loud = x * 1e18
    return (
        torch.softmax(x * 80, -1),
        torch.log_softmax(x * 1e30, -1),
        torch.logsumexp(x * 80, -1),
        torch.linalg.vector_norm(loud, dim=-1),
        torch.linalg.vector_norm(x * 1e20, dim=-1),
        F.layer_norm(x + 1e4, (64,)),
        F.layer_norm(loud, (64,)),
        F.normalize(loud, dim=-1),
    )


def half(x: torch.Tensor) -> Any:
    loud = x * 80
    return (
        torch.softmax(loud, -1),
        F.layer_norm(x * 100 + 50, (64,)),
        F.gelu(x * 3) * torch.sigmoid(x),
        (x * x).sum(-1),
        x.mean(),
        F.silu(x @ x.t() / 8).tanh(),
    )


def told(target: Callable[..., Any], *args: Any, **limits: Any) -> Checked:
    return check(target, args, **limits)


def parity(seen: Checked) -> Finding:
    return next(f for f in seen.verdict.findings if f.metric == "parity")


def drawn(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    return made.requires_grad_(grad)


@pytest.mark.parametrize(
    ("target", "x"),
    (
        (long_sums, drawn(MILLION)),
        (near_overflow, drawn(32, 64, grad=True)),
        (half, drawn(32, 64, dtype=torch.bfloat16, grad=True)),
        (half, drawn(32, 64, dtype=torch.float16, grad=True)),
    ),
    ids=("long sums", "near overflow", "bfloat16", "float16"),
)
def test_rounding_by_inductor_is_no_error(target: Callable[..., Any], x: torch.Tensor) -> None:
    seen = told(target, x, backend="inductor")
    assert parity(seen).status == "passed", seen.told


def doubling(index: int) -> Callable[..., Any]:
    """A backend that makes one element of the first output twice as large."""

    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            first, *others = graph(*args)
            factor = 1 + (torch.arange(first.numel()) == index).reshape(first.shape).to(first.dtype)
            return [first * factor, *others]

        return run

    return backend


@pytest.mark.parametrize(
    ("target", "x"),
    (
        (long_sums, drawn(MILLION)),
        (near_overflow, drawn(32, 64)),
        (half, drawn(32, 64, dtype=torch.bfloat16)),
    ),
    ids=("long sums", "near overflow", "bfloat16"),
)
def test_an_error_among_them_is_one(target: Callable[..., Any], x: torch.Tensor) -> None:
    worst = int(target(x)[0].argmax())
    seen = told(target, x, backend=doubling(worst))
    assert parity(seen).status == "failed"
    assert "output[0]" in seen.told


def test_where_float64_cannot_be_made_the_rule_is_off_and_that_is_said() -> None:
    def narrow(x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float64:
            raise TypeError("float32 only")
        return (x * 3).tanh()

    def rounds(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda *args: [graph(*args)[0] * (1 + 2e-5)]

    seen = told(narrow, drawn(100), backend=rounds)
    assert parity(seen).status == "failed"
    assert "no float64 reference: it raises TypeError: float32 only" in seen.told


@pytest.mark.parametrize("tf32", (False, True))
def test_without_a_reference_tf32_sets_the_precision_of_float32(tf32: bool) -> None:  # noqa: FBT001
    eager = drawn(64, 64) @ drawn(64, 64).t()
    compiled = eager * (1 + 1e-3 * drawn(64, 64).sign())
    assert within_precision(compiled, eager, tf32=tf32) is tf32
    assert not within_precision(eager * 1.05, eager, tf32=True)


def test_what_eager_computed_in_fewer_digits_is_judged_by_these() -> None:
    """As TF32 does: whether a factor rounds up or down, a last bit of it decides."""
    factors, x = drawn(24, 6), drawn(6, 40)
    eager = tens_bits(factors) @ tens_bits(x)
    flipped = tens_bits(factors)
    flipped[17] *= 1 + 2.0**-10
    exact = factors.double() @ x.double()

    assert acquits(flipped @ tens_bits(x), eager, exact, coarse=True)
    assert not acquits(eager * 1.02, eager, exact, coarse=True)
    assert not acquits(torch.cat((eager[1:], eager[:1])), eager, exact, coarse=True)
    # What eager computed in all digits is judged by all of them.
    assert not acquits(flipped @ x, factors @ x, exact, coarse=True)


def test_digits_that_one_side_cuts_off_and_the_other_rounds_are_no_error() -> None:
    """Kernels that Triton makes cut TF32 off, so all terms of a sum err towards zero."""
    for seed in range(8):
        torch.manual_seed(seed)
        x, qkv, last = torch.randn(2, 64, 96), torch.randn(288, 96) / 10, torch.randn(96, 96) / 10
        exact = attended(x.double(), qkv.double(), last.double(), lambda t: t)
        eager = attended(x, qkv, last, tens_bits)
        cut = attended(x, qkv, last, lambda t: tens_bits(t, torch.trunc))

        assert acquits(cut, eager, exact, tf32=True)
        assert not acquits(eager * 1.01, eager, exact, tf32=True)
        assert not acquits(eager.roll(1, 1), eager, exact, tf32=True)
        one = eager.clone()
        one[0, 5, 7] += 0.05 * eager.square().mean().sqrt()
        assert not acquits(one, eager, exact, tf32=True)


def attended(
    x: torch.Tensor, qkv: torch.Tensor, last: torch.Tensor, kept: Callable[..., torch.Tensor]
) -> torch.Tensor:
    """Causal attention whose products go through ``kept``."""
    parts = (kept(x) @ kept(qkv).t()).reshape(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4)
    q, k, v = parts
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return kept(y.transpose(1, 2).flatten(2)) @ kept(last).t()


def test_where_products_keep_ten_bits_their_unit_is_free() -> None:
    """Also for small elements, of which eager happens to be nearer to the truth."""
    exact = drawn(64, 96).double()
    noise = drawn(64, 96).flip(0)
    eager, compiled = (exact + 1.2e-4 * noise).float(), (exact + 5e-4 * noise.flip(1)).float()
    assert acquits(compiled, eager, exact, tf32=True)
    assert not acquits(compiled, eager, exact, coarse=True)


@pytest.mark.parametrize("factor", (1.0, 1.02))
def test_numbers_near_the_end_of_the_range_are_rounded_as_others(factor: float) -> None:
    """Code that rounds once less differs by a unit there as well."""

    def target(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x * 0.3 + 10.6) * 1.001

    def backend(_graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda x: [(target(x.float()) * factor).half()]

    x = drawn(64, 64, dtype=torch.float16).clamp(-1, 1)
    seen = told(target, x, backend=backend, locates=False)
    assert parity(seen).status == ("passed" if factor == 1 else "failed"), seen.told


def in_float32(target: Callable[..., Any], change: Callable[..., Any]) -> Callable[..., Any]:
    def backend(_graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        return lambda x: [change(target(x.float()).half())]

    return backend


OVERFLOWS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {
    "on the way, to half of the range": (lambda x: x * 3 / 4, torch.linspace(1e3, 4e4, 64)),
    "on the way, beyond": (lambda x: x * 3 / 4, torch.linspace(1e3, 5e4, 64)),
    "on the way, by squares": (
        lambda x: (x * x).mean(-1).sqrt() * 8,
        torch.linspace(1e3, 8e3, 512).view(8, 64),
    ),
    "at the very end": (
        lambda x: torch.exp(x * 0.3 + 10.6) * 1.001,
        torch.linspace(1, 1.64, 4096),
    ),
}


def itself(out: torch.Tensor) -> torch.Tensor:
    return out


CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a factor": lambda out: out * 0.97,
    "the sign of infinity": lambda out: torch.where(out.isinf(), -out, out),
    "infinity in place of a number": lambda out: torch.where(out > 3e4, torch.inf, out),
    "a number in place of infinity": lambda out: out.clamp(max=2e4),
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_code_that_keeps_more_digits_is_right_where_eager_overflows(name: str) -> None:
    target, x = OVERFLOWS[name]
    seen = told(target, x.half(), backend=in_float32(target, itself), locates=False)
    assert parity(seen).status == "passed", seen.told


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", OVERFLOWS)
def test_what_is_wrong_there_is_found(name: str, change: str) -> None:
    target, x = OVERFLOWS[name]
    right = target(x).half()
    if torch.equal(CHANGES[change](right), right):
        pytest.skip("nothing changes")
    seen = told(target, x.half(), backend=in_float32(target, CHANGES[change]), locates=False)
    assert parity(seen).status == "failed"
    assert "; 0 of" not in seen.told


def test_few_elements_are_judged_with_their_neighbours() -> None:
    """Eager happens to be exact in forty of them: that is no yardstick, their neighbours are."""
    exact = torch.cat((drawn(40).sign() * 2.0**4, drawn(3000).sign() * 2.0**7)).double()
    noise = 4e-4 * drawn(3040)
    eager = (exact + torch.cat((noise[:40] / 16, noise[40:]))).float()
    compiled = (exact + noise.flip(0)).float()
    assert acquits(compiled, eager, exact)
    compiled[7] += 1e-2
    assert not acquits(compiled, eager, exact)


def tens_bits(
    x: torch.Tensor, kept: Callable[[torch.Tensor], torch.Tensor] = torch.round
) -> torch.Tensor:
    """Keep as many bits of each number as TF32 does."""
    step = torch.exp2(torch.floor(torch.log2(x.abs())) - 10)
    return kept(x / step) * step


def test_rows_that_begin_at_sixteen_bytes_are_padded_ones() -> None:
    eager = drawn(5, 2)
    assert has_padded_rows(torch.empty(5, 4)[:, :2], eager)
    assert has_padded_rows(torch.empty(3, 5, 8)[..., :6], torch.empty(3, 5, 6))
    assert not has_padded_rows(eager, eager)
    assert not has_padded_rows(torch.empty(2, 5).t(), eager)
    assert not has_padded_rows(torch.empty(5, 8)[:, :2], eager)
    assert not has_padded_rows(torch.empty(5, 4)[:, :2], torch.empty(2, 5).t())


class ConvolvesBeforeNorm(torch.nn.Module):
    """Its convolution's bias is taken away again, so the exact gradient of that is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)  # type: ignore[no-any-return]


def test_gradient_that_ought_to_be_zero_is_noise_on_both_sides() -> None:
    for seed in range(4):
        torch.manual_seed(seed)
        module = ConvolvesBeforeNorm().to(torch.bfloat16)
        x = torch.randn(4, 3, 12, 12, dtype=torch.bfloat16)
        seen = check(module, (x,), backend="aot_eager_decomp_partition")
        assert parity(seen).status == "passed", seen.told


def test_noise_is_no_licence() -> None:
    exact = torch.zeros(32, dtype=torch.float64)
    eager = 1e-3 * drawn(32)
    assert acquits(eager.flip(0), eager, exact)
    assert not acquits(eager * 10, eager, exact)


@pytest.mark.parametrize("half_first", (True, False))
@pytest.mark.parametrize(("off", "outcome"), (("bfloat16", "passed"), ("float32", "failed")))
def test_a_call_in_16_bits_excuses_nothing_in_the_others(
    off: str, outcome: str, *, half_first: bool
) -> None:
    """Neither has a float64 reference, so what each computes in sets its precision."""

    class OnlySingle(torch.nn.Module):
        def forward(self, x: torch.Tensor, half: bool) -> torch.Tensor:  # noqa: FBT001
            if x.dtype == torch.float64:
                raise TypeError("float32 only")
            return (x.bfloat16() * 2).float() if half else x * 2

    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        computes_in = "bfloat16" if "bfloat16" in graph.code else "float32"
        by = 1.001 if computes_in == off else 1.0
        return lambda *args: tuple(out * by for out in graph(*args))

    x = torch.linspace(1, 2, 64)
    calls = [(x, half_first), (x, not half_first), (x, half_first)]
    assert check(OnlySingle(), *calls, backend=backend).verdict.outcome == outcome
