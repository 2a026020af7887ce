"""Hooks and callbacks of another file: their globals are those of the module on both sides."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.options import Options
from tests.dynamo import hooked
from tests.dynamo.checked import BY_EAGER, check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

X = torch.ones(2, 3)


class Net(nn.Module):
    """A layer, and a callback on what it gives."""

    def __init__(self, callback: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.callback = callback

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x)
        return self.callback(y) if self.callback else y


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    hooked.forget()


def hooking(hook: hooked.Hook) -> Net:
    net = Net()
    net.layer.register_forward_hook(hook)
    return net


def test_hooks_may_keep_what_they_see_in_globals_of_their_file() -> None:
    net = Net()
    for hook in hooked.HOOKS.values():
        net.layer.register_forward_hook(hook)

    run = check(net, (X,), (X,))

    assert run.told == ""
    shapes = {"last": X.shape, "layer": X.shape}
    assert hooked.state() == (2, shapes, ["layer", "scaled by 2.0"] * 2)
    assert all(not tensor.requires_grad for tensor in hooked.SEEN.values())


def test_a_hook_before_the_forward_may_too() -> None:
    net = Net()
    net.register_forward_pre_hook(hooked.count)

    assert check(net, (X,)).told == ""
    assert hooked.COUNT == 1


@pytest.mark.parametrize("target", (Net(hooked.called_back), lambda x: hooked.called_back(x + 1)))
def test_callbacks_may_too(target: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert check(target, (X,)).told == ""
    assert hooked.LOG == ["called back"]


def test_a_partial_target_may_too() -> None:
    assert check(functools.partial(hooked.counting, by=2), (X,), (X,)).told == ""
    assert hooked.COUNT == 4


def test_a_callback_among_the_arguments_may_too() -> None:
    def target(x: torch.Tensor, callback: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        return callback(x + 1)

    assert check(target, (X, hooked.called_back)).told == ""
    assert hooked.LOG == ["called back"]


@pytest.mark.parametrize(
    ("hook", "path"),
    ((hooked.planted_count, "hooked.COUNT"), (hooked.planted_keep, "hooked.SEEN['last']")),
)
def test_what_compiled_code_leaves_there_otherwise_is_told(hook: hooked.Hook, path: str) -> None:
    told = check(hooking(hook), (X,)).told

    assert f"tests.dynamo.{path}" in told
    assert "compiled differs from eager in 1 of 1 call" in told


class Installing(nn.Module):
    """Installs a hook at its first call, as libraries do that capture hidden states."""

    def __init__(self, *, plants: bool = False) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.plants = plants
        self.ready = False

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def install(self, hooks: int) -> None:
        for _ in range(hooks):
            self.layer.register_forward_hook(hooked.keep)
        self.ready = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.ready:
            self.install(2 if self.plants and torch.compiler.is_compiling() else 1)
        return torch.relu(self.layer(x))


def test_a_call_may_install_hooks() -> None:
    net = Installing()

    assert check(net, (X,), (X,)).told == ""
    assert len(net.layer._forward_hooks) == 1
    later = net.layer.register_forward_hook(hooked.count)
    assert later.id > next(iter(net.layer._forward_hooks))


def test_a_hook_that_only_compiled_code_installs_is_told() -> None:
    told = check(Installing(plants=True), (X,)).told

    assert "layer._forward_hooks" in told
    assert "only compiled has it" in told


def test_hooks_are_followed_where_a_global_holds_their_module() -> None:
    net = hooking(hooked.counted_beside_registry)
    hooked.REGISTRY["net"] = net

    assert check(net, (X,), (X,), (X,)).told == ""
    assert hooked.COUNT == 3


def test_a_difference_there_is_told_in_later_calls_too() -> None:
    net = hooking(hooked.planted_beside_registry)
    hooked.REGISTRY["net"] = net

    assert "hooked.COUNT" in check(net, (X,), (X,), (X,)).told
    assert hooked.COUNT == 3


def test_the_kind_of_a_container_in_a_global_is_compared() -> None:
    assert "hooked.KINDS" in check(hooking(hooked.planted_kind), (X,)).told
    assert hooked.KINDS == {"list": (1, 2)}


def test_what_a_container_keeps_beside_its_items_is_put_back_and_compared() -> None:
    assert check(hooking(hooked.metering), (X,), (X,)).told == ""
    assert (hooked.METER.total, dict(hooked.METER)) == (2, {"calls": 2})
    assert "hooked.METER" in check(hooking(hooked.planted_metering), (X,)).told


def test_a_tensor_in_a_global_may_change_its_size() -> None:
    assert check(hooking(hooked.resize), (X,)).told == ""
    assert hooked.RESIZED.shape == (3,)


class OnShared(nn.Module):
    """Puts a hook on a parameter that a global holds, so that both sides share it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.ready = False

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def install(self) -> None:
        self.ready = True
        weight: Any = hooked.PARAMETER  # torch leaves its hooks untyped
        weight.register_hook(lambda _gradient: self.seen.append(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.ready:
            self.install()
        return x * hooked.PARAMETER


def test_a_hook_on_what_both_sides_share_stays_the_one_of_the_test() -> None:
    net = OnShared()
    guard = CompileGuard(nodeid="t.py::t", spec=BY_EAGER, options=Options())
    try:
        guard(net)(X).sum().backward()
    finally:
        guard.close()

    assert net.seen == [1]
