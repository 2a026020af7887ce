"""What users and other tools read: whole texts, and nothing in them that acts on a terminal."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_compileguard.baseline.look_up import Baseline
from pytest_compileguard.environment import Environment
from pytest_compileguard.finding import Verdict
from pytest_compileguard.observation import (
    BreakSite,
    CompileObservation,
    Fallback,
    Mismatch,
    NotObserved,
    Observation,
    ParityObservation,
    SpeedObservation,
)
from pytest_compileguard.report.document import document
from pytest_compileguard.report.failure import failure_text
from pytest_compileguard.report.plain_text import clipped, plain, plain_line, relative, shortened
from pytest_compileguard.report.summary import summary_lines
from pytest_compileguard.verdict import judge
from tests import records
from tests.records import (
    NODEID,
    make_compilation,
    make_environment,
    make_facts,
    make_parity,
    make_plan,
    make_recompile,
    make_site,
    make_timing,
)

ROOT = Path("/repo")
NO_BASELINE = Baseline(
    facts=None,
    facts_note="none for cuda, torch 2.11",
    timing=None,
    timing_note="none for NVIDIA H200, torch 2.11",
)
GPU = make_environment("2.11.0")
CPU = msgspec.structs.replace(GPU, device_type="cpu", device_name="Some CPU")
SITE = make_site()
RECOMPILE = make_recompile()
COMPILATION = make_compilation(compile_time_s=12.34)
PARITY = make_parity()


def compilation_with(*sites: BreakSite, **changes: Any) -> CompileObservation:
    graphs = 1 + len(sites) + len(changes.get("recompiles", ()))
    fields = {"break_sites": sites, "break_events": len(sites), "graphs": graphs}
    return msgspec.structs.replace(COMPILATION, **{**fields, **changes})


def speed_of(low: float, high: float, device: float | None = None) -> SpeedObservation:
    return SpeedObservation(
        clock="cuda_event",
        device="cuda:0",
        call=0,
        calls_per_block=10,
        warmup=10,
        eager_s=(0.000298 * low, 0.000298 * high) * 200,
        compiled_s=(0.000298,) * 400,
        device_eager_s=() if device is None else (0.0001 * device,) * 400,
        device_compiled_s=() if device is None else (0.0001,) * 400,
    )


def verdict_of(
    nodeid: str = NODEID,
    *,
    compilation: CompileObservation | NotObserved = COMPILATION,
    parity: ParityObservation | NotObserved = PARITY,
    speed: SpeedObservation | NotObserved | None = None,
    baseline: Baseline | NotObserved = NO_BASELINE,
    environment: Environment | None = GPU,
    **changes: Any,
) -> Verdict:
    plan = make_plan(nodeid=nodeid, max_recompiles=1)
    observation = Observation(
        compile=compilation, parity=parity, speed=speed or speed_of(1.3, 1.32)
    )
    return judge(msgspec.structs.replace(plan, **changes), observation, environment, baseline)


RECORDED = msgspec.structs.replace(records.RECORDED, torch="2.11.0")
FACTS = make_facts(graphs=3, recorded=RECORDED)
TIMING = make_timing(
    2.0,
    speedup_low=1.99,
    speedup_high=2.01,
    eager_ms=0.3,
    compiled_ms=0.15,
    pairs=400,
    recorded=RECORDED,
)
STORED = Baseline(facts=FACTS, facts_note="", timing=TIMING, timing_note="")
BROKEN = compilation_with(SITE, recompiles=(RECOMPILE,))


def texts(verdicts: list[Verdict], *, width: int = 100, verbosity: int = 0) -> str:
    lines = summary_lines(verdicts, width=width, verbosity=verbosity, rootpath=ROOT)
    return "\n".join(line.text for line in lines)


def loaded(verdicts: list[Verdict], **options: Any) -> Any:
    return json.loads(document(verdicts, **options))


# --- the message of a failing test -----------------------------------------------------------

TWO_OF_FIVE = """\
test_mlp: graph breaks 1 > 0 (2 of 5 checks failed)
  graph breaks   observed 1        limit 0
    models/mlp.py:41 in forward    print(x.shape)
      Failed to trace builtin operator (GB0059): move the call out of the compiled region
  speedup        observed 1.04x    limit 1.20x    [1.03, 1.05] at 99 %, wall clock
      eager 0.310 ms, compiled 0.298 ms, 400 pairs; device time alone: 1.61x
      the call is bound by launches: try mode="reduce-overhead"
