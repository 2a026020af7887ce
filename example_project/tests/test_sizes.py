"""One function, three sizes, and what each setting of ``dynamic`` makes of them.

Breaks and recompiles do not depend on the backend, so these tests take the one
that needs no C++ compiler and no Triton. It runs eager kernels: nothing is timed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from pytest_compileguard import CompileGuard, compile_check
from toyshop.pooling import attention_pool

pytestmark = compile_check(backend="aot_eager", max_graph_breaks=0)


def pool_three_sizes(guarded: Callable[[torch.Tensor], torch.Tensor], device: str) -> None:
    for tokens in (16, 32, 64):
        out = guarded(torch.randn(tokens, 8, device=device))
        assert out.shape == (8,)


@compile_check(dynamic=None, max_recompiles=1)
def test_automatic_sizes_recompile_once(compileguard: CompileGuard, device: str) -> None:
    pool_three_sizes(compileguard(attention_pool), device)


@compile_check(dynamic=True, max_recompiles=0)
def test_dynamic_sizes_never_recompile(compileguard: CompileGuard, device: str) -> None:
    pool_three_sizes(compileguard(attention_pool), device)


@compile_check(dynamic=False, max_recompiles=2)
def test_static_sizes_compile_once_each(compileguard: CompileGuard, device: str) -> None:
    pool_three_sizes(compileguard(attention_pool), device)
