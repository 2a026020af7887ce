"""What is kept of torch's trace, and the file that is made of it."""

from __future__ import annotations

import json
import re

import pytest
import torch

from pytest_compileguard import dynamo

pytestmark = pytest.mark.usefixtures("compiler_loaded")

LINE = re.compile(r"V\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ \S+:\d+\] (\{.*\})")


def traced(*, keeps_records: bool) -> dynamo.CallTrace:
    dynamo.forget_compiled_code()
    with dynamo.tracing(0, set(), keeps_records=keeps_records) as trace:
        torch.compile(torch.nn.functional.gelu, backend="aot_eager")(torch.ones(3))
    return trace


def test_without_a_wish_nothing_more_is_kept() -> None:
    trace = traced(keeps_records=False)
    assert trace.events
    assert trace.records is None
    assert list(dynamo.trace_lines([trace])) == []


def test_texts_are_kept_once() -> None:
    trace = traced(keeps_records=True)
    assert trace.records is not None
    assert len(trace.records) == len(trace.events)
    payloads = [getattr(record, "payload", None) for record in trace.records]
    for payload, event in zip(payloads, trace.events, strict=True):
        assert payload is event.payload or (payload is None and event.payload == "")


def test_lines_are_those_of_torch_and_every_name_is_told() -> None:
    traced(keeps_records=False)  # torch tells the names of files here, and never again
    lines = "\n".join(dynamo.trace_lines([traced(keeps_records=True)])).split("\n")
    heads = [line for line in lines if not line.startswith("\t")]
    found = [LINE.fullmatch(line) for line in heads]
    assert all(found)
    records = [json.loads(match[1]) for match in found if match]
    told = {record["str"][1] for record in records if "str" in record}
    named = {
        frame["filename"]
        for record in records
        for frame in record.get("dynamo_start", {}).get("stack", ())
    }
    assert named
    assert named <= told
    assert {"dynamo_start", "dynamo_output_graph", "compilation_metrics"} <= {
        name for record in records for name in record
    }
