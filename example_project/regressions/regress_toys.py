"""Every test here fails, each for a reason of its own: read what the plugin says of it."""

from __future__ import annotations

import torch

from broken_toys import Chatty, matmul, normalise, refine, score, wrong_gradient
from pytest_compileguard import CompileGuard, compile_check
from toyshop.pooling import attention_pool

pytestmark = compile_check(backend="aot_eager", max_graph_breaks=0, max_recompiles=0)


def test_print_in_forward(compileguard: CompileGuard) -> None:
    compileguard(Chatty())(torch.randn(4, 8))


def test_item_in_a_function_that_is_called(compileguard: CompileGuard) -> None:
    compileguard(normalise)(torch.randn(4, 8))


def test_three_sizes_where_each_is_compiled(compileguard: CompileGuard) -> None:
    guarded = compileguard(attention_pool, dynamic=False)
    for tokens in (16, 32, 64):
        guarded(torch.randn(tokens, 8))


def test_wrong_gradient(compileguard: CompileGuard) -> None:
    x = torch.randn(5, 3, requires_grad=True)
    weight = torch.randn(3, 4, requires_grad=True)

    compileguard(score, backend=wrong_gradient)(x, weight)


@compile_check(min_speedup=50)
def test_slower_than_promised(compileguard: CompileGuard) -> None:
    compileguard(matmul)(torch.randn(256, 256), torch.randn(256, 256))


def test_falls_back_to_eager(compileguard: CompileGuard) -> None:
    compileguard(refine)(torch.randn(4, 8))
