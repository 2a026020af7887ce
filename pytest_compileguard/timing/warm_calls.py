"""Measures warm calls of both sides: times, device memory, kernels.

Nothing is measured before it was seen that the one side runs compiled code and the other does not;
nothing counts unless that still holds afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pytest_compileguard import dynamo
from pytest_compileguard.isolation.quiet import silenced
from pytest_compileguard.observation import (
    LaunchObservation,
    MemoryObservation,
    NotObserved,
    SpeedObservation,
)
from pytest_compileguard.plan import Plan
from pytest_compileguard.shadow.call import Timeable
from pytest_compileguard.timing.conditions import VoidError
from pytest_compileguard.timing.device_usage import kernel_launches, peak_memory
from pytest_compileguard.timing.measuring import sample_speed
from pytest_compileguard.timing.replay import Replay
from pytest_compileguard.timing.sampling import Side


class WarmObservation(NamedTuple):
    """What warm calls showed."""

    speed: SpeedObservation | NotObserved
    memory: MemoryObservation | NotObserved
    launches: LaunchObservation | NotObserved


def unmeasured(reason: NotObserved) -> WarmObservation:
    """Say of all three why they are not known."""
    return WarmObservation(speed=reason, memory=reason, launches=reason)


def needs_gpu(plan: Plan) -> str | None:
    """Say what the test asks of timing that a processor can't give."""
    if plan.clock == "device":
        return 'clock="device": a CPU has no clock of kernels alone; time on a GPU, or by "wall"'
    if plan.cache == "cold":
        return 'cache="cold": only the L2 cache of a GPU is flushed; time on a GPU, or "warm"'
    return None


def measure_warm_calls(last: Timeable, plan: Plan) -> WarmObservation:
    """Measure both sides, having seen that the one runs compiled code and the other does not."""
    device_type = last.device.partition(":")[0]
    eager = Replay(name="eager", prepared=last.eager, setup=plan.setup)
    compiled = Replay(
        name="compiled",
        prepared=last.compiled,
        setup=plan.setup,
        begins_steps=last.ambient.grad and dynamo.counters().cudagraphs > 0,
    )
    with silenced(compiling=True), last.ambient.applied():
        try:
            with dynamo.probing(last.call) as compiled_ran:
                mutated = compiled.mutated()
            with dynamo.probing(last.call) as eager_ran:
                mutated |= eager.mutated()
        except VoidError as error:
            return unmeasured(NotObserved(reason=str(error)))
        if compiled_ran.regions == ():
            return unmeasured(NotObserved(reason="the timed call runs no compiled code"))
        if eager_ran.regions:
            reason = "the eager side runs code that compiles itself"
            return unmeasured(NotObserved(reason=reason))
        eager.keep(mutated)
        compiled.keep(mutated)
        sides = eager.side(device_type), compiled.side(device_type)
        speed = _timed(last, sides, plan)
        if speed.void is not None:
            lost = NotObserved(reason=f"timing was cut short: {speed.void}")
            return WarmObservation(speed, lost, lost)
        return WarmObservation(
            msgspec.structs.replace(speed, restored=tuple(sorted(mutated))),
            peak_memory(*sides, device=last.device, beside=last.beside, inputs=compiled.inputs()),
            _launches(sides, last, plan),
        )


def _launches(
    sides: tuple[Side, Side], last: Timeable, plan: Plan
) -> LaunchObservation | NotObserved:
    """Count kernels where that is asked for: a profiler that was used may slow later launches."""
    if plan.max_kernels_per_call is None:
        return NotObserved(reason="kernels a call are counted where max_kernels_per_call is set")
    return kernel_launches(*sides, device=last.device, beside=last.beside, compile_count=_compiles)


def _timed(last: Timeable, sides: tuple[Side, Side], plan: Plan) -> SpeedObservation:
    """Time both sides, and see that the compiled one still runs compiled code afterwards."""
    eager, compiled = sides
    seen = sample_speed(
        eager,
        compiled,
        device=last.device,
        beside=last.beside,
        call=last.call,
        warmup=plan.warmup,
        max_time_s=plan.max_time_s,
        limit=plan.min_speedup,
        compile_count=_compiles,
        clock=plan.clock,
        cache=plan.cache,
    )
    if seen.void is not None:
        return seen
    with dynamo.probing(last.call) as afterwards:
        compiled.once()
    if afterwards.regions == ():
        reason = "the compiled side fell back to eager while it was timed"
        return msgspec.structs.replace(seen, void=reason)
    return seen


def _compiles() -> int:
    seen = dynamo.counters()
    return seen.frames + seen.unique_graphs + seen.cudagraphs
