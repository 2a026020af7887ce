"""Words for where a call departs; nothing that was not found is made up."""

from __future__ import annotations

from pytest_compileguard.findings.departure_text import departure_lines, reproduction_lines
from pytest_compileguard.observation import Departure, Extreme, GraphPlace, Reproduction, Trial


def test_stage_graph_and_element() -> None:
    departure = Departure(
        call=1,
        stage="aot_eager",
        path="output",
        extreme=Extreme(index=(2, 0), difference="1", compiled="3", eager="2", reference="2.25"),
        graph=GraphPlace(compile_id="1/0", file="net.py", line=7, function="forward"),
        graph_number=2,
        graphs=3,
        trials=(
            Trial(name="inductor", outcome="departs"),
            Trial(name="eager", outcome="agrees"),
            Trial(name="aot_eager_decomp_partition", outcome="fails", note="RuntimeError"),
        ),
    )
    stage, element, tried = departure_lines(departure)
    assert stage.startswith("call 2 departs first at stage aot_eager (AOTAutograd: ")
    assert stage.endswith(", no. 2 of 3 graphs, from net.py:7 in forward")
    values = "compiled 3, eager 2, float64 2.25 (greatest difference, 1)"
    assert element == f"  there output at index [2, 0]: {values}"
    assert tried == "  agrees with eager; could not run with aot_eager_decomp_partition"


def test_the_only_graph_has_no_number() -> None:
    place = GraphPlace(compile_id="0/0", file="net.py", line=7, function="forward")
    departure = Departure(call=0, stage="mine", graph=place, graph_number=1, graphs=1)
    stage = departure_lines(departure)[0]
    assert stage.endswith("mine (the backend itself), in the graph from net.py:7 in forward")


def test_what_has_no_elements_is_told_by_its_message() -> None:
    departure = Departure(
        call=0, stage="mine", path="output", message="stride: compiled (1,), eager (2,)"
    )
    assert departure_lines(departure) == (
        "call 1 departs first at stage mine (the backend itself)",
        "  there output: stride: compiled (1,), eager (2,)",
    )


def test_stage_that_was_not_found() -> None:
    departure = Departure(call=0, stage=None, reason="it agrees when run again")
    assert departure_lines(departure) == ("stage of call 1 not found: it agrees when run again",)


def test_reproduction() -> None:
    saved = Reproduction(file="a b/reproduce.py", missing=("the target",))
    assert reproduction_lines(saved) == (
        "reproduce it: python 'a b/reproduce.py'",
        "  to be filled in: the target",
    )
    unshown = Reproduction(file="reproduce.py", unshown="STATE can't be saved")
    assert reproduction_lines(unshown) == (
        "the call is saved, but can't show this (STATE can't be saved): reproduce.py",
    )
    failed = Reproduction(file="", problem="no space")
    assert reproduction_lines(failed) == ("no reproduction was saved: no space",)
