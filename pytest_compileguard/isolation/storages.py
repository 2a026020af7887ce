"""Copies the memory of tensors, each storage once, so that what shares memory still does.

For a float64 reference the numbers in a storage are widened and the views on it made anew:
tensors that overlap or share memory do so there too. Else a write would reach less there
than it does in eager, and a compiled call that drops a write would be acquitted.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

import torch

from pytest_compileguard.errors import IsolationError
from pytest_compileguard.isolation.holding import Held, hold
from pytest_compileguard.isolation.widening import Widening, is_inexact, wide_dtype

# Inductor compiles for the alignment of its inputs; copies keep the place within a line.
_ALIGNMENT_BYTES = 256
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers of as many bytes as a number has."""
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class _Key(NamedTuple):
    """Which copy of a storage a tensor is made on."""

    storage: int
    numbers: torch.dtype | None
    """What was widened; ``None``: the bytes are those of the original."""


class _Copy(NamedTuple):
    """The copy of a part of a storage; bytes are those of the original."""

    original: torch.UntypedStorage
    """Kept so that its key can't be taken by another storage."""
    made: torch.UntypedStorage
    start: int
    end: int

    def spans(self, low: int, high: int) -> bool:
        return self.start <= low and high <= self.end


class StorageCopies:
    """Copies of storages, each made once: only the part that the given tensors use."""

    def __init__(
        self, tensors: Iterable[torch.Tensor] = (), widening: Widening | None = None
    ) -> None:
        self.widening = widening
        self._spans: dict[int, tuple[int, int]] = {}
        self._copies: dict[_Key, _Copy] = {}
        self._read: dict[int, set[tuple[int, int, torch.dtype | None]]] = {}
        """Where tensors reach in a storage, and which numbers they read there."""
        self._given: set[int] = set()
        self._bases: dict[int, tuple[Held, torch.Tensor]] = {}
        for tensor in tensors:
            if is_plain(tensor):
                self._widen_span(tensor)
                self._given.add(id(tensor))

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Make the same view on the copied storage; a plain leaf without gradient."""
        if (made := self._made_base(tensor)) is not None:
            form = tensor.size(), tensor.stride(), self.offset(tensor)
            same = (made.size(), made.stride(), made.storage_offset()) == form
            return made if same else made.as_strided(*form)
        base = base_of(tensor)
        if base is None and id(tensor) in self._given and not tensor.requires_grad:
            return self._base(tensor, tensor)
        if base is None:
            return self._place(tensor, tensor.size(), tensor.stride(), self.offset(tensor))
        # Tensors that are views of one another must stay so: compiled code that writes to one
        # of them asks autograd, not only the memory.
        with torch.enable_grad():
            return self._base(base, tensor).as_strided(
                tensor.size(), tensor.stride(), self.offset(tensor)
            )

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """All that was copied of the storage of a tensor, in one dimension."""
        copied = self._copied(tensor)
        length = copied.made.nbytes() // self._dtype(tensor).itemsize
        return self._place(tensor, torch.Size([length]), (1,), 0)

    def offset(self, tensor: torch.Tensor) -> int:
        """The place of the first element of a tensor in the copy of its storage."""
        return int(tensor.storage_offset()) - self._copied(tensor).start // tensor.element_size()

    def _base(self, base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
        """The copy of what others are views of: of an argument, or of all that they use of it."""
        if (made := self._made_base(base)) is not None:
            return made
        if id(base) in self._given:
            twin = self._place(base, base.size(), base.stride(), self.offset(base))
        else:
            twin = self.whole(view)
        self._bases[id(base)] = (hold(base), twin)
        return twin

    def _made_base(self, base: torch.Tensor) -> torch.Tensor | None:
        original, twin = self._bases.get(id(base), (None, None))
        return twin if original is not None and original() is base else None

    def _place(
        self, tensor: torch.Tensor, size: torch.Size, stride: tuple[int, ...], offset: int
    ) -> torch.Tensor:
        made = self._copied(tensor).made
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            empty = torch.empty(0, dtype=self._dtype(tensor), device=tensor.device)
            return empty.set_(made, offset, size, stride)

    def _dtype(self, tensor: torch.Tensor) -> torch.dtype:
        return tensor.dtype if self.widening is None else wide_dtype(tensor.dtype)

    def base_given(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """What a tensor is a view of, where gradients are at stake and that is given as well."""
        base: torch.Tensor | None = tensor._base  # noqa: SLF001  # no public name
        if base is None or not base.requires_grad or tensor.is_inference():
            return None
        fits = id(base) in self._given and is_plain(tensor) and base.dtype == tensor.dtype
        return base if fits else None

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the storage of a tensor was copied already, as far as the tensor reaches."""
        known = self._copies.get(self._key(tensor)) if is_plain(tensor) else None
        return known is not None and known.spans(*_span_bytes(tensor))

    def keep(self, storages: Container[int | None]) -> None:
        """Let go of all copies but those of some storages, and with them of their originals."""
        self._copies = {key: c for key, c in self._copies.items() if key.storage in storages}
        self._read = {key: spans for key, spans in self._read.items() if key in storages}
        bases = ((key, held[0](), held) for key, held in self._bases.items())
        self._bases = {
            key: held
            for key, base, held in bases
            if base is not None and storage_id(base) in storages
        }

    def _widen_span(self, tensor: torch.Tensor) -> None:
        key = storage_id(tensor)
        low, high = _span_bytes(tensor)
        known = self._spans.get(key, (low, high))
        self._spans[key] = (min(known[0], low), max(known[1], high))

    def _copied(self, tensor: torch.Tensor) -> _Copy:
        key, span = self._key(tensor), _span_bytes(tensor)
        self._refuse_other_numbers(key, span)
        known = self._copies.get(key)
        if known is None or not known.spans(*span):
            known = self._copies[key] = self._copy(tensor, *self._part(tensor, *span), key.numbers)
        return known

    def _key(self, tensor: torch.Tensor) -> _Key:
        """The storage, and what is widened in it: of complex numbers, their parts."""
        dtype = tensor.dtype
        if self.widening is None or not is_inexact(dtype):
            return _Key(storage_id(tensor), None)
        return _Key(storage_id(tensor), dtype.to_real() if dtype.is_complex else dtype)

    def _refuse_other_numbers(self, key: _Key, span: tuple[int, int]) -> None:
        if self.widening is None:
            return
        read = self._read.setdefault(key.storage, set())
        for low, high, numbers in read:
            if numbers != key.numbers and low < span[1] and span[0] < high:
                raise IsolationError("memory that is read as two kinds of numbers can't be widened")
        read.add((*span, key.numbers))

    def _part(self, tensor: torch.Tensor, low: int, high: int) -> tuple[int, int]:
        """First and last byte of what is to be copied."""
        size_bytes = tensor.untyped_storage().nbytes()
        start, end = self._spans.get(storage_id(tensor), (0, size_bytes))
        if not start <= low <= high <= end:
            start, end = 0, size_bytes
        return start - start % _ALIGNMENT_BYTES, end

    def _copy(
        self, tensor: torch.Tensor, start: int, end: int, numbers: torch.dtype | None
    ) -> _Copy:
        storage = tensor.untyped_storage()
        with torch.no_grad():
            whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            made = whole[start:end].clone()
            if self.widening is not None and numbers is not None:
                odd = made.numel() % numbers.itemsize
                made = self.widening(made[: made.numel() - odd].view(numbers))
        return _Copy(storage, made.untyped_storage(), start, end)


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
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


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two plain tensors hold the same, NaN and the sign of a zero included.

    By their bytes: types of few bits, such as ``float4_e2m1fn_x2``, have no operator that compares.
    """
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    one, other = one.detach(), other.detach()
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    bits = _BITS[one.dtype.itemsize]
    return torch.equal(one.view(bits), other.view(bits))


def storage_key(tensor: torch.Tensor) -> int | None:
    """Identity of the storage; ``None`` for tensors without one, or with an empty one."""
    if not is_plain(tensor) or tensor.untyped_storage().nbytes() == 0:
        return None
    return storage_id(tensor)


def memory_key(tensor: torch.Tensor) -> int | None:
    """Identity of the memory that a tensor shows, also of one that is more than a view on it."""
    if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.is_nested:
        return None
    try:
        empty = tensor.untyped_storage().nbytes() == 0
    except (NotImplementedError, RuntimeError):  # a subclass that has no memory of its own
        return None
    return None if empty else storage_id(tensor)


def storage_id(tensor: torch.Tensor) -> int:
    """Identity of the storage, whatever the tensor."""
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