passed: recompiles 1 of 1 (call 2, 0/1 forward: x.size(0) 32 -> 48, then dynamic), \
parity 3 of 3 calls
not checked: baseline (none for NVIDIA H200, torch 2.11; \
record with --compileguard-update-baseline)"""


def test_a_failure_is_sentence_evidence_remedy() -> None:
    verdict = verdict_of(compilation=BROKEN, speed=speed_of(1.03, 1.05, 1.61))
    assert failure_text([verdict], rootpath=ROOT) == TWO_OF_FIVE


def test_nothing_failing_has_no_text() -> None:
    assert failure_text([], rootpath=ROOT) == ""
    assert failure_text([verdict_of()], rootpath=ROOT) == ""


TWO_CHECKS = """\
test_mlp[cpu::1] (ToyModel): compiled differs from eager (1 of 5 checks failed)
  parity         compiled differs from eager in 1 of 3 calls
    call 2, output: greatest difference 0.5 at (0, 1)
      seek code that asks whether it is compiled, torch.compiler.is_compiling()
passed: graph breaks 0 of 0, recompiles 0 of 1, speedup 1.31x [1.30, 1.32], limit 1.20x
not checked: baseline (none for NVIDIA H200, torch 2.11; \
record with --compileguard-update-baseline)

test_mlp[cpu::1] (other): fallbacks 1 > 0 (2 of 8 checks failed)
  fallbacks      observed 1    limit 0
    ran eager, models/mlp.py:40 in forward, call 3: torch.compile is off
      check that the target computes with tensors, and that nothing turns torch.compile off: \
TORCH_COMPILE_DISABLE, torch.compiler.set_stance, torch.compiler.disable, a dispatch mode
  recompiles     can't be trusted: the counters disagree
