"""Watches a block that compiles by itself: an engine, a trainer, ``model.generate``.

Only compile facts are seen. There is nothing to compare with, nothing is timed, and torch
is not reset: code that was compiled before the block may run in it, and counts as compiled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, TracebackType
from typing import TYPE_CHECKING

import msgspec

from pytest_compileguard import dynamo
from pytest_compileguard.artifacts.saving import save_artifacts
from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.facts import gather_facts
from pytest_compileguard.finding import Artifacts
from pytest_compileguard.isolation.quiet import silenced
from pytest_compileguard.observation import CompileObservation, Fallback, NotObserved, Observation
from pytest_compileguard.plan import Plan
from pytest_compileguard.shadow.call import ShadowCall
from pytest_compileguard.trace.graph_text import device_type

if TYPE_CHECKING:
    from typing_extensions import Self

_ONLY_WATCHED = NotObserved(reason="the block was only watched")


def _compiled_in(trace: dynamo.CallTrace | None) -> set[str]:
    """Compile ids that began in the block; one whose backward alone is compiled in it did not."""
    return {event.compile_id for event in trace.events if event.metrics} if trace else set()


def _with_reused(fallbacks: Iterable[Fallback], hindrances: Sequence[str]) -> Iterator[Fallback]:
    """Leave out that nothing was compiled, but not what hinders that: it hides recompiles."""
    for fallback in fallbacks:
        if fallback.kind != "nothing_compiled":
            yield fallback
        elif fallback.reason in hindrances:
            yield msgspec.structs.replace(fallback, kind="hindered")


class WatchedBlock:
    """One ``with compileguard.watch(...)`` block; ``seen`` is there once it is left."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.code: frozenset[CodeType] = frozenset()
        self.device = "cpu"
        """Of what was compiled in the block: its facts are stored for that."""
        self._stack = contextlib.ExitStack()
        self._made: ShadowCall | None = None
        self._before: dynamo.Counters | None = None
        self._refused = "the block was never entered"

    @property
    def started(self) -> bool:
        return self._made is not None

    @property
    def seen(self) -> CompileObservation | NotObserved:
        """What was seen in the block."""
        if self._made is None or self._made.counters is None:
            return NotObserved(reason=self._refused)
        facts = gather_facts([self._made], self.plan, target=self.plan.name)
        ran = set((self._made.trace and self._made.trace.regions) or ())
        reused = len(ran - _compiled_in(self._made.trace))
        fallbacks = facts.fallbacks
        if reused:
            fallbacks = tuple(_with_reused(fallbacks, self._made.hindrances))
        return msgspec.structs.replace(facts, reused_graphs=reused, fallbacks=fallbacks)

    def __enter__(self) -> Self:
        try:
            with silenced(compiling=True):
                dynamo.ensure_understood()
        except CompileGuardError as error:
            self._refused = str(error)
            return self
        self._made = ShadowCall(index=0, hindrances=dynamo.hindrances(None))
        self._before = dynamo.counters()
        self._made.trace = self._stack.enter_context(
            dynamo.watching(keeps_records=self.plan.artifacts is not None)
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)
        if self._made is not None and self._before is not None:
            self._made.counters = dynamo.counters().since(self._before)
        if self._made is not None and self._made.trace is not None:
            self.device = device_type(self._made.trace.graphs)

    def finish(self) -> Observation:
        """Gather what was seen."""
        return Observation(compile=self.seen, parity=_ONLY_WATCHED, speed=_ONLY_WATCHED)

    def save(self) -> Artifacts | None:
        """Save what was heard in the block; ``None``: the plan says nowhere."""
        if self.plan.artifacts is None:
            return None
        traces = [self._made.trace] if self._made and self._made.trace else []
        return save_artifacts(traces, self.plan, self.plan.artifacts)
