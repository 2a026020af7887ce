"""The JSON report is a contract: every field, its type, and ``null`` where nothing was observed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunSuite

SUITE = """
import pytest
import torch
from library import double_relu, printing
from torch import ones

from pytest_compileguard import compile_check


@compile_check(max_graph_breaks=0, max_recompiles=0)
def test_breaks(compileguard):
    guarded = compileguard(printing, backend="aot_eager", dynamic=False)
    for n in (2, 3):
        guarded(ones(n))


@compile_check(max_graph_breaks=0, min_speedup=0.001, max_time_s=0.1, backend="eager")
def test_times(compileguard):
    compileguard(double_relu)(ones(3))


def test_is_wrong(compileguard):
    def off_by_one(graph, inputs):
        return lambda *args: tuple(out + 1 for out in graph(*args))

    compileguard(double_relu, backend=off_by_one)(ones(3))


def test_fails_before(compileguard):
    compileguard(double_relu, mode="default")
    raise LookupError
"""
NUMBERS = {
    "calls": int,
    "graphs": int,
    "ops": int,
    "graph_breaks": int,
    "break_events": int,
    "recompiles": int,
    "fallbacks": int,
    "limit_hit": bool,
    "compile_time_s": float,
    "kernels": int,
    "cache_hits": int,
    "cache_misses": int,
}
SPEED = {
    "speedup": float,
    "speedup_low": float,
    "speedup_high": float,
    "eager_ms": float,
    "compiled_ms": float,
    "pairs": int,
}
UNSEEN = ("device_speedup", "peak_memory_bytes", "error")


def named(document: dict[str, Any], test: str) -> dict[str, Any]:
    (check,) = [c for c in document["checks"] if c["nodeid"] == f"test_suite.py::{test}"]
    found: dict[str, Any] = check
    return found


def assert_types(record: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for name, kind in types.items():
        assert type(record[name]) is kind, (name, record[name])


def test_contract(run_suite: RunSuite) -> None:
    document = run_suite(SUITE, timing=True).document

    assert list(document) == ["schema", "environment", "checks"]
    assert document["schema"] == 1
    environment = {"device_type": str, "device_name": str, "torch": str, "python": str}
    assert_types(document["environment"], environment)
    assert document["environment"]["device_type"] == "cpu"
    assert [check["nodeid"] for check in document["checks"]] == [
        f"test_suite.py::test_{name}" for name in ("breaks", "fails_before", "is_wrong", "times")
    ]

    breaks = named(document, "test_breaks")
    assert (breaks["name"], breaks["outcome"]) == ("printing", "failed")
    assert (breaks["backend"], breaks["mode"]) == ("aot_eager", None)
    assert_types(breaks["observed"], NUMBERS)
    assert breaks["observed"]["calls"] == 2
    assert breaks["observed"]["graphs"] == 4
    assert breaks["observed"]["graph_breaks"] == 1
    assert breaks["observed"]["recompiles"] == 2
    assert breaks["observed"]["parity"] == "passed"
    assert all(breaks["observed"][name] is None for name in (*SPEED, *UNSEEN))
    assert breaks["samples"] is None
    _assert_places(breaks)
    _assert_findings(breaks)

    times = named(document, "test_times")
    assert times["outcome"] == "passed"
    assert_types(times["observed"], NUMBERS | SPEED)
    assert len(times["samples"]["eager_s"]) == times["observed"]["pairs"]

    wrong = named(document, "test_is_wrong")
    assert wrong["observed"]["parity"] == "failed"
    (mismatch,) = wrong["mismatches"]
    assert (mismatch["call"], mismatch["path"], mismatch["kind"]) == (0, "output", "value")


def _assert_places(check: dict[str, Any]) -> None:
    (site,) = check["graph_breaks"]
    assert (site["file"], site["line"], site["function"]) == ("library.py", 8, "printing")
    assert site["source"] == 'print("half way", x.shape)'
    assert site["id"].startswith("GB")
    assert_types(site, {"reason": str, "events": int, "allowed": bool})
    for recompile in check["recompiles"]:
        assert recompile["call"] == 1
        assert recompile["frame"] == "printing"
        assert "size" in recompile["guard"]
        assert recompile["compile_id"].endswith("/1")
        assert recompile["kind"] in ("size", "automatic_dynamic")


def _assert_findings(check: dict[str, Any]) -> None:
    findings = {finding["metric"]: finding for finding in check["findings"]}
    assert list(findings) == [
        "compiled",
        "fallbacks",
        "graph_breaks",
        "recompiles",
        "parity",
        "baseline",
    ]
    for finding in findings.values():
        assert finding["status"] in ("passed", "failed", "inconclusive", "not_checked")
        assert finding["message"]
        assert {"observed", "limit", "baseline"} <= set(finding)
    broken = findings["graph_breaks"]
    assert (broken["status"], broken["observed"], broken["limit"]) == ("failed", 1, 0)
    assert (broken["file"], broken["line"]) == ("library.py", 8)
    assert findings["baseline"]["status"] == "not_checked"


def test_what_was_not_observed_is_null_with_a_reason(run_suite: RunSuite) -> None:
    check = named(run_suite(SUITE).document, "test_fails_before")

    assert (check["outcome"], check["mode"]) == ("not_checked", "default")
    assert check["observed"]["parity"] == "not_checked"
    assert all(check["observed"][name] is None for name in (*NUMBERS, *SPEED, *UNSEEN))
    for name in ("graph_breaks", "recompiles", "fallbacks", "mismatches", "unreliable"):
        assert check[name] == []
    (finding,) = check["findings"]
    assert finding["status"] == "not_checked"
    assert finding["message"]


def test_no_machine_path_is_in_it(run_suite: RunSuite) -> None:
    run = run_suite(SUITE, "-v")

    assert str(Path.cwd()) not in json.dumps(run.document)
    summary = run.text.rpartition("= compileguard =")[2]
    assert "library.py:8 in printing" in summary
    assert str(Path.cwd()) not in summary


HOSTILE = r"""
import pytest
import torch
from library import double_relu
from torch import ones