passed: parity 3 of 3 calls
inconclusive: trace (graph breaks can't be trusted: the counters disagree), \
speedup (the samples don't count: a tracer)
not checked: isolation (argument 1 is a file), \
baseline (the numbers of the trace can't be trusted), \
baseline speedup (no speedup was measured)"""


def test_a_test_with_several_checks_names_them() -> None:
    nodeid = "tests/test_mlp.py::TestAll::test_mlp[cpu::1]"
    mismatch = Mismatch(
        call=1, path="output", kind="value", message="greatest difference 0.5 at (0, 1)"
    )
    fallback = Fallback(
        kind="ran_eager",
        call=2,
        frame="forward",
        file="/repo/models/mlp.py",
        line=40,
        reason="torch.compile is off",
    )
    differing = msgspec.structs.replace(PARITY, mismatches=(mismatch,))
    verdicts = [
        verdict_of(nodeid, parity=differing),
        verdict_of(nodeid, name="fine"),
        verdict_of(
            nodeid,
            name="other",
            compilation=compilation_with(
                fallbacks=(fallback,), unreliable=("the counters disagree",)
            ),
            parity=msgspec.structs.replace(PARITY, unchecked=("argument 1 is a file",)),
            speed=msgspec.structs.replace(speed_of(1.3, 1.32), void="a tracer"),
            max_graph_breaks=None,
            baseline=STORED,
        ),
    ]
    assert failure_text(verdicts, rootpath=ROOT) == TWO_CHECKS


WORSE = """\
test_mlp: graph breaks 1 > 0 (3 of 8 checks failed)
  graph breaks   observed 1        baseline 0        recorded with torch 2.11.0 on NVIDIA H200
    new: models/mlp.py:41 in forward    print(x.shape)
      Failed to trace builtin operator (GB0059): move the call out of the compiled region
  break events   observed 1        baseline 0        recorded with torch 2.11.0 on NVIDIA H200
    as above
  speedup        observed 1.31x    baseline 2.00x    [1.30, 1.32] at 99 %, wall clock
    beyond the noise threshold of 30 %
    eager time 0.3904 ms, baseline 0.3 ms
    compiled time 0.298 ms, baseline 0.15 ms
      if this is wanted, record it: pytest tests/test_mlp.py::test_mlp \
--compileguard-update-baseline
passed: recompiles 0 of 1, parity 3 of 3 calls, \
baseline graphs tighten: 3 -> 2"""


def test_a_regression_says_what_was_stored_and_how_to_accept_it() -> None:
    verdict = verdict_of(compilation=compilation_with(SITE), max_graph_breaks=None, baseline=STORED)
    assert failure_text([verdict], rootpath=ROOT) == WORSE


NOT_COMPILED = """\
test_mlp: BackendCompilerFailed (1 of 6 checks failed)
  compiled       BackendCompilerFailed: backend='toy' raised
    RuntimeError: no
      choose another backend
inconclusive: speedup (compiling failed)
not checked: graph breaks (nothing was compiled), recompiles (nothing was compiled), \
parity (compiling failed), baseline (nothing was compiled)"""


def test_a_compile_error_is_shown_whole_with_all_that_it_prevented() -> None:
    error = "BackendCompilerFailed: backend='toy' raised\nRuntimeError: no"
    failed = NotObserved(reason="compiling failed")
    verdict = verdict_of(
        compilation=compilation_with(graphs=0, error=error, error_remedy="choose another backend"),
        parity=failed,
        speed=failed,
    )
    assert failure_text([verdict], rootpath=ROOT) == NOT_COMPILED


STRICT = """\
test_mlp: speedup inconclusive (1 of 5 checks inconclusive, 1 not checked, strict)
  speedup        inconclusive: 1.20x [1.15, 1.25]: the limit 1.20x lies inside
      eager 0.358 ms, compiled 0.298 ms, 400 pairs
      raise max_time_s, or time on a quieter machine
  baseline       not checked: none for NVIDIA H200, torch 2.11; \
record with --compileguard-update-baseline
      pytest tests/test_mlp.py::test_mlp --compileguard-update-baseline
passed: graph breaks 0 of 0, recompiles 0 of 1, parity 3 of 3 calls"""


def test_strict_shows_what_is_unclear_as_the_cause() -> None:
    verdict = verdict_of(speed=speed_of(1.15, 1.25), strict=True)
    assert failure_text([verdict], rootpath=ROOT) == STRICT


def test_a_strict_verdict_without_findings_says_that_nothing_was_checked() -> None:
    empty = msgspec.structs.replace(verdict_of(strict=True), findings=(), outcome="not_checked")
    assert failure_text([empty], rootpath=None) == "test_mlp: nothing was checked (strict)"


def test_paths_outside_the_root_stay_whole() -> None:
    outside = msgspec.structs.replace(SITE, file="/other/repo/models/mlp.py")
    verdict = verdict_of(compilation=compilation_with(outside))
    for root in (ROOT, Path("/"), None):
        assert "    /other/repo/models/mlp.py:41 in" in failure_text([verdict], rootpath=root)


# --- text of unknown origin ------------------------------------------------------------------

HOSTILE = "\x1b[31mred\x1b[0m\n::error::x\r\x1b]8;;http://x\x07link\x1b]8;;\x07\u202e\x9b2J##[error]\ud800\0"


def test_hostile_text_only_shows() -> None:
    assert plain(HOSTILE) == "red ::error::x link## [error]"
    assert plain("\n ::error file=x::y") == "  : :error file=x::y"
    assert plain("a::b ##vso[task]") == "a::b ## vso[task]"


@pytest.mark.parametrize("field", ("source", "reason", "hint", "function", "file"))
def test_a_hostile_break_adds_no_line_and_no_command(field: str) -> None:
    site = msgspec.structs.replace(SITE, **{field: HOSTILE})
    verdict = verdict_of(compilation=compilation_with(site))
    harmless = verdict_of(compilation=compilation_with(SITE))
    text = failure_text([verdict], rootpath=ROOT)
    assert len(text.splitlines()) == len(failure_text([harmless], rootpath=ROOT).splitlines())
    assert all(line.isprintable() for line in text.split("\n"))
    assert not [line for line in text.split("\n") if line.lstrip().startswith("::")]
    assert "##[" not in text


def test_hostile_names_and_errors_are_harmless_everywhere() -> None:
    nodeid = f"tests/test_x.py::test_x[{HOSTILE}]"
    error = "::error::one\n::error::two\x1b[2J"
    verdicts = [
        verdict_of(nodeid, name=name, compilation=compilation_with(graphs=0, error=error))
        for name in (HOSTILE, "b")
    ]
    shown = failure_text(verdicts, rootpath=ROOT) + "\n" + texts(verdicts, verbosity=1)
    for line in shown.split("\n"):
        assert line.isprintable()
        assert not line.lstrip().startswith("::")
    assert json.loads(document(verdicts))["checks"][0]["nodeid"] == nodeid.replace("\ud800", "?")


def test_a_long_line_loses_its_middle_and_keeps_the_number() -> None:
    site = msgspec.structs.replace(SITE, source="x" * 100_000, hint="y" * 100_000)
    verdict = verdict_of(f"{NODEID}[{'z' * 9000}]", compilation=compilation_with(site))
    lines = failure_text([verdict], rootpath=ROOT).splitlines()
    assert max(map(len, lines)) <= 700
    assert len(lines[2]) <= 240
    assert lines[0].startswith("test_mlp[zzz")
    assert lines[0].endswith("zzz]: graph breaks 1 > 0 (1 of 5 checks failed)")
    assert lines[1] == "  graph breaks   observed 1    limit 0"
    assert lines[2].startswith("    models/mlp.py:41 in forward    xxx")


def test_shortened_text_fits() -> None:
    for width in range(2, 120):
        assert len(shortened("x" * 200, max(width, 4))) == max(width, 4)
    assert shortened("abc", 3) == "abc"
    assert plain_line("ab \n", 10) == "ab"


def test_relative_paths_only_below_the_root() -> None:
    assert relative("at /repo/a.py and /repo/b.py", ROOT) == "at a.py and b.py"
    assert relative("/x/repo/a.py, /repository/a.py", ROOT) == "/x/repo/a.py, /repository/a.py"


# --- the summary -----------------------------------------------------------------------------

IMPROVED = "tests/test_long_name_of_a_module.py::TestTransformers::test_encoder[bf16-512]"


def session() -> list[Verdict]:
    nothing = NotObserved(reason="timing is off (--compileguard-no-timing)")
    return [
        verdict_of(compilation=BROKEN, speed=speed_of(1.03, 1.05)),
        verdict_of("tests/test_a.py::test_a", speed=speed_of(1.15, 1.25)),
        verdict_of(
            IMPROVED,
            speed=nothing,
            untimed=nothing.reason,
            min_speedup=None,
            baseline=msgspec.structs.replace(STORED, timing=None),
        ),
        verdict_of(
            "tests/test_b.py::test_b",
            compilation=NotObserved(reason="it was never called"),
            parity=NotObserved(reason="it was never called"),
            speed=nothing,
            untimed=nothing.reason,
            baseline=NO_BASELINE,
        ),
    ]


REASONS = """\
4 checks: 2 failed, 1 inconclusive, 1 passed
inconclusive: speedup in 1 check (test_a): 1.20x [1.15, 1.25]: the limit 1.20x lies inside; \
raise max_time_s, or time on a quieter machine
not checked: baseline in 2 checks (test_a, test_mlp): none for NVIDIA H200, torch 2.11; \
record with --compileguard-update-baseline
not checked: graph breaks, recompiles, baseline in 1 check (test_b): nothing was compiled
not checked: parity in 1 check (test_b): it was never called
not checked: speedup in 1 check (test_b): timing is off (--compileguard-no-timing)
better than the baseline: 1 check; record with --compileguard-update-baseline=improved
  tighten: graphs 3 -> 1, run pytest \
'tests/test_long_name_of_a_module.py::TestTransformers::test_encoder[bf16-512]' \
--compileguard-update-baseline=improved"""
TABLES = {
    100: """\
check                           graphs  breaks  recompiles  parity             speedup       verdict
test_a                               1       0           0     3/3  1.20x [1.15, 1.25]  inconclusive
test_b                               -       -           -       -                   -        failed
TestTransforme..oder[bf16-512]       1       0           0     3/3                   -        passed
test_mlp                             3       1           1     3/3  1.04x [1.03, 1.05]        failed
""",
    80: """\
check                          breaks  recompiles  parity  speedup       verdict
test_a                              0           0     3/3    1.20x  inconclusive
test_b                              -           -       -        -        failed
TestTransforme..der[bf16-512]       0           0     3/3        -        passed
test_mlp                            1           1     3/3    1.04x        failed
""",
    60: """\
check              breaks  recompiles  speedup       verdict
test_a                  0           0    1.20x  inconclusive
test_b                  -           -        -        failed
TestTran..16-512]       0           0        -        passed
test_mlp                1           1    1.04x        failed
""",
    40: """\
check               breaks       verdict
test_a                   0  inconclusive
test_b                   -        failed
TestTran..f16-512]       0        passed
test_mlp                 1        failed
""",
}


@pytest.mark.parametrize("width", TABLES)
def test_the_summary_at_every_width(width: int) -> None:
    table = TABLES[width]
    assert texts(session(), width=width) == f"{table}{REASONS}"
    assert max(map(len, table.splitlines())) <= width


def test_two_tests_of_one_name_keep_their_files() -> None:
    alike = [
        verdict_of(f"tests/test_{name}.py::test_forward") for name in ("a", "b_of_a_long_name")
    ]
    _, first, second, *_ = texts(alike, width=100).splitlines()
    assert first.startswith("tests/test_a.py::test_forward ")
    assert second.startswith("test_forward ")


def test_a_wide_terminal_shows_the_time_of_compiling() -> None:
    heading, row, *_ = texts(session()[:1], width=120).splitlines()
    assert heading.split()[-2:] == ["compiling", "verdict"]
    assert row.endswith("  1.04x [1.03, 1.05]     12.3 s   failed")


def test_a_check_that_fails_is_not_offered_as_a_better_baseline() -> None:
    slower = verdict_of(baseline=STORED)
    assert slower.fails
    assert "baseline graphs tighten: 3 -> 1" in failure_text([slower], rootpath=ROOT)
    assert "better than the baseline" not in texts([slower])


def test_the_order_of_the_tests_changes_nothing() -> None:
    verdicts = session()
    assert texts(verdicts[::-1]) == texts(verdicts)
    assert document(verdicts[::-1]) == document(verdicts)


def test_no_verdicts_no_summary() -> None:
    assert summary_lines([], width=80, verbosity=0) == []


def test_colours_follow_what_a_reader_must_do() -> None:
    facts = msgspec.structs.replace(FACTS, graphs=1)
    timing = msgspec.structs.replace(TIMING, speedup=1.3)
    stored = msgspec.structs.replace(STORED, facts=facts, timing=timing)
    fine = verdict_of("a.py::a", baseline=stored)
    unclear = verdict_of("b.py::b")
    failing = verdict_of("c.py::c", strict=True)
    lines = summary_lines([fine, unclear, failing], width=100, verbosity=0)
    heading, *rows, totals, reason = lines
    assert heading.markup == {"red": False, "green": False, "yellow": False, "bold": True}
    assert [(row.red, row.green, row.yellow) for row in rows] == [
        (False, True, False),
        (False, False, True),
        (True, False, False),
    ]
    assert (totals.text, totals.red) == ("3 checks: 1 failed, 2 passed", True)
    assert reason.yellow
    (_, _, green) = summary_lines([fine], width=100, verbosity=0)
    assert green.green


QUIET = """\
check     breaks  recompiles  parity             speedup  verdict
test_b         -           -       -                   -   failed
test_mlp       1           1     3/3  1.04x [1.03, 1.05]   failed"""


def test_quiet_lists_only_what_fails() -> None:
    assert texts(session(), width=81, verbosity=-1) == f"{QUIET}\n{REASONS}"
    nothing = texts([verdict_of(baseline=NotObserved(reason="off"))], verbosity=-1)
    assert nothing == "1 check: 1 passed\nnot checked: baseline in 1 check: off"


DETAILS = """\
  failed        graph breaks 1, limit 0
    models/mlp.py:41 in forward    print(x.shape)
      Failed to trace builtin operator (GB0059): move the call out of the compiled region
  passed        recompiles 1 of 1 (call 2, 0/1 forward: x.size(0) 32 -> 48, then dynamic)
    call 2, 0/1 forward: x.size(0) 32 -> 48 (automatic dynamic)    models/mlp.py:40
  passed        parity 3 of 3 calls
  failed        speedup 1.04x [1.03, 1.05], limit 1.20x
      eager 0.310 ms, compiled 0.298 ms, 400 pairs
  not checked   baseline none for NVIDIA H200, torch 2.11; \
record with --compileguard-update-baseline"""


def test_verbose_shows_every_finding_with_its_evidence() -> None:
    lines = texts(session()[:1], verbosity=1).splitlines()
    assert "\n".join(lines[2:-2]) == DETAILS


def test_parity_that_failed_or_compared_nothing_is_told_in_its_column() -> None:
    mismatch = Mismatch(call=0, path="output", kind="kind", message="a list, not a tuple")
    differs = verdict_of(parity=msgspec.structs.replace(PARITY, mismatches=(mismatch,)))
    nothing = verdict_of("tests/test_z.py::test_z", parity=NotObserved(reason="no"))
    partly = verdict_of(
        "tests/test_y.py::test_y", parity=msgspec.structs.replace(PARITY, calls_compared=2)
    )
    rows = texts([differs, partly, nothing]).splitlines()[1:4]
    assert [row.split()[4] for row in rows] == ["failed", "2/3", "failed"]


def test_numbers_that_can_not_be_trusted_are_marked() -> None:
    untrusted = compilation_with(unreliable=("they disagree",))
    row = texts([verdict_of(compilation=untrusted)]).splitlines()[1]
    assert row.split()[1:4] == ["1?", "0?", "0?"]


# --- the JSON report -------------------------------------------------------------------------


def test_the_document_holds_the_contract() -> None:
    verdict = verdict_of(compilation=BROKEN, speed=speed_of(1.03, 1.05, 1.61))
    data = document([verdict], rootpath=ROOT)
    assert data.endswith(b"]}\n")
    report = json.loads(data)
    assert (report["schema"], report["environment"]["device_name"]) == (1, "NVIDIA H200")
    (check,) = report["checks"]
    assert (check["nodeid"], check["name"], check["outcome"]) == (NODEID, "ToyModel", "failed")
    speed = {
        name: round(check["observed"].pop(name), 3)
        for name in ("speedup", "speedup_low", "speedup_high", "eager_ms", "device_speedup")
    }
    assert speed == {
        "speedup": 1.04,
        "speedup_low": 1.03,
        "speedup_high": 1.05,
        "eager_ms": 0.31,
        "device_speedup": 1.61,
    }
    assert check["observed"] == {
        "calls": 3,
        "graphs": 3,
        "ops": 12,
        "graph_breaks": 1,
        "break_events": 1,
        "recompiles": 1,
        "fallbacks": 0,
        "limit_hit": False,
        "graph_ops": [],
        "guards": 0,
        "backward_graphs": 0,
        "parity": "passed",
        "clock": "wall",
        "compiled_ms": pytest.approx(0.298),
        "pairs": 400,
        "compile_time_s": 12.34,
        "kernels": 2,
        "peak_memory_bytes": None,
        "eager_peak_memory_bytes": None,
        "kernels_per_call": None,
        "eager_kernels_per_call": None,
        "copies_per_call": None,
        "eager_copies_per_call": None,
        "cache_hits": 0,
        "cache_misses": 1,
        "cache_state": "unknown",
        "error": None,
    }
    assert check["graph_breaks"] == [
        {
            "file": "models/mlp.py",
            "line": 41,
            "function": "forward",
            "source": "print(x.shape)",
            "reason": "Failed to trace builtin operator",
            "id": "GB0059",
            "hint": "move the call out of the compiled region",
            "events": 1,
            "call": 0,
            "allowed": False,
            "origin": "package",
            "rewritten_assert": False,
            "hints": [],
            "called_from": [],
            "call_chain": [],
        }
    ]
    (recompile,) = check["recompiles"]
    assert recompile["call"] == 1
    assert (recompile["compile_id"], recompile["frame"]) == ("0/1", "forward")
    assert (recompile["guard"], recompile["kind"]) == (RECOMPILE.guard, "automatic_dynamic")
    finding = next(f for f in check["findings"] if f["metric"] == "graph_breaks")
    assert (finding["status"], finding["observed"], finding["limit"]) == ("failed", 1, 0)
    assert (finding["baseline"], finding["message"]) == (None, "1, limit 0")
    assert finding["evidence"][0] == "models/mlp.py:41 in forward    print(x.shape)"
    assert len(check["samples"]["eager_s"]) == 400
    assert (check["backend"], check["mode"], check["unreliable"]) == ("inductor", None, [])


def test_allowed_breaks_are_listed_and_not_counted() -> None:
    allowed = msgspec.structs.replace(SITE, allowed=True)
    (check,) = loaded([verdict_of(compilation=compilation_with(allowed))])["checks"]
    assert check["observed"]["graph_breaks"] == 0
    assert [site["allowed"] for site in check["graph_breaks"]] == [True]


def test_what_was_not_observed_is_null_with_a_reason() -> None:
    nothing = NotObserved(reason="it was never called")
    verdict = verdict_of(
        compilation=nothing, parity=nothing, speed=nothing, environment=None, baseline=nothing
    )
    report = loaded([verdict])
    assert report["environment"] is None
    (check,) = report["checks"]
    parity = check["observed"].pop("parity")
    assert (parity, set(check["observed"].values())) == ("not_checked", {None})
    reasons = {finding["metric"]: finding["message"] for finding in check["findings"]}
    assert reasons["compiled"] == "nothing was compiled: it was never called"
    assert reasons["speedup"] == "it was never called"
    assert (check["samples"], check["graph_breaks"], check["recompiles"]) == (None, [], [])


@pytest.mark.parametrize(
    ("parity", "word"),
    (
        (PARITY, "passed"),
        (msgspec.structs.replace(PARITY, calls_compared=0), "failed"),
        (msgspec.structs.replace(PARITY, calls_compared=2), "not_checked"),
    ),
)
def test_parity_has_three_words(parity: ParityObservation, word: str) -> None:
    (check,) = loaded([verdict_of(parity=parity)])["checks"]
    assert check["observed"]["parity"] == word


def test_void_samples_give_no_speedup_and_stay_raw() -> None:
    void = msgspec.structs.replace(speed_of(1.3, 1.32), void="a tracer")
    (check,) = loaded([verdict_of(speed=void)])["checks"]
    assert (check["observed"]["speedup"], check["observed"]["pairs"]) == (None, None)
    assert (check["samples"]["void"], len(check["samples"]["eager_s"])) == ("a tracer", 400)


def test_numbers_that_json_lacks_never_appear() -> None:
    broken = msgspec.structs.replace(speed_of(1.3, 1.32), eager_s=(math.nan, math.inf))
    verdict = verdict_of(
        compilation=compilation_with(compile_time_s=math.inf), speed=broken, min_speedup=None
    )
    data = document([verdict])
    assert b"NaN" not in data
    assert b"Infinity" not in data
    (check,) = json.loads(data)["checks"]
    assert check["observed"]["compile_time_s"] is None
    assert check["samples"]["eager_s"] == [None, None]


def test_the_environment_is_that_of_the_gpu_and_others_are_named() -> None:
    on_cpu = verdict_of("a.py::a", environment=CPU)
    report = loaded([on_cpu, verdict_of("b.py::b")])
    assert report["environment"]["device_type"] == "cuda"
    first, second = report["checks"]
    assert first["environment"]["device_name"] == "Some CPU"
    assert second["environment"] is None
    assert loaded([on_cpu])["environment"]["device_type"] == "cpu"
    assert loaded([on_cpu], environment=GPU)["environment"]["device_type"] == "cuda"


def test_a_session_without_checks_has_a_document() -> None:
    assert document([]) == b'{"schema": 1, "environment": null, "checks": []}\n'


@pytest.mark.parametrize("width", (60, 75, 100))
def test_what_is_cut_is_cut_between_words(width: int) -> None:
    text = " ".join(f"word{number}" for number in range(100))
    head, tail = shortened(text, width).split(" ... ")
    assert text.startswith(f"{head} ")
    assert text.endswith(f" {tail}")
    assert len(shortened(text, width)) <= width
    assert text.startswith(f"{clipped(text, width)} ")


def test_a_long_label_is_set_apart_from_its_message() -> None:
    compilation = compilation_with(cudagraph_skips=("mutated inputs",), cudagraph_recordings=0)
    verdict = verdict_of(compilation=compilation, max_cudagraph_skips=0)
    told = failure_text([verdict], rootpath=ROOT)
    assert "  cudagraph skips " in told
