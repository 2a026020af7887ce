"""Lets products and sums of a float64 run round as those of a narrower type do.

Under autocast, and in TF32, numbers of 32 bits lose digits where they are multiplied and nowhere
else. So a run that shows what such rounding may lead to moves the factors of each product, and
what it makes, and nothing else: a parameter that an optimizer writes to stays as exact as it is.

Compiled code adds up in another order. Where most digits of such sums cancel, as in a one-pass
variance, one error may be that of all elements, and eager's says little of what it may be. Runs
that move what sums are made of, and what they make, tell. Added up one by one, n numbers err by
some share of the square root of n units (N. J. Higham and T. Mary, A new approach to probabilistic
rounding error analysis, 2019): float32 numbers around 30 by 0.12 of it, and never by more than 0.43
in 400 sums each of 16 to 10,000. So they move by 0.25, of which a judge allows twice as much.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from pytest_compileguard.isolation.widening import Moves, Nudge, Rounding, is_short

_PRODUCTS = frozenset(
    f"aten.{name}.default"
    for name in (
        "_convolution",
        "_cudnn_rnn",
        "_grouped_mm",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_fused_attention_overrideable",
        "addbmm",
        "addmm",
        "addmv",
        "baddbmm",
        "bmm",
        "convolution",
        "convolution_backward",
        "dot",
        "linear",
        "matmul",
        "mkldnn_rnn_layer",
        "mm",
        "mv",
    )
)
"""Operators that autocast lets compute in 16 bits, and GPUs in TF32. Their other forms write to an
argument, which must not be a copy that moved."""
_SUMS = _PRODUCTS | {
    f"aten.{name}"
    for name in (
        "_log_softmax.default",
        "_softmax.default",
        "cumsum.default",
        "linalg_vector_norm.default",
        "logcumsumexp.default",
        "logsumexp.default",
        "mean.default",
        "mean.dim",
        "norm.Scalar",
        "norm.ScalarOpt_dim",
        "prod.default",
        "prod.dim_int",
        "std.correction",
        "std_mean.correction",
        "sum.default",
        "sum.dim_IntList",
        "var.correction",
        "var_mean.correction",
    )
}
"""Operators that add up, or multiply, many numbers."""
_SHARE = 0.25
"""Of the square root of the number of terms, by which a sum of them moves."""
_PLAIN_SUMS = frozenset(
    {"aten.mean.default", "aten.mean.dim", "aten.sum.default", "aten.sum.dim_IntList"}
)
_RESULTS_ALONE = frozenset(
    {"aten._log_softmax.default", "aten._softmax.default", "aten.logsumexp.default"}
)
"""What they take was rounded before; to move a mask of -1e9 in it would be no rounding."""
_HALF = 0.5
_MOVED: dict[Moves, frozenset[str]] = {"products": _PRODUCTS, "sums": _SUMS}


class RoundedOperators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Moves what operators in its body take, and what they make, by the unit of a nudge."""

    supports_higher_order_operators = True

    def __init__(self, nudge: Nudge) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rounding = Rounding(nudge._replace(unit=1.0))  # a long sum moves by several units
        self._unit = nudge.unit
        self._rounded = _MOVED[nudge.moves]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call an operator, on moved numbers if it is one that rounds."""
        del types
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator) or str(func) not in self._rounded:
            return func(*args, **kwargs)
        if str(func) in _RESULTS_ALONE:
            return self._moved(self._unit, func(*args, **kwargs))
        unit, exact = self._unit, None
        if str(func) not in _PRODUCTS:
            result = func(*args, **kwargs)
            terms = _terms(args[0], result)
            unit *= max(1.0, _SHARE * math.sqrt(terms))
            exact = self._exact(func, args, kwargs, terms)
        moved = partial(self._moved, unit)
        given, named = tree_map_only(torch.Tensor, moved, (args, kwargs))
        made = func(*given, **named)
        if not isinstance(made, torch.Tensor):
            return made  # of several, some are no such numbers: what attention keeps for gradients
        return moved(made) if exact is None else torch.where(exact, result, moved(made))

    def _exact(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], terms: float
    ) -> torch.Tensor | None:
        """Where a sum is exact in any order: of few digits, or of one number that was chosen."""
        if str(func) not in _PLAIN_SUMS or not isinstance(args[0], torch.Tensor):
            return None
        taken = args[0].detach()
        other, some = ~is_short(taken, self._unit), taken != 0

        def count(which: torch.Tensor) -> torch.Tensor:
            counted: torch.Tensor = func(which.to(taken.dtype), *args[1:], **kwargs).real
            return counted * terms if "mean" in str(func) else counted

        return (count(other) < _HALF) | (count(some) < 1 + _HALF)

    def _moved(self, unit: float, tensor: torch.Tensor) -> torch.Tensor:
        plain = tensor.layout == torch.strided and not tensor.is_nested
        wide = tensor.dtype in (torch.float64, torch.complex128)
        return self._rounding(tensor, unit) if plain and wide else tensor


def _terms(added: torch.Tensor, result: Any) -> float:
    """How many numbers make one of a result; products, which sum up in blocks, count as one."""
    made = result if isinstance(result, torch.Tensor) else result[0]
    return float(added.numel() / max(made.numel(), 1))
