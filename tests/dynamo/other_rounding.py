"""A backend that is right, and rounds otherwise: each operator to one of the two nearest numbers.

So do fused kernels, other orders of summation and other formulas, each in its own way; here chance
decides, as in the random rounding of Monte Carlo arithmetic (D. S. Parker, 1997). What a type can
represent stays as it is: a selection, a mask, a small count.
"""

from __future__ import annotations

from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

_WIDE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}


def rounding_by_chance(seed: int) -> Any:
    """Make the backend, for both passes."""

    def compiled(graph: torch.fx.GraphModule, _inputs: object) -> Any:
        chances = torch.Generator().manual_seed(seed)

        def run(args: list[Any]) -> Any:
            return _Rounding(graph, chances).boxed_run(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    # The default partition draws noise again in the backward, where fallback_random is on.
    return aot_autograd(
        fw_compiler=compiled,
        bw_compiler=compiled,
        partition_fn=min_cut_rematerialization_partition,
    )


class _Rounding(torch.fx.Interpreter):
    def __init__(self, graph: torch.fx.GraphModule, chances: torch.Generator) -> None:
        super().__init__(graph)
        self._chances = chances

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        made = super().call_function(target, args, kwargs)
        if not _rounds(target):
            return made
        try:
            exact = super().call_function(target, *tree_map(_widened, (args, kwargs)))
        except (RuntimeError, NotImplementedError):  # it has no form in float64
            return made
        if isinstance(made, torch.Tensor):
            return self._rounded(made, exact)
        return tuple(map(self._rounded, made, exact)) if isinstance(made, tuple) else made

    def _rounded(self, made: Any, exact: Any) -> Any:
        """Give a result of the form that the operator makes, rounded up or down."""
        if not isinstance(made, torch.Tensor) or made.dtype not in _WIDE:
            return made
        if made.is_complex():
            parts = self._rounded(torch.view_as_real(made), torch.view_as_real(exact))
            return torch.view_as_complex(parts)
        near = exact.to(made.dtype)
        beyond = torch.where(near.double() < exact, torch.inf, -torch.inf).to(made.dtype)
        other = torch.where(near.double() == exact, near, torch.nextafter(near, beyond))
        gap = (other.double() - near.double()).abs()
        share = ((exact - near.double()).abs() / gap).nan_to_num(0.0)
        chance = torch.rand(share.shape, generator=self._chances, dtype=torch.float64)
        rounded = torch.where((chance < share) & other.isfinite(), other, near)
        return made.copy_(rounded)  # of the same strides


def _rounds(target: Any) -> bool:
    """Whether an operator makes numbers: no view, nothing random, and nothing that it writes to."""
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    schema = target._schema
    return not schema.is_mutable and not any(r.alias_info for r in schema.returns)


def _widened(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return _WIDE.get(value, value)
    if isinstance(value, torch.Tensor) and value.dtype in _WIDE:
        return value.to(_WIDE[value.dtype])
    return value
