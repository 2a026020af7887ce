"""What surrounds a call without being an argument: random state and torch's modes."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pytest_compileguard import dynamo


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomState:
    """State of every random generator that a call may draw from."""

    cpu: torch.Tensor
    cuda: tuple[torch.Tensor, ...]
    """Of each GPU; empty if CUDA was not in use yet."""
    python: Any
    numpy: Any

    def restore(self) -> None:
        torch.set_rng_state(self.cpu)
        for index, state in enumerate(self._cuda_states()):
            torch.cuda.set_rng_state(state, index)
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)

    def same_tensors_drawn(self, other: RandomState) -> bool:
        """Whether torch's generators stand where they stood."""
        return torch.equal(self.cpu, other.cpu) and all(
            torch.equal(a, b)
            for a, b in zip(self._cuda_states(), other._cuda_states(), strict=True)
        )

    def _cuda_states(self) -> tuple[torch.Tensor, ...]:
        """Give those of all GPUs; before CUDA was in use, its generators had drawn nothing."""
        if self.cuda or not _cuda_in_use():
            return self.cuda
        return tuple(map(_undrawn, range(torch.cuda.device_count())))


def random_state() -> RandomState:
    """Read all generators. numpy's is read only where something else imported numpy."""
    numpy = sys.modules.get("numpy")
    cuda = torch.cuda.device_count() if _cuda_in_use() else 0
    return RandomState(
        cpu=torch.get_rng_state(),
        cuda=tuple(torch.cuda.get_rng_state(index) for index in range(cuda)),
        python=random.getstate(),
        numpy=None if numpy is None else numpy.random.get_state(),
    )


def _undrawn(index: int) -> torch.Tensor:
    """Give the state in which the generator of a GPU began, unless it was seeded since."""
    seed = torch.cuda.default_generators[index].initial_seed()
    return torch.Generator(torch.device("cuda", index)).manual_seed(seed).get_state()


def _cuda_in_use() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def tf32_in_force(*, convolves: bool) -> bool:
    """Whether products of float32 matrices, or convolutions, keep only ten bits on a GPU."""
    try:
        matrices = torch.get_float32_matmul_precision() != "highest"
        return matrices or (convolves and bool(torch.backends.cudnn.allow_tf32))
    except RuntimeError:  # torch won't tell once its older and newer settings were mixed
        return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Autocast:
    """Autocast of one device type."""

    device_type: str
    enabled: bool
    dtype: torch.dtype
    cache: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Ambient:
    """torch's modes at one call, so that timing can be done under the same ones later."""

    grad: bool
    inference: bool
    autocast: tuple[Autocast, ...]
    dtype: torch.dtype
    new_tensors_on: dynamo.NewTensorsOn
    gpu: int | None
    """The one that is current; ``None``: CUDA is not in use."""

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Run the body under these modes and put back those that were found."""
        found = torch.get_default_dtype()
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for cast in self.autocast:
                stack.enter_context(
                    torch.autocast(
                        cast.device_type,
                        dtype=cast.dtype,
                        enabled=cast.enabled,
                        cache_enabled=cast.cache,
                    )
                )
            stack.callback(torch.set_default_dtype, found)
            torch.set_default_dtype(self.dtype)
            if self.gpu is not None:
                stack.enter_context(torch.cuda.device(self.gpu))
            stack.enter_context(_placing(self.new_tensors_on))
            yield


@contextlib.contextmanager
def _placing(wanted: dynamo.NewTensorsOn) -> Iterator[None]:
    found = dynamo.new_tensors_on()
    with contextlib.ExitStack() as stack:
        if wanted.by_default != found.by_default:
            stack.callback(torch.set_default_device, found.by_default)
            torch.set_default_device(wanted.by_default)
        if wanted.within not in (None, found.within):
            stack.enter_context(wanted.within)
        yield


def ambient() -> Ambient:
    """Read the modes that are in force now."""
    types = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    return Ambient(
        grad=torch.is_grad_enabled(),
        inference=torch.is_inference_mode_enabled(),
        autocast=tuple(
            Autocast(
                device_type=kind,
                enabled=torch.is_autocast_enabled(kind),
                dtype=torch.get_autocast_dtype(kind),
                cache=torch.is_autocast_cache_enabled(),
            )
            for kind in types
        ),
        dtype=torch.get_default_dtype(),
        new_tensors_on=dynamo.new_tensors_on(),
        gpu=torch.cuda.current_device() if _cuda_in_use() else None,
    )
