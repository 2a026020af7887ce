"""What the compiled code that ran in a call computes with, by the graphs captured for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from pytest_compileguard.dynamo import CallTrace
from pytest_compileguard.parity.precision import Narrow
from pytest_compileguard.trace.graph_text import convolves, dtypes, dtypes_made

_NARROW = {"bf16": torch.bfloat16, "f16": torch.float16}


@dataclass(frozen=True, kw_only=True, slots=True)
class Arithmetic:
    """What is known of the operations of a call."""

    convolves: bool
    narrow: Narrow


class CapturedGraphs:
    """The graphs of one target over all its calls: later calls run what earlier ones compiled."""

    def __init__(self) -> None:
        self._known: dict[str, Arithmetic] = {}

    def of_call(self, trace: CallTrace) -> Arithmetic:
        """Tell of a call what ran in it; where that was not seen, of all calls so far."""
        for event in trace.events:
            if "dynamo_output_graph" in event.metadata:
                self._known[event.compile_id] = Arithmetic(
                    convolves=convolves([event.payload]),
                    narrow=_narrow([event.payload]),
                )
        ran = list(self._ran(trace.regions))
        return Arithmetic(
            convolves=any(one.convolves for one in ran),
            narrow=Narrow(
                epsilon=max((one.narrow.epsilon for one in ran), default=0.0),
                made=any(one.narrow.made for one in ran),
            ),
        )

    def _ran(self, regions: tuple[str, ...] | None) -> Iterator[Arithmetic]:
        # A call that ran nothing known may have been seen badly: then all may have run.
        seen = {region.partition("_")[0] for region in regions or ()} & self._known.keys()
        for compile_id, one in self._known.items():
            if not seen or compile_id in seen:
                yield one


def _narrow(graphs: Sequence[str]) -> Narrow:
    found = (torch.finfo(_NARROW[name]).eps for name in dtypes(graphs) & _NARROW.keys())
    made = not dtypes_made(graphs).isdisjoint(_NARROW)
    return Narrow(epsilon=max(found, default=0.0), made=made)
