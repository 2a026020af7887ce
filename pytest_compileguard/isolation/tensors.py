"""Copies tensors so that Dynamo can't tell copy from original.

Sizes, strides, storage sharing, alignment, ``requires_grad``, inference mode, being a view
or a leaf, and the attributes that ``mark_dynamic`` leaves all stay. Tensors that share
storage share it in the copy too.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from pytest_compileguard.isolation.storages import StorageCopies, is_plain


def copy_tensor(tensor: torch.Tensor, storages: StorageCopies) -> torch.Tensor:
    """Copy one tensor; the result is a leaf that requires a gradient as the original does."""
    if is_plain(tensor):
        twin = storages.view(tensor)
    else:
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            twin = tensor.detach().clone()
        twin = twin if storages.widening is None else storages.widening(twin)
    copy_attributes(tensor, twin)
    if tensor.requires_grad and not twin.is_inference():
        twin.requires_grad_()
    return twin


def copy_differentiable(
    tensor: torch.Tensor, storages: StorageCopies
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy one that requires a gradient; also the leaf that its gradient flows to.

    A call may write to what came out of another operation, but not to a leaf, nor, where
    gradients are recorded, to a view of one.
    """
    base: torch.Tensor | None = tensor._base if is_plain(tensor) else None  # noqa: SLF001  # no public name
    # The gradient of what lies in memory more than once is a sum, which a leaf of its own has not.
    flat = base is not None and not is_leaf(tensor) and may_overlap(tensor)
    leaf = storages.whole(tensor).requires_grad_() if flat else copy_tensor(tensor, storages)
    if is_leaf(tensor) or not leaf.requires_grad:
        return leaf, leaf
    # Whatever mode the call is made in, its argument was made before.
    with torch.inference_mode(mode=False), torch.enable_grad():
        twin = leaf if base is not None and is_leaf(base) else _as_non_leaf(leaf)
        if flat:
            twin = twin.as_strided(tensor.size(), tensor.stride(), storages.offset(tensor))
        elif base is not None:
            twin = twin.view(twin.size())
    copy_attributes(tensor, twin)
    return twin, leaf


def is_leaf(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a leaf; not one whose history torch forbids to look at."""
    try:
        return tensor.is_leaf
    except RuntimeError:  # made in no_grad mode, where its base was written to since
        return False


def copy_attributes(tensor: torch.Tensor, twin: torch.Tensor) -> None:
    """Carry over Python attributes, among them the marks of ``mark_dynamic``."""
    for name, value in vars(tensor).items():
        if not isinstance(value, torch.Tensor):
            setattr(twin, name, copy.copy(value))


def as_view(tensor: torch.Tensor, base: torch.Tensor, twin: torch.Tensor) -> torch.Tensor:
    """Make the view on ``twin`` that a tensor is on ``base``; gradients flow as they did."""
    offset = int(tensor.storage_offset()) - int(base.storage_offset()) + int(twin.storage_offset())
    with torch.set_grad_enabled(tensor.requires_grad or not base.requires_grad):
        made = twin.as_strided(tensor.size(), tensor.stride(), offset)
    copy_attributes(tensor, made)
    return made


def common_bases(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What several are views of, and is not given itself: compiled code asks autograd for it.

    Of a leaf, only where nothing is differentiated: else no view on it may be written to, and each
    gets a leaf of its own, with a gradient of its own.
    """
    bases = [t._base for t in tensors if t._base is not None and t._base.requires_grad]  # noqa: SLF001  # no public name
    counts = Counter(map(id, bases))
    given = {id(t) for t in tensors}
    common = {id(b): b for b in bases if counts[id(b)] > 1 and id(b) not in given}
    differentiates = torch.is_grad_enabled()
    return [
        b
        for b in common.values()
        if not isinstance(b, torch.nn.Parameter) and not (differentiates and is_leaf(b))
    ]


def same_form(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the values of one can be copied into the other in place."""
    return (
        type(a) is type(b)
        and a.dtype == b.dtype
        and a.device == b.device
        and a.layout == b.layout
        and a.size() == b.size()
        and a.requires_grad == b.requires_grad
        and (a.layout != torch.strided or a.stride() == b.stride())
        and not (a.layout == torch.strided and may_overlap(a))
    )


def may_overlap(tensor: torch.Tensor) -> bool:
    """Whether several elements may lie in one place, as after ``expand``, or can't be told."""
    reach = 0
    steps = zip(tensor.stride(), tensor.size(), strict=True)
    for stride, length in sorted((s, n) for s, n in steps if n > 1):
        if stride <= reach:
            return True
        reach += stride * (length - 1)
    return False


def _as_non_leaf(leaf: torch.Tensor) -> torch.Tensor:
    """Give a tensor on the same storage whose gradient flows to ``leaf``."""
    return _Attach.apply(leaf, leaf.detach())  # type: ignore[no-any-return,no-untyped-call]


class _Attach(torch.autograd.Function):
    """Identity that returns its second input, with the first one as its origin."""

    @staticmethod
    def forward(ctx: Any, _leaf: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(data)
        return data

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None
