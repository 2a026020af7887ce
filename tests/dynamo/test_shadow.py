"""For the test that makes it, a guarded call is one eager call, bit for bit."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_compileguard.dynamo import compiled_form, forget_compiled_code
from pytest_compileguard.isolation.mirror import Mirror
from pytest_compileguard.observation import CompileObservation, ParityObservation
from pytest_compileguard.options import Options
from pytest_compileguard.parity.leaves import leaves_of
from pytest_compileguard.plan import make_plan
from pytest_compileguard.runner import Check
from pytest_compileguard.spec import CompileCheck
from tests.dynamo import shadow_bodies
from tests.dynamo.shadow_bodies import BODIES

pytestmark = pytest.mark.usefixtures("compiler_loaded")

COMPILED_ALREADY = ("compiled_by_the_test", "compiled_in_place")


def check_of(name: str, target: Callable[..., Any]) -> Check:
    spec = CompileCheck() if name in COMPILED_ALREADY else CompileCheck(backend="aot_eager")
    check = Check(make_plan(spec, Options(no_timing=True), nodeid="t.py::t", name=name), target)
    check.start(cold=True)
    return check


def start(name: str) -> tuple[Callable[..., Any], list[tuple[Any, ...]]]:
    """Make a body anew, from the same state of everything."""
    torch.manual_seed(7)
    random.seed(7)
    shadow_bodies.GLOBAL_COUNT = 0
    shadow_bodies.GLOBAL_SEEN.clear()
    shadow_bodies.GLOBAL_NORM.load_state_dict(shadow_bodies.Normed().state_dict())
    return BODIES[name]()


def trace_of(
    target: Callable[..., Any], call: Callable[..., Any], calls: list[tuple[Any, ...]]
) -> list[tuple[str, Any]]:
    """Make the calls, and note everything that can be seen of them afterwards."""
    seen: list[tuple[str, Any]] = []
    for number, args in enumerate(calls):
        try:
            value = call(*args)
        except ValueError as error:
            value = str(error)
        found = [*leaves_of(value, "output", objects=True), *leaves_of(args, "arguments")]
        seen += [(f"call {number}: {leaf.path}", _frozen(leaf.value)) for leaf in found]
        seen.append((f"call {number}: is its argument", value is args[0]))
        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
            value.sum().backward()  # type: ignore[no-untyped-call]
    mirror = Mirror(share_parameters=True, compiled_form=compiled_form)
    mirror.target(target)
    for path, twin in mirror.state().values():
        if isinstance(twin, torch.Tensor):
            seen.append((path, _frozen(twin)))
        seen += [
            (f"{path}.{name}", value)
            for name, value in getattr(twin, "__dict__", {}).items()
            if isinstance(value, bool | int | float | str)
        ]
    parameters = target.parameters() if isinstance(target, torch.nn.Module) else ()
    seen += [("gradient", _frozen(p.grad)) for p in parameters if p.grad is not None]
    seen.append(("globals", (shadow_bodies.GLOBAL_COUNT, list(shadow_bodies.GLOBAL_SEEN))))
    seen.append(("random numbers", (torch.rand(3).tolist(), random.getstate())))
    return seen


def _frozen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        plain = value.detach().resolve_conj()
        return (str(value.dtype), value.stride(), value.requires_grad, plain.tolist())
    return value if isinstance(value, bool | int | float | str | None) else type(value)


@pytest.mark.parametrize("name", BODIES)
def test_a_guarded_call_is_one_eager_call(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    target, calls = start(name)
    with torch.compiler.set_stance("force_eager"):
        expected = trace_of(target, target, calls)
    printed = capsys.readouterr()

    target, calls = start(name)
    check = check_of(name, target)
    actual = trace_of(target, lambda *args: check.call(args, {}), calls)

    assert capsys.readouterr() == printed
    assert [path for path, _ in actual] == [path for path, _ in expected]
    for (path, seen), (_, wanted) in zip(actual, expected, strict=True):
        assert seen == wanted, path
    forget_compiled_code()


@pytest.mark.parametrize("name", BODIES)
def test_sound_code_is_never_refused(name: str) -> None:
    target, calls = start(name)
    check = check_of(name, target)
    for args in calls:
        with contextlib.suppress(ValueError):  # one of them raises it on purpose
            check.call(args, {})
    seen = check.finish()
    forget_compiled_code()

    assert isinstance(seen.compile, CompileObservation)
    assert isinstance(seen.parity, ParityObservation)
    assert seen.compile.error is None
    assert seen.compile.unreliable == ()
    assert seen.parity.mismatches == ()
    assert seen.parity.calls_compared == len(calls)
    assert seen.parity.leaves_compared > 0
