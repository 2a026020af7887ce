"""What a process pays once for inductor, however small the code: kept out of compile times."""

from __future__ import annotations

import contextlib
import functools
import os

import torch
import torch._inductor.config
import torch.compiler.config

from pytest_compileguard.dynamo.listening import configured
from pytest_compileguard.dynamo.state import load_backend


def caches_disabled() -> bool:
    """Whether the user switched all of torch's caches off, so that each compile is a cold one."""
    switches = (torch._inductor.config, torch.compiler.config)
    return any(getattr(switch, "force_disable_caches", False) for switch in switches)


def use_backend_once(backend: object) -> None:
    """Compile something of no account, the first time that a process asks for it.

    The first compile with inductor loads its patterns and code generators, starts its workers,
    and precompiles headers: seconds that belong to no target, and to a test only by its place
    in the order of the tests. Drop compiled code afterwards.
    """
    if backend in (None, "inductor"):
        load_backend(None)
        _use_inductor("cuda" if torch.cuda.is_available() else "cpu")


@functools.cache
def _use_inductor(device: str) -> None:
    # A number of its own, as code that lies in a cache would load next to nothing.
    number = int.from_bytes(os.urandom(4), "big") / 2**32

    def throwaway(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * number + 1)

    # Where it fails, the compile of the target does so too, and is told.
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(Exception))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(configured())
        stack.enter_context(torch._inductor.config.patch({"fx_graph_cache": False}))
        x = torch.ones(8, device=device, requires_grad=True)
        torch.autograd.grad(torch.compile(throwaway, dynamic=False)(x).sum(), x)
