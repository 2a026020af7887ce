"""What other programs read: the published schema of the JSON report, and JUnit's properties."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

import pytest_compileguard
from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.observation import SpeedObservation
from pytest_compileguard.report import contract
from tests.conftest import RunSuite
from tests.golden_text import assert_golden
from tests.plugin.test_json import SUITE

SCHEMA_FILE = Path(pytest_compileguard.__file__).parent / "report" / "report.schema.json"


def test_the_published_schema_is_that_of_the_records() -> None:
    made = json.dumps(contract.json_schema(), indent=2) + "\n"
    assert SCHEMA_FILE.read_text(encoding="utf-8") == made, "write the file anew"


def test_a_real_report_keeps_the_schema_and_reads_back(run_suite: RunSuite) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    document = run_suite(SUITE, timing=True).document

    jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_bytes())).validate(document)
    report = contract.read_report(Path("out.json").read_bytes())
    assert json.loads(msgspec.json.encode(report)) == document
    breaks, _, _, times = report.checks
    assert (breaks.file, breaks.line) == ("test_suite.py", 9)
    assert breaks.graphs_per_call == (2, 2)
    (speed,) = times.speeds
    assert (speed.clock, speed.speedup) == ("wall", times.observed.speedup)


def test_samples_in_the_report_are_all_that_was_sampled() -> None:
    assert contract.Samples.__struct_fields__ == SpeedObservation.__struct_fields__


@pytest.mark.parametrize(
    "data",
    (b"", b"[]", b'{"schema": 2, "environment": null, "checks": []}', b"\xff", b'{"checks": []}'),
)
def test_what_is_no_report_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(CompileGuardError, match=r"^r\.json: is no report of .*=PATH$"):
        contract.read_report(data, origin="r.json")


def test_fields_of_a_later_version_are_left_alone() -> None:
    data = b'{"schema": 1, "environment": null, "checks": [], "added": {"later": 1}}'
    assert contract.read_report(data).checks == ()


def properties_of(case: ET.Element) -> dict[str | None, str | None]:
    return {p.get("name"): p.get("value") for p in case.iter("property")}


def cases(path: str = "junit.xml") -> dict[str | None, ET.Element]:
    (suite,) = ET.parse(path).getroot()  # noqa: S314  # we wrote it
    return {case.get("name"): case for case in suite.iter("testcase")}


def test_junit_has_the_numbers_as_properties(run_suite: RunSuite) -> None:
    suite = SUITE.replace(
        "def test_times(compileguard):",
        "def test_times(compileguard, record_property):\n    record_property('own', 1)",
    )
    run_suite(suite, "--junitxml=junit.xml", timing=True)

    found = cases()
    breaks = properties_of(found["test_breaks"])
    assert breaks["compileguard.printing.outcome"] == "failed"
    assert breaks["compileguard.printing.graph_breaks"] == "1"
    assert breaks["compileguard.printing.recompiles"] == "2"
    assert "compileguard.printing.speedup" not in breaks
    times = properties_of(found["test_times"])
    assert times["own"] == "1"
    assert float(times["compileguard.double_relu.speedup"] or math.nan) > 0


HOSTILE = """
import pytest
from library import double_relu
from torch import ones

@pytest.mark.parametrize("name", ['a"<&>', "\\x00\\x1b[31m\\ud800\\uffff", "x" * 5000])
def test_name(compileguard, name):
    def target(x):
        return double_relu(x)
    target.__name__ = name
    compileguard(target, backend="eager")(ones(3))
"""


@pytest.mark.parametrize("family", ("xunit1", "xunit2"))
def test_hostile_names_leave_junit_whole(run_suite: RunSuite, family: str) -> None:
    run_suite(HOSTILE, "--junitxml=junit.xml", "-o", f"junit_family={family}")

    found = [properties_of(case) for case in cases().values()]
    assert len(found) == 3
    assert all("passed" in properties.values() for properties in found)


FLAKY = """
from library import double_relu, printing
from torch import ones

runs = []

def test_flaky(compileguard):
    runs.append(1)
    target = printing if len(runs) == 1 else double_relu
    compileguard(target, backend="eager", max_graph_breaks=0)(ones(3))
"""


def test_of_a_rerun_only_the_last_attempt_has_properties(run_suite: RunSuite) -> None:
    pytest.importorskip("pytest_rerunfailures")
    run_suite(FLAKY, "--reruns=1", "--junitxml=junit.xml")

    names = {str(name).split(".")[1] for case in cases().values() for name in properties_of(case)}
    assert names == {"double_relu"}


def test_properties_cross_to_the_controller(
    pytester: pytest.Pytester, compiler_loaded: None
) -> None:
    del compiler_loaded
    pytest.importorskip("xdist")
    pytester.makepyfile(test_suite="def test_a(compileguard):\n    compileguard(abs)\n")
    options: tuple[Any, ...] = ("-n1", "-p", "no:cacheprovider", "--junitxml=junit.xml")
    pytester.runpytest_subprocess(*options, "--compileguard-disable")

    assert properties_of(cases()["test_a"]) == {
        "compileguard.abs.outcome": "not_checked",
        "compileguard.abs.parity": "not_checked",
    }


def test_the_whole_report_of_a_run(run_suite: RunSuite) -> None:
    document = run_suite(SUITE, "-k", "breaks or fails_before").document
    document["environment"] = dict.fromkeys(document["environment"], "MASKED")
    for check in document["checks"]:
        for name in ("compile_time_s", "guards"):  # differs from run to run, or from torch to torch
            check["observed"][name] = check["observed"][name] and "MASKED"
        for site in check["graph_breaks"]:
            site["hint"] = "ADVICE"
    assert_golden("report.json", json.dumps(document, indent=1))