NAMES = [
    'quotes " and \\ backslash',
    "line\nbreak",
    "\x1b[31mred\x1b[0m",
    "::error::stop-commands",
    "\udc80 lone surrogate",
    "\U0001f525\u202e\u2028\0",
    "a/../../b::c[d]@e",
    "x" * 500,
    "",
]


@pytest.mark.parametrize("name", NAMES)
def test_name(compileguard, name):
    def target(x):
        return double_relu(x)

    target.__name__ = name
    compileguard(target, backend="eager")(ones(3))


def test_message(compileguard):
    def broken(graph, inputs):
        raise RuntimeError("\udc80 \x1b[31m ::error::")

    compileguard(double_relu, backend=broken)(ones(3))
"""


@pytest.mark.parametrize("arguments", ((), ("--compileguard-update-baseline",)))
def test_hostile_names(run_suite: RunSuite, arguments: tuple[str, ...]) -> None:
    run = run_suite(HOSTILE, "-v", *arguments)

    run.result.assert_outcomes(passed=9, failed=1)
    assert len(run.checks) == 10
    assert any('quotes " and \\ backslash' in check["name"] for check in run.checks)
    ours = run.text.rpartition("= compileguard =")[2].partition("= short test summary")[0]
    assert "\x1b" not in ours
    assert "\n::" not in ours


def test_hostile_names_cross_to_the_controller(pytester: pytest.Pytester) -> None:
    """One worker is enough to have everything carried over; it has no torch to load."""
    pytest.importorskip("xdist")
    suite = HOSTILE.replace("import torch\n", "").replace("from torch import ones\n", "")
    suite = suite.replace("from library import double_relu\n", "").partition("def test_message")[0]
    pytester.makepyfile(test_suite=suite.replace("(ones(3))", "").replace("double_relu", "abs"))

    result = pytester.runpytest_subprocess(
        *("-n1", "-p", "no:cacheprovider", "--compileguard-disable"),
        "--compileguard-json=out.json",
    )

    result.assert_outcomes(passed=9)
    assert len(json.loads(Path("out.json").read_bytes())["checks"]) == 9


def test_report_does_not_depend_on_the_order_of_tests(run_suite: RunSuite) -> None:
    one = run_suite(SUITE, "-k", "breaks or wrong").document
    other = run_suite(SUITE, "test_suite.py::test_is_wrong", "test_suite.py::test_breaks").document

    for document in (one, other):
        for check in document["checks"]:
            check["observed"].pop("compile_time_s")
    assert one == other


def test_an_older_report_is_replaced_whole(run_suite: RunSuite) -> None:
    Path("kept.json").write_text("x" * 100_000, encoding="utf-8")

    run_suite("def test_plain(): pass\n", "--compileguard-json=kept.json")

    assert json.loads(Path("kept.json").read_bytes())["checks"] == []
    assert not list(Path().glob(".kept.json.*"))


TRAINED = """
import torch
from library import Net, printing

def test_trained(compileguard):
    net = Net()
    compileguard(net, backend="aot_eager")(torch.ones(3, 4)).sum().backward()

def test_not_trained(compileguard):
    compileguard(printing, backend="aot_eager")(torch.ones(3, 4))
"""


def test_graphs_are_told_with_their_operations_guards_and_backward(run_suite: RunSuite) -> None:
    printed, trained = (check["observed"] for check in run_suite(TRAINED).checks)

    assert (trained["graph_ops"], trained["ops"], trained["backward_graphs"]) == ([4], 4, 1)
    assert (printed["graph_ops"], printed["ops"], printed["backward_graphs"]) == ([1, 1], 2, 0)
    assert trained["guards"] > printed["guards"] > 0
