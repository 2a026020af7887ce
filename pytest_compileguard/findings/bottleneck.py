"""Tells what bounds a compiled call on a GPU: its launches, its memory or its arithmetic."""

from __future__ import annotations

from typing import Literal

from pytest_compileguard.finding import Speed
from pytest_compileguard.observation import MemoryObservation, NotObserved, Record
from pytest_compileguard.plan import CompileArguments

_GAPS = 1.25
"""How much longer a call takes than its kernels, if launches decide."""
_NEAR_A_COPY = 0.5
"""Part of the bandwidth of a plain copy from which memory decides."""
_GB = 1e9
_MS_PER_S = 1e3


class Bottleneck(Record, frozen=True):
    """What bounds the compiled call."""

    kind: Literal["launch", "memory", "compute"]
    reason: str

    @property
    def text(self) -> str:
        """One line, for example ``launch-bound: ...``."""
        return f"{self.kind}-bound: {self.reason}"


def bottleneck(
    wall: Speed | None, device: Speed | None, memory: MemoryObservation | NotObserved | None
) -> Bottleneck | None:
    """Tell from both clocks and the bytes that the call has to move; ``None``: not known."""
    if wall is None or device is None or not isinstance(memory, MemoryObservation):
        return None
    if wall.compiled_ms > _GAPS * device.compiled_ms:
        idle = 1 - device.compiled_ms / wall.compiled_ms
        return Bottleneck(kind="launch", reason=f"the GPU waits {100 * idle:.0f} % of the time")
    if not memory.copy_bytes_per_s or not memory.touched_bytes:
        return None
    bytes_per_s = memory.touched_bytes / (device.compiled_ms / _MS_PER_S)
    part = bytes_per_s / memory.copy_bytes_per_s
    rate = f"{bytes_per_s / _GB:.3g} GB/s, {100 * part:.0f} % of a plain copy"
    reason = f"inputs, state and outputs pass at {rate}"
    return Bottleneck(kind="memory" if part >= _NEAR_A_COPY else "compute", reason=reason)


def remedy(found: Bottleneck, arguments: CompileArguments) -> str:
    """Say in one line what helps against it."""
    inductor = arguments.backend_name == "inductor"
    if found.kind == "launch":
        return launch_remedy(arguments)
    if found.kind == "memory":
        return (
            "the call is bound by memory: fuse more operators into fewer kernels, or use a smaller "
            "dtype; at the bandwidth of a copy nothing is left to gain"
        )
    tuned = arguments.mode is not None and arguments.mode.startswith("max-autotune")
    if inductor and not tuned and arguments.options is None:
        return 'the call is bound by arithmetic: try mode="max-autotune", or a smaller dtype'
    return "the call is bound by arithmetic: use a smaller dtype, or TF32 for float32"


def launch_remedy(arguments: CompileArguments) -> str:
    """Say what helps against launches that take longer than what they launch."""
    graphs_unused = arguments.mode in (None, "default") and arguments.options is None
    if arguments.backend_name == "inductor" and graphs_unused:
        return f'{_LAUNCH_BOUND}try mode="reduce-overhead"'
    return f"{_LAUNCH_BOUND}time a larger batch, or compile more of the code around it"


_LAUNCH_BOUND = "the call is bound by launches: "
