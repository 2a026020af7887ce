"""Call sequences that are run twice: under guard, and by a plain script without the plugin.

This module and ``witness`` know nothing of the plugin.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.dynamo import break_functions

ROOT = Path(__file__).parents[2]
CASES = sorted((ROOT / "tests" / "cases").glob("*.py"))

Call = tuple[Any, ...]


@dataclass(frozen=True)
class Sequence:
    """A target and the calls to make of it, in order."""

    target: Callable[..., Any]
    calls: list[Call]
    backend: Any = "aot_eager"
    options: dict[str, Any] = field(default_factory=dict)
    before: Callable[[int, Any], object] = lambda _call, _target: None
    around: Callable[[int], contextlib.AbstractContextManager[object]] = lambda _call: (
        contextlib.nullcontext()
    )


def sequences() -> dict[str, Callable[[], Sequence]]:
    """All of them, by name; each is made anew, and alike, when it is called."""
    cases = {path.stem: _case_maker(path) for path in CASES}
    return cases | {f"toy_{name}": make for name, make in _toys().items()} | _small()


def _case_maker(path: Path) -> Callable[[], Sequence]:
    def make() -> Sequence:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        case = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(case)
        target, calls = case.make()
        backend = case.TRUTH["backend"]
        return Sequence(
            target,
            calls,
            backend=backend if callable(backend) else "aot_eager",
            before=getattr(case, "before", lambda _call, _target: None),
            around=getattr(case, "ctx", lambda _call: contextlib.nullcontext()),
        )

    return make


def _toys() -> dict[str, Callable[[], Sequence]]:
    """Of the example project: its working models and its planted faults."""
    folders = [str(ROOT / "example_project"), str(ROOT / "example_project" / "regressions")]
    sys.path[:0] = folders
    try:
        import broken_toys as broken  # noqa: PLC0415
        from toyshop import elementwise, models, pooling  # noqa: PLC0415
    finally:
        for folder in folders:
            sys.path.remove(folder)

    def three_sizes(*shape: int) -> list[Call]:
        return [(torch.ones(size, *shape),) for size in (16, 32, 64)]

    return {
        "transform": lambda: Sequence(elementwise.transform, [(torch.ones(4, 8),) * 3]),
        "two_layer_net": lambda: Sequence(models.TwoLayerNet(8, 8), three_sizes(8)),
        "encoder": lambda: Sequence(models.Encoder(8, 2).eval(), three_sizes(5, 8)),
        "attention_pool": lambda: Sequence(pooling.attention_pool, three_sizes(8)),
        "attention_pool_static": lambda: Sequence(
            pooling.attention_pool, three_sizes(8), options={"dynamic": False}
        ),
        "chatty": lambda: Sequence(broken.Chatty(), three_sizes(8)),
        "normalise": lambda: Sequence(broken.normalise, three_sizes(8)),
        "refine": lambda: Sequence(broken.refine, three_sizes(8)),
        "matmul": lambda: Sequence(broken.matmul, [(torch.ones(4, 4), torch.ones(4, 4))]),
        "score": lambda: Sequence(
            broken.score,
            [(torch.ones(n, 3, requires_grad=True), torch.ones(3, 4)) for n in (5, 5, 6)],
            backend=broken.wrong_gradient,
        ),
    }


def _small() -> dict[str, Callable[[], Sequence]]:
    """Functions and modules of ``break_functions``, called with two sizes."""
    return {name: _small_maker(getattr(break_functions, name)) for name in _SMALL}


_SMALL = (
    "one_gb",
    "two_gb",
    "gb_first",
    "gb_last",
    "gb_consec",
    "nested",
    "nested2",
    "loop_gb",
    "loop_in_nested",
    "with_custom",
    "try_gb",
    "generator",
    "disabled_nonrec",
    "item",
    "ddbranch",
    "id_call",
    "nontensor",
    "skipped_step",
    "bw_hook",
    "nonzero",
    "dict_print_twice",
    "Outer",
    "OuterBreaksToo",
    "Derived",
    "BreaksInTraining",
    "calls_lambda",
    "comprehension",
    "decorated_loudly",
    "closure",
    "two_on_a_line",
    "after_a_branch",
)


def _small_maker(value: Any) -> Callable[[], Sequence]:
    def make() -> Sequence:
        target = value() if isinstance(value, type) else value
        return Sequence(target, [(torch.ones(4),), (-torch.ones(5),)])

    return make
