"""Runs a failing call again through the stages of the compiler, to find where it departs.

Only after a failure, once the test is through and its facts are gathered: what is
compiled here is never counted. The call starts from the snapshot that was taken before
it, so it can be made as often as it takes:

- as the check compiled it, and if that agrees, with ``dynamic=True``;
- by ``eager`` (Dynamo alone), ``aot_eager`` (and AOTAutograd) and
  ``aot_eager_decomp_partition`` (and decompositions and partitioner), up to the first that
  departs; if none does, the backend itself is to blame;
- where several graphs were captured, with ever fewer of them compiled by the stage that
  departs and all others by the one before it;
- by inductor with parts of it switched off, if inductor is to blame.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_compileguard import dynamo
from pytest_compileguard.isolation.quiet import silenced
from pytest_compileguard.isolation.scene import Scene
from pytest_compileguard.observation import (
    Departure,
    Extreme,
    GraphPlace,
    Mismatch,
    MismatchKind,
    Outcome,
    Trial,
)
from pytest_compileguard.parity.extreme import extreme
from pytest_compileguard.parity.side import Side
from pytest_compileguard.plan import Plan
from pytest_compileguard.shadow.call import ComparedCall, without_following
from pytest_compileguard.shadow.compiling import compiled, compiled_part
from pytest_compileguard.shadow.prepared import has_lazy_parameters

Compile = Callable[[Any], Any]

_OF_NUMBERS: tuple[MismatchKind, ...] = ("value", "mutation", "gradient")
"""Faults that lie in an element, not in the form of a leaf."""
_NOT_AGAIN = (
    "run again by itself, the call agrees: the fault depends on what earlier calls left, on a "
    "context manager around the call, or on chance"
)


def locate(failed: ComparedCall, compile_: Compile, plan: Plan, *, own: bool) -> Departure:
    """Find the first stage, graph and leaf in which a failing call departs.

    Drops everything that was compiled in the process, before and after.

    Args:
        failed: The call, with its snapshot.
        compile_: Compiles a plain copy of the target as the check did.
        plan: Of the check.
        own: Whether the target was compiled already, by arguments that are not known.
    """
    if hindering := dynamo.hindrances(compiled_part(failed.snapshot.target)):
        reason = f"the call can't be compiled again: {'; '.join(hindering)}"
        return Departure(call=failed.index, stage=None, reason=reason)
    before = failed.scene.now()
    try:
        with silenced(compiling=True), failed.ambient.applied():
            dynamo.load_stages()
            failed.restore_parameters()
            return _Reruns(failed, compile_, plan, own=own).departure()
    except Exception as error:  # noqa: BLE001  # the check has failed by what was found before
        reason = f"running the call again failed ({type(error).__name__}: {error})"
        return Departure(call=failed.index, stage=None, reason=reason)
    finally:
        before.restore()
        dynamo.forget_compiled_code()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rerun:
    """What one rerun gave."""

    side: Side
    mismatches: list[Mismatch]
    graphs: tuple[GraphPlace, ...]
    failed: bool
    """Whether it raised where eager does not."""


class _Reruns:
    """All reruns of one call, each from the same snapshot."""

    def __init__(self, failed: ComparedCall, compile_: Compile, plan: Plan, *, own: bool) -> None:
        self._failed = failed
        self._compiled = compile_
        self._plan = plan
        self._own = own
        self._name = plan.arguments.backend_name
        self._dynamic = False
        """Whether the call departs only if it is compiled for any size."""
        self._path = ""
        """The leaf that is followed through the stages: others may depart for their own reasons."""
        self._trials: list[Trial] = []
        self._expected, self._left = self._eager()

    def departure(self) -> Departure:
        """Make it depart again, then ask one stage after the other."""
        name, again, arguments = self._name, self._compiled, self._plan.arguments
        whole = self._try(name, again)
        if not whole.mismatches and not self._own and arguments.dynamic is None:
            self._dynamic, again = True, self._compiled_by(arguments.backend, dynamic=True)
            whole = self._try(f"{name}, dynamic=True", again)
        if not whole.mismatches:
            return Departure(
                call=self._failed.index, stage=None, reason=_NOT_AGAIN, trials=tuple(self._trials)
            )
        self._path = whole.mismatches[0].path
        stage, sound, first = self._first_stage(whole)
        if stage == "inductor":
            for part, config in dynamo.INDUCTOR_TRIALS:
                self._try(part, again, config)
        return self._told(stage, sound, first)

    def _first_stage(self, whole: _Rerun) -> tuple[str, str | None, _Rerun]:
        """Find the first stage that departs, and the last one before it that does not."""
        known, sound = self._name in dynamo.STAGES, None
        below = dynamo.STAGES[: dynamo.STAGES.index(self._name)] if known else dynamo.STAGES
        for stage in below:
            made = self._try(stage, self._compiled_by(stage, dynamic=self._dynamic))
            if made.failed == whole.failed and self._departs(made):
                return stage, sound, made
            if not made.failed:
                sound = stage
        return self._name, sound, whole

    def _told(self, stage: str, sound: str | None, made: _Rerun) -> Departure:
        number = self._first_graph(stage, sound, made)
        mismatch = next(m for m in made.mismatches if m.path == self._path)
        return Departure(
            call=self._failed.index,
            stage=stage,
            path=mismatch.path,
            message=mismatch.message,
            extreme=self._extreme(made, mismatch) if mismatch.kind in _OF_NUMBERS else None,
            graph=made.graphs[number - 1] if number else None,
            graph_number=number,
            graphs=len(made.graphs),
            only_dynamic=self._dynamic,
            trials=tuple(self._trials),
        )

    def _try(self, name: str, compile_: Compile, config: dict[str, Any] | None = None) -> _Rerun:
        made = self._rerun(compile_, config or {})
        note = f"{made.mismatches[0].path}: {made.mismatches[0].message}" if made.mismatches else ""
        outcome: Outcome = "fails" if made.failed else "departs" if note else "agrees"
        self._trials.append(Trial(name=name, outcome=outcome, note=note))
        return made

    def _rerun(self, compile_: Compile, config: dict[str, Any]) -> _Rerun:
        dynamo.forget_compiled_code()
        prepared = self._failed.snapshot.again()
        again = dataclasses.replace(prepared, target=compile_(prepared.target))
        self._failed.scene.restore()
        windows = self._failed.scene.surroundings.while_compiling()
        listening = dynamo.tracing(self._failed.index, set())
        with dynamo.inductor_configured(config), windows, listening as trace:
            side = again.run(self._failed.cotangents)
        left, comparison = self._failed.scene.now(), self._failed.comparison()
        without_following(comparison.compare(self._expected, side), side)
        comparison.compare_surroundings(self._left.snapshot, left.snapshot)
        told = side.error is None and not has_lazy_parameters(self._failed.snapshot)
        if told:
            comparison.compare_random_states(self._left.random, left.random)
        return _Rerun(
            side=side,
            mismatches=comparison.result.mismatches,
            graphs=dynamo.graph_places(trace),
            failed=_raised(side) and not _raised(self._expected),
        )

    def _compiled_by(self, backend: Any, *, dynamic: bool) -> Compile:
        """Compile by a stage with the arguments that all backends take, or by the check's own."""
        given = self._plan.arguments.given
        if backend in dynamo.STAGES:
            given = {n: v for n, v in given.items() if n not in ("mode", "options")}
        arguments = given | ({} if backend is None else {"backend": backend})
        arguments |= {"dynamic": True} if dynamic else {}
        return lambda target: compiled(target, arguments, whole=True)

    def _first_graph(self, stage: str, sound: str | None, made: _Rerun) -> int:
        """Find, by halving, the first graph that departs, from 1 on; 0 if that can't be told."""
        graphs = [graph.compile_id for graph in made.graphs]
        if len(graphs) <= 1:
            return len(graphs)
        if sound is None or (self._own and stage not in dynamo.STAGES):
            return 0
        suspect, low, high = self._suspect(stage), 0, len(graphs)

        def departs(count: int) -> bool:
            return self._departs(self._partly(graphs[:count], suspect, sound))

        if not departs(high):
            return 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if departs(middle) else (middle, high)
        return high

    def _suspect(self, stage: str) -> Callable[..., Any]:
        arguments = self._plan.arguments
        if stage in dynamo.STAGES:
            return dynamo.named_backend(stage, mode=None, options=None, dynamic=None)
        return dynamo.named_backend(
            arguments.backend,
            mode=arguments.mode,
            options=arguments.options,
            dynamic=True if self._dynamic else arguments.dynamic,
        )

    def _partly(self, graphs: list[str], suspect: Callable[..., Any], sound: str) -> _Rerun:
        """Compile some graphs by one backend and the others by another."""
        backend = dynamo.only_first(graphs, suspect=suspect, sound=sound)
        arguments: dict[str, Any] = {"backend": backend}
        given = True if self._dynamic else self._plan.arguments.dynamic
        arguments |= {} if given is None else {"dynamic": given}
        return self._rerun(lambda target: compiled(target, arguments, whole=True), {})

    def _departs(self, made: _Rerun) -> bool:
        return any(mismatch.path == self._path for mismatch in made.mismatches)

    def _extreme(self, made: _Rerun, mismatch: Mismatch) -> Extreme | None:
        path = mismatch.path
        pair = made.side.leaf(path), self._expected.leaf(path)
        reference = self._failed.in_float64(None)
        exact = None if isinstance(reference, str) else reference.leaf(path)
        return extreme(*pair, exact)

    def _eager(self) -> tuple[Side, Scene]:
        prepared = self._failed.snapshot.again()
        self._failed.scene.restore()
        with dynamo.eager_stance():
            side = prepared.run(self._failed.cotangents)
        return side, self._failed.scene.now()


def _raised(side: Side) -> bool:
    error = side.gradient_error
    return side.error is not None or (error is not None and not dynamo.weights_refused(error))
