"""The kernels of a check, for the page: what each is made of, and what a call launches."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_compileguard.observation import FusedKernel, Record
from pytest_compileguard.report.contract import CheckReport

_FUSED = re.compile(r"^(?P<kind>triton_[a-z]+|cpp)_fused_(?P<ops>.+)_\d+$")
_KINDS = {
    "triton_poi": "pointwise",
    "triton_per": "reduction kept in registers",
    "triton_red": "reduction in a loop",
    "triton_tem": "template",
    "cpp": "C++",
}


class Kernel(Record, frozen=True):
    """A kernel of the compiled code, and what is told of it."""

    name: str
    kind: str
    ops: str
    nodes: str = ""
    """Values of the captured graph that it computes; empty: not told."""


def kernels(check: CheckReport) -> Sequence[Kernel]:
    """Give generated kernels, then those of libraries that the generated code calls."""
    if check.inductor is None:
        return ()
    told = {kernel.name: kernel for kernel in check.inductor.fused}
    called = [k for k in check.inductor.fused if "." in k.name]
    generated = [_generated(name, told.get(name)) for name in check.inductor.kernel_names]
    return [*generated, *map(_of_library, called)]


def _generated(name: str, told: FusedKernel | None) -> Kernel:
    found = _FUSED.match(name)
    kind = _KINDS.get(found["kind"], found["kind"]) if found else ""
    if told is not None:
        return Kernel(name=name, kind=kind, ops=_ops(told), nodes=", ".join(told.nodes))
    # Names of operators hold underscores too, so nothing tells where one ends.
    ops = " ".join(found["ops"].replace("_", " ").split()) if found else ""
    return Kernel(name=name, kind=kind, ops=ops)


def _of_library(told: FusedKernel) -> Kernel:
    return Kernel(name=told.name, kind="library", ops=_ops(told), nodes=", ".join(told.nodes))


def _ops(told: FusedKernel) -> str:
    return ", ".join(op.removeprefix("aten.") for op in told.ops)
