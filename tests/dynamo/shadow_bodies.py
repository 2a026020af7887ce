"""Targets with state of all kinds, and the calls to make of them."""

from __future__ import annotations

import collections
import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Body = tuple[Callable[..., Any], list[tuple[Any, ...]]]
BODIES: dict[str, Callable[[], Body]] = {}


def body(make: Callable[[], Body]) -> Callable[[], Body]:
    BODIES[make.__name__] = make
    return make


def inputs(*shape: int, count: int = 3, **options: Any) -> list[tuple[Any, ...]]:
    return [(torch.randn(*shape, **options),) for _ in range(count)]


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.norm(self.linear(x))
        return out


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.total = nn.Buffer(torch.zeros(1))
        self.cache: torch.Tensor | None = None
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.total.add_(1)
        self.cache = x.sum(0)
        self.seen.append(self.calls)
        return x * self.total


class Stepper:
    def __init__(self) -> None:
        self.weight = torch.randn(4, requires_grad=True)
        self.steps = 0

    def step(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return (x * self.weight).sum() * self.steps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(x)


class Cache:
    def __init__(self) -> None:
        self.keys: list[torch.Tensor] = []

    def update(self, key: torch.Tensor) -> torch.Tensor:
        self.keys.append(key)
        return torch.cat(self.keys)


@dataclasses.dataclass
class Output:
    value: torch.Tensor
    count: int


class Named(collections.OrderedDict[str, Any]):
    """A dictionary that pytree does not know."""


GLOBAL_NORM = Normed()
GLOBAL_COUNT = 0
GLOBAL_SEEN: list[int] = []


def count_globally(x: torch.Tensor) -> torch.Tensor:
    global GLOBAL_COUNT  # noqa: PLW0603  # what is under test
    GLOBAL_COUNT += 1
    GLOBAL_SEEN.append(GLOBAL_COUNT)
    return x * GLOBAL_COUNT


@body
def function() -> Body:
    return lambda x: torch.relu(x * 2 + 1), inputs(3, 4)


@body
def module_in_training() -> Body:
    return Normed(), inputs(3, 4)


@body
def module_in_a_closure() -> Body:
    module = Normed()
    return lambda x: module(x).relu(), inputs(3, 4)


@body
def module_in_a_global() -> Body:
    return lambda x: GLOBAL_NORM(x).relu(), inputs(3, 4)


@body
def counters_in_globals() -> Body:
    return count_globally, inputs(3)


@body
def counters_in_a_module() -> Body:
    return Counting(), inputs(2, 3)


@body
def bound_method() -> Body:
    return Stepper().step, inputs(4)


@body
def callable_object() -> Body:
    return Stepper(), inputs(4)


@body
def partial() -> Body:
    return functools.partial(nn.functional.layer_norm, normalized_shape=(4,)), inputs(3, 4)


@body
def argument_written_to() -> Body:
    return lambda x: x.add_(1) * 2, inputs(4)


@body
def views_and_the_argument_itself() -> Body:
    return lambda x: (x[1:], x.t(), x, x.sin()), inputs(4, 4)


@body
def growing_cache() -> Body:
    cache = Cache()
    return lambda x, c: c.update(x).sum(0), [(torch.randn(1, 4), cache) for _ in range(3)]


@body
def containers_written_to() -> Body:
    state: dict[str, Any] = {"n": 0, "items": [1]}

    def target(x: torch.Tensor, d: dict[str, Any]) -> torch.Tensor:
        d["n"] += 1
        d["items"].append(d["n"])
        return torch.mul(x, d["n"])

    return target, [(torch.randn(4), state) for _ in range(3)]


@body
def dropout() -> Body:
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), inputs(3, 4)


@body
def random_numbers() -> Body:
    return lambda x: x + torch.rand_like(x), inputs(3)


@body
def own_generator() -> Body:
    generator = torch.Generator().manual_seed(1)
    return lambda x: x + torch.rand(3, generator=generator), inputs(3)


@body
def compiled_by_the_test() -> Body:
    return torch.compile(Normed(), backend="aot_eager"), inputs(3, 4)


@body
def compiled_in_place() -> Body:
    module = Normed()
    module.compile(backend="aot_eager")
    return module, inputs(3, 4)


@body
def training_step() -> Body:
    module = Normed()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss: torch.Tensor = module(x).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return step, inputs(3, 4)


@body
def outputs_of_all_kinds() -> Body:
    def target(x: torch.Tensor) -> Any:
        return Named(a=x + 1), Output(x * 2, 3), {"c": torch.complex(x, x), "b": x > 0, "n": None}

    return target, inputs(3, requires_grad=True)


@body
def non_leaf_written_to() -> Body:
    leaf = torch.randn(4, requires_grad=True)
    return lambda x: x.mul_(2).sin(), [(leaf * n,) for n in (1, 2)]


@body
def hooks() -> Body:
    module, seen = Normed(), []
    module.linear.register_forward_hook(lambda *_: seen.append(1))
    module.seen = seen  # type: ignore[assignment]
    return module, inputs(3, 4)


@body
def expanded_argument() -> Body:
    return lambda x: x * 2 + 1, [(torch.randn(1, 4).expand(3, 4),)]


@body
def slices_of_one_tensor() -> Body:
    base = torch.randn(1000, 4)
    # Not written to: with in-place writes, AOTAutograd takes the second call's offsets for
    # those of the first (seen on torch 2.13 and 2.14, without this plugin).
    return lambda a, b: a + b, [(base[:3], base[1:4]), (base[500:503], base[:3])]


@body
def lock_in_a_module() -> Body:
    module = Normed()
    module.lock = threading.Lock()  # type: ignore[assignment]
    return module, inputs(3, 4)


@body
def tied_weights() -> Body:
    embedding, head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
    head.weight = embedding.weight
    return nn.Sequential(embedding, head), [(torch.arange(3),)]


@body
def spectral_norm() -> Body:
    return nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), inputs(2, 4)


@body
def lazy_module() -> Body:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), inputs(2, 4)


@body
def raises_for_some() -> Body:
    def target(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 3:
            raise ValueError("too long")
        return x + 1

    return target, [(torch.randn(3),), (torch.randn(4),)]


@body
def prints() -> Body:
    def target(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        print("half way")  # noqa: T201  # what is under test
        return y.cos()

    return target, inputs(3)
