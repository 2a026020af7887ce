"""Which cache entry a recompile is blamed on, and what the failure says of the others."""

# mypy: disallow-untyped-calls=False, warn-return-any=False

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_compileguard.observation import Recompile
from pytest_compileguard.report.document import check_report
from pytest_compileguard.report.story import story
from pytest_compileguard.spec import CompileCheck
from tests.dynamo.checked import Checked, check
from tests.dynamo.torch_versions import INT_TO_FLOAT

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Call = tuple[Any, ...]


def plain(x: Tensor) -> Tensor:
    return x.sin() + 1


def times(x: Tensor, n: Any) -> Tensor:
    return x * n


def square(**options: Any) -> Tensor:
    return torch.ones(4, 8, **options)


DOUBLE = torch.float64

SEQUENCES: dict[str, tuple[Callable[..., Any], list[Call], tuple[str, str, str], tuple[str, ...]]]
SEQUENCES = {
    "strides, after another dtype": (
        plain,
        [(square(),), (square(dtype=DOUBLE),), (torch.ones(8, 4).t(),)],
        ("x.stride(0)", "8", "1"),
        ("0/1: x.dtype -> Float",),
    ),
    "rank, after a gradient": (
        plain,
        [(square(),), (square(requires_grad=True),), (torch.ones(2, 4, 8),)],
        ("x.rank", "2", "3"),
        ("0/1: x.requires_grad -> False",),
    ),
    "rank, after a subclass": (
        plain,
        [(torch.ones(4),), (nn.Parameter(torch.ones(4)),), (torch.ones(2, 4),)],
        ("x.rank", "1", "2"),
        ("0/1: type of x -> torch.Tensor",),
    ),
    "dtype, which is new, after a size": (
        plain,
        [(torch.ones(4),), (torch.ones(5),), (torch.ones(4, dtype=DOUBLE),)],
        ("x.dtype", "Float", "Double"),
        ("0/0: x.dtype -> Double",),
    ),
    "size, after another dtype": (
        plain,
        [(torch.ones(4),), (torch.ones(4, dtype=DOUBLE),), (torch.ones(5, dtype=DOUBLE),)],
        ("x.size(0)", "4", "5"),
        ("0/0: x.dtype -> Double",),
    ),
    "flag, after another dtype": (
        times,
        [(square(), True), (square(dtype=DOUBLE), True), (square(), False)],
        ("n", "True", "False"),
        (),
    ),
    "both seen before, not together: the newest entry": (
        plain,
        [(square(),), (square(dtype=DOUBLE, requires_grad=True),), (square(dtype=DOUBLE),)],
        ("x.requires_grad", "True", "False"),
        ("0/0: x.dtype -> Double",),
    ),
}


def last(seen: Checked) -> Recompile:
    return seen.facts.recompiles[-1]


@pytest.mark.parametrize("name", SEQUENCES)
def test_blamed_is_what_is_new(name: str) -> None:
    target, calls, blamed, others = SEQUENCES[name]
    seen = check(target, *calls, max_recompiles=0)

    found = last(seen)
    assert (found.subject, found.before, found.after) == blamed
    told = tuple(
        f"{r.entry}: {r.subject} -> {r.after}"
        for r in found.other_reasons
        if r.subject != found.subject or others
    )
    assert told == others
    assert found.entry not in {reason.entry for reason in found.other_reasons}
    assert len(seen.facts.recompiles) == 2


def test_failure_names_what_is_new_and_the_other_entries() -> None:
    _, calls, _, _ = SEQUENCES["strides, after another dtype"]
    seen = check(plain, *calls, max_recompiles=1)

    assert "call 3, 0/2 plain: x.stride(0) 8 -> 1 (stride; 1 other entry fails by dtype)" in (
        seen.told
    )
    assert ".contiguous()" in seen.told


def test_page_and_json_have_the_reasons_of_all_entries() -> None:
    _, calls, _, _ = SEQUENCES["strides, after another dtype"]
    report = check_report(check(plain, *calls).verdict)

    (event,) = [e for e in story(report)[2].events if e.kind == "recompiled"]
    assert event.source.splitlines() == [
        "0/0: tensor 'x' stride mismatch at index 0. expected 8, actual 1",
        "0/1: tensor 'x' dtype mismatch. expected Double, actual Float",
    ]
    (other,) = report.recompiles[1].other_reasons
    assert (other.entry, other.kind) == ("0/1", "dtype")


def test_first_change_of_a_number_shows_both_values() -> None:
    seen = check(times, (square(), 2), (square(), 3), max_recompiles=0)
    assert "n 2 -> 3 (automatic dynamic)" in seen.told


def test_another_type_is_named_and_of_several_states_the_one_that_differs() -> None:
    def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor

    x = torch.randn(4)
    limited = CompileCheck(backend="eager", max_recompiles=0)
    told = check(scaled, (x, 2), (x, 3), (x, 2.5), (x, True), spec=limited).told
    assert INT_TO_FLOAT in told
    assert "check_type_id" not in told
    assert "pass values of one type in all calls" in told

    around = (
        contextlib.nullcontext(),
        torch.no_grad(),
        torch.autocast("cpu", torch.bfloat16),
    )
    calls = [(x, 2.0)] * len(around)
    checked = check(scaled, *calls, around=lambda call: around[call], spec=limited)
    last = checked.facts.recompiles[-1]
    assert last.subject == "autocast(cpu)_enabled"
    assert last.kind == "other"
