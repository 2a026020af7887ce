"""The dtypes that the tensors of a float64 run have in eager.

Eager rounds a number that code names to the type of the tensor that it meets: 0.3 is not the 0.3 of
float32. And it compares rounded numbers: a third of 0.9 equals 0.3 there, and is below it in
float64. What stands on such a bound in eager must stand on it in float64 as well, or the run goes
another way than eager, and what it says of the code behind is worth nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

_COMPARING = frozenset(
    {
        "eq",
        "ge",
        "greater",
        "greater_equal",
        "gt",
        "le",
        "less",
        "less_equal",
        "lt",
        "ne",
        "not_equal",
    }
)
"""Operators whose operands eager has rounded to their type, all of them."""
_BOUNDING = frozenset({"clamp", "clamp_max", "clamp_min", "clip", "hardtanh", "threshold"})
"""Operators that compare with bounds, and let through what they compare."""
_TAKING = _BOUNDING | {"fill", "hardshrink", "masked_fill", "setitem", "softshrink", "where"}
"""Operators that compare with numbers, or let them stand for elements; in place as well. Others
compute with more digits, or not, as the device has it: that is rounding."""
_MAKING = frozenset(
    {"as_tensor", "full", "full_like", "new_full", "new_tensor", "scalar_tensor", "tensor"}
)
"""Operators that make tensors of numbers."""
_CASTS = {"bfloat16": torch.bfloat16, "double": torch.float64, "float": torch.float32}
_CASTS["half"] = torch.float16
_AS_ANOTHER = frozenset({"to", "type_as"})


class EagerDtypes:
    """Follows dtypes through the functions that a run calls; what is not known is left alone.

    ``default`` is the type of tensors that are made of Python's numbers.
    """

    def __init__(
        self, known: Iterable[tuple[torch.Tensor, torch.dtype]], default: torch.dtype
    ) -> None:
        self._default = default
        self._known: MutableMapping[torch.Tensor, torch.dtype] = WeakTensorKeyDictionary()
        for tensor, dtype in known:
            self._known[tensor] = dtype

    def as_compared(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the arguments of a call as eager compares them, or lets them stand for elements."""
        name, in_place = _name(func), _is_in_place(func)
        compares = name in _COMPARING and not in_place
        dtype = self._of(args, kwargs) if compares or name in _TAKING else None
        if dtype is None or dtype.is_complex:
            return args, kwargs

        def number(value: float) -> float:
            made = torch.tensor(value, dtype=torch.float64).to(dtype)
            return float(made) if bool(made.isfinite()) else value

        # Fused code keeps what it computes in 16 bits in float32, so no more than that is rounded.
        digits = torch.promote_types(dtype, torch.float32)

        def operand(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.detach().to(digits) if tensor.is_floating_point() else tensor

        found: tuple[tuple[Any, ...], dict[str, Any]]
        found = tree_map_only(float, number, (args, kwargs))
        if compares:
            found = tree_map_only(torch.Tensor, operand, found)
        elif name in _BOUNDING and not in_place:
            bounds = [value for value in tree_leaves(found) if type(value) in (int, float)]
            found = (_on_bounds(found[0][0], bounds, digits), *found[0][1:]), found[1]
        return found

    def followed(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> Any:
        """Give a result as eager has it: rounded if it is made of numbers, a copy if it is a cast.

        A cast changes nothing where all numbers are of float64, so that it gives what it was given.
        """
        cast = _asked(args, kwargs) or self._cast(func, args)
        dtype = cast or self._of(args, kwargs)
        if cast and args and result is args[0] and self._known.get(result, cast) != cast:
            result = result.clone()
        for tensor in tree_leaves(result):
            if dtype is None or not isinstance(tensor, torch.Tensor) or tensor in self._known:
                continue
            if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
                continue
            self._known[tensor] = dtype
            if _name(func) in _MAKING and dtype.is_floating_point:
                with torch.no_grad():
                    tensor.copy_(tensor.to(dtype))
        return result

    def _cast(self, func: Any, args: tuple[Any, ...]) -> torch.dtype | None:
        name = _name(func)
        if name in _AS_ANOTHER and len(args) > 1 and isinstance(args[1], torch.Tensor):
            return self._known.get(args[1])
        return _CASTS.get(name)

    def _of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.dtype | None:
        """The dtype that tensors have together; the default one if there are none of numbers."""
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        inexact = [t for t in tensors if t.dtype.is_floating_point or t.dtype.is_complex]
        deciding = [t for t in inexact if t.dim()] or inexact
        found = self._default
        for index, tensor in enumerate(deciding):
            dtype = self._known.get(tensor)
            if dtype is None:
                return None
            found = torch.promote_types(found, dtype) if index else dtype
        return found


def _asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.dtype | None:
    asked = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.dtype)]
    return asked[0] if asked else None


def _on_bounds(tensor: Any, bounds: list[float], dtype: torch.dtype) -> Any:
    """Put on a bound what eager has on it; gradients pass as they did."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        return tensor
    plain = tensor.detach()
    rounded = plain.to(dtype)
    for bound in bounds:
        tensor = tensor + torch.where(rounded == bound, bound - plain, 0.0)
    return tensor


def _is_in_place(func: Any) -> bool:
    name = str(getattr(func, "__name__", ""))
    return name.endswith("_") and not name.endswith("__")


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", "")).strip("_")
