"""Copies tensors so that Dynamo can't tell copy from original.

Sizes, strides, storage sharing, alignment, ``requires_grad``, inference mode and the
attributes that ``mark_dynamic`` leaves all stay. Tensors that share storage share it
in the copy too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch

# Inductor compiles for the alignment of its inputs; copies keep the place within a line.
_ALIGNMENT_BYTES = 256
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class StorageCopies:
    """Copies of storages, each made once: only the part that the given tensors use."""

    def __init__(self, tensors: Iterable[torch.Tensor] = ()) -> None:
        self._spans: dict[int, tuple[int, int]] = {}
        self._copies: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage, int]] = {}
        self._given: set[int] = set()
        self._bases: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for tensor in tensors:
            if is_plain(tensor):
                self._widen(tensor)
                self._given.add(id(tensor))

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Make the same view on the copied storage; a plain leaf without gradient."""
        if id(tensor) in self._bases:
            return self._bases[id(tensor)][1]
        base = _base_of(tensor)
        if base is None and id(tensor) in self._given and not tensor.requires_grad:
            return self._base(tensor, tensor)
        if base is None:
            return self._place(tensor, tensor.size(), tensor.stride(), self._offset(tensor))
        # Tensors that are views of one another must stay so: compiled code that writes to one
        # of them asks autograd, not only the memory.
        with torch.enable_grad():
            return self._base(base, tensor).as_strided(
                tensor.size(), tensor.stride(), self._offset(tensor)
            )

    def _base(self, base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
        """The copy of what others are views of: of an argument, or of all that they use of it."""
        if id(base) not in self._bases:
            if id(base) in self._given:
                twin = self._place(base, base.size(), base.stride(), self._offset(base))
            else:
                storage, _ = self._copied(view)
                length = storage.nbytes() // view.element_size()
                twin = self._place(view, torch.Size([length]), (1,), 0)
            self._bases[id(base)] = (base, twin)
        return self._bases[id(base)][1]

    def _offset(self, tensor: torch.Tensor) -> int:
        _, start = self._copied(tensor)
        return int(tensor.storage_offset()) - start // tensor.element_size()

    def _place(
        self, tensor: torch.Tensor, size: torch.Size, stride: tuple[int, ...], offset: int
    ) -> torch.Tensor:
        storage, _ = self._copied(tensor)
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            return empty.set_(storage, offset, size, stride)

    def base_given(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """What a tensor is a view of, where gradients are at stake and that is given as well."""
        base: torch.Tensor | None = tensor._base  # noqa: SLF001  # no public name
        if base is None or not base.requires_grad or tensor.is_inference():
            return None
        fits = id(base) in self._given and is_plain(tensor) and base.dtype == tensor.dtype
        return base if fits else None

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the storage of a tensor was copied already, as far as the tensor reaches."""
        if not is_plain(tensor) or _storage_key(tensor) not in self._copies:
            return False
        _, copied, start = self._copies[_storage_key(tensor)]
        low, high = _span_bytes(tensor)
        return start <= low and high <= start + copied.nbytes()

    def _widen(self, tensor: torch.Tensor) -> None:
        key = _storage_key(tensor)
        low, high = _span_bytes(tensor)
        known = self._spans.get(key, (low, high))
        self._spans[key] = (min(known[0], low), max(known[1], high))

    def _copied(self, tensor: torch.Tensor) -> tuple[torch.UntypedStorage, int]:
        key, storage = _storage_key(tensor), tensor.untyped_storage()
        low, high = _span_bytes(tensor)
        if key in self._copies:
            _, copied, start = self._copies[key]
            if start <= low and high <= start + copied.nbytes():
                return copied, start
        start, end = self._spans.get(key, (0, storage.nbytes()))
        if not start <= low <= high <= end:
            start, end = 0, storage.nbytes()
        start -= start % _ALIGNMENT_BYTES
        copied = _copy_bytes(storage, start, end)
        # The original is kept so that its key can't be taken by another storage.
        self._copies[key] = (storage, copied, start)
        return copied, start


def _base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor that another is a view of, where no gradient is at stake."""
    if tensor.is_inference() or tensor.requires_grad:
        return None
    base: torch.Tensor | None = tensor._base  # noqa: SLF001  # no public name
    alike = base is not None and base.dtype == tensor.dtype and not base.requires_grad
    return base if alike and base is not None and is_plain(base) else None


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is nothing but a view on a storage."""
    return (
        type(tensor) in _PLAIN
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.is_nested
    )


def copy_tensor(tensor: torch.Tensor, storages: StorageCopies) -> torch.Tensor:
    """Copy one tensor; the result is a leaf that requires a gradient as the original does."""
    if is_plain(tensor):
        twin = storages.view(tensor)
    else:
        with torch.no_grad():
            twin = tensor.detach().clone()
    copy_attributes(tensor, twin)
    if tensor.requires_grad and not twin.is_inference():
        twin.requires_grad_()
    return twin


def copy_attributes(tensor: torch.Tensor, twin: torch.Tensor) -> None:
    """Carry over Python attributes, among them the marks of ``mark_dynamic``."""
    for name, value in vars(tensor).items():
        if not isinstance(value, torch.Tensor):
            setattr(twin, name, copy.copy(value))


def widened(tensor: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """Convert to float64 or complex128; integers stay as they are. A leaf like the original.

    With a generator (of the CPU), each value moves at random by a unit of the precision
    that the original has: as much as rounding may have moved it.
    """
    if tensor.dtype.is_complex:
        wide = tensor.detach().to(torch.complex128)
    elif tensor.dtype.is_floating_point:
        wide = tensor.detach().to(torch.float64)
    else:
        return tensor
    if generator is not None:
        signs = torch.randint(0, 2, tensor.shape, generator=generator).to(tensor.device) * 2 - 1
        wide = wide * (1 + torch.finfo(tensor.dtype).eps * signs)
    return wide.requires_grad_(tensor.requires_grad)


def copy_gradient(real: torch.Tensor, twin: torch.Tensor) -> None:
    """Give the twin of a leaf a gradient of its own, which a backward in the call adds to."""
    if real.is_leaf and twin.is_leaf and real.requires_grad:
        twin.grad = None if real.grad is None else real.grad.detach().clone()


def as_view(tensor: torch.Tensor, base: torch.Tensor, twin: torch.Tensor) -> torch.Tensor:
    """Make the view on ``twin`` that a tensor is on ``base``; gradients flow as they did."""
    offset = int(tensor.storage_offset()) - int(base.storage_offset()) + int(twin.storage_offset())
    with torch.set_grad_enabled(tensor.requires_grad):
        made = twin.as_strided(tensor.size(), tensor.stride(), offset)
    copy_attributes(tensor, made)
    return made


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
        and not _overlaps(a)
    )


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether several elements may lie in one place, as after ``expand``: no writing then."""
    if tensor.layout != torch.strided:
        return False
    return any(n > 1 and s == 0 for n, s in zip(tensor.size(), tensor.stride(), strict=True))


def as_non_leaf(leaf: torch.Tensor) -> torch.Tensor:
    """Give a tensor on the same storage whose gradient flows to ``leaf``.

    A call may write to an argument that came out of another operation, but not to a leaf.
    """
    # Whatever mode the call is made in, its argument was made before.
    with torch.inference_mode(leaf.is_inference()), torch.enable_grad():
        data = leaf.detach()
        return _Attach.apply(leaf, data)  # type: ignore[no-any-return,no-untyped-call]


class _Attach(torch.autograd.Function):
    """Identity that returns its second input, with the first one as its origin."""

    @staticmethod
    def forward(ctx: Any, _leaf: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(data)
        return data

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


def storage_key(tensor: torch.Tensor) -> int | None:
    """Identity of the storage; ``None`` for tensors without one, or with an empty one."""
    if not is_plain(tensor) or tensor.untyped_storage().nbytes() == 0:
        return None
    return _storage_key(tensor)


def memory_key(tensor: torch.Tensor) -> int | None:
    """Identity of the memory that a tensor shows, also of one that is more than a view on it."""
    if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.is_nested:
        return None
    try:
        empty = tensor.untyped_storage().nbytes() == 0
    except (NotImplementedError, RuntimeError):  # a subclass that has no memory of its own
        return None
    return None if empty else _storage_key(tensor)


def _storage_key(tensor: torch.Tensor) -> int:
    # Each access makes a new Python object; only this tells storages apart.
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001  # no public name


def _span_bytes(tensor: torch.Tensor) -> tuple[int, int]:
    """First and last byte of the storage that a tensor can reach."""
    size = tensor.element_size()
    first = int(tensor.storage_offset()) * size
    if tensor.numel() == 0:
        return first, first
    reach = sum((n - 1) * s for n, s in zip(tensor.size(), tensor.stride(), strict=True))
    return first, first + (int(reach) + 1) * size


def _copy_bytes(storage: torch.UntypedStorage, start: int, end: int) -> torch.UntypedStorage:
    with torch.no_grad():
        whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        return whole[start:end].clone().untyped_storage()
