"""Words at which stage of the compiler a call departs."""

from __future__ import annotations

import shlex

from pytest_compileguard.findings.wording import call_text, frame_text
from pytest_compileguard.observation import Departure, Extreme, Reproduction

_STAGES = {
    "eager": "Dynamo: what it captures is not what the code does",
    "aot_eager": "AOTAutograd: functionalization, aliases, or the graph of the gradients",
    "aot_eager_decomp_partition": "decompositions, or what the partitioner keeps and recomputes",
    "inductor": "inductor: its graph passes, fusion, or generated kernels",
}
_BACKEND = "the backend itself"


def departure_lines(departure: Departure) -> tuple[str, ...]:
    """Say where the first failing call departs: stage, graph, element, and what was tried."""
    call = call_text(departure.call)
    if departure.stage is None:
        return (f"stage of {call} not found: {departure.reason}",)
    what = _STAGES.get(departure.stage, _BACKEND)
    dynamic = ", only with dynamic=True," if departure.only_dynamic else ""
    stage = f"stage {departure.stage}{dynamic} ({what}){_graph(departure)}"
    lines = [f"{call} departs first at {stage}"]
    if departure.extreme is not None and departure.extreme.difference != "0":
        lines.append(f"  there {departure.path}{_element(departure.extreme)}")
    else:
        lines.append(f"  there {departure.path}: {departure.message}")
    return (*lines, *_tried(departure))


def agrees_alone(departure: Departure | None) -> bool:
    """Whether the failing call agreed when it was run again by itself."""
    if departure is None or departure.stage is not None or not departure.trials:
        return False
    return all(trial.outcome == "agrees" for trial in departure.trials)


def reproduction_lines(saved: Reproduction, departure: Departure | None = None) -> tuple[str, ...]:
    """Say where the program stands that makes the call again, and what it lacks."""
    if saved.problem:
        return (f"no reproduction was saved: {saved.problem}",)
    if agrees_alone(departure):
        return (f"the call alone, which agrees, is saved: {saved.file}",)
    if saved.unshown:
        return (f"the call is saved, but can't show this ({saved.unshown}): {saved.file}",)
    missing = tuple(f"  to be filled in: {text}" for text in saved.missing)
    return (f"reproduce it: python {shlex.quote(saved.file)}", *missing)


def _graph(departure: Departure) -> str:
    """Say which graph it is, by order: the rerun of one call has other compile ids."""
    graph = departure.graph
    if graph is None:
        return ""
    place = frame_text(graph.file, graph.line, graph.function)
    if departure.graphs == 1:
        return f", in the graph from {place}" if place else ""
    number = f", no. {departure.graph_number} of {departure.graphs} graphs"
    return f"{number}, from {place}" if place else number


def _element(extreme: Extreme) -> str:
    index = f" at index {list(extreme.index)}" if extreme.index else ""
    exact = f", float64 {extreme.reference}" if extreme.reference is not None else ""
    return (
        f"{index}: compiled {extreme.compiled}, eager {extreme.eager}{exact} "
        f"(greatest difference, {extreme.difference})"
    )


def _tried(departure: Departure) -> tuple[str, ...]:
    """Name the stages that agree, and the settings that make a difference or don't."""
    by_outcome: dict[str, list[str]] = {"agrees": [], "departs": [], "fails": []}
    for trial in departure.trials:
        by_outcome[trial.outcome].append(trial.name)
    parts = [
        f"{verb} {', '.join(by_outcome[outcome])}"
        for outcome, verb in (("agrees", "agrees with"), ("fails", "could not run with"))
        if by_outcome[outcome]
    ]
    return (f"  {'; '.join(parts)}",) if parts else ()
