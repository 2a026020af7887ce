"""What users and other tools read: whole texts, and nothing in them that acts on a terminal."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_compileguard.baseline import Baseline
from pytest_compileguard.entries import FactsEntry, Recorded, TimingEntry
from pytest_compileguard.environment import Environment
from pytest_compileguard.finding import Finding, Verdict
from pytest_compileguard.observation import (
    BreakSite,
    CompileObservation,
    Fallback,
    Mismatch,
    NotObserved,
    Observation,
    ParityObservation,
    Recompile,
    SpeedObservation,
)
from pytest_compileguard.plan import CompileArguments, Plan
from pytest_compileguard.report.document import document
from pytest_compileguard.report.failure import failure_text
from pytest_compileguard.report.plain_text import plain, plain_line, relative, shortened
from pytest_compileguard.report.summary import summary_lines
from pytest_compileguard.verdict import judge

ROOT = Path("/repo")
NODEID = "tests/test_mlp.py::test_mlp"
NO_BASELINE = Baseline(
    facts=None,
    facts_note="none for cuda, torch 2.11",
    timing=None,
    timing_note="none for NVIDIA H200, torch 2.11",
)
GPU = Environment(
    device_type="cuda",
    device_name="NVIDIA H200",
    device_count=1,
    torch="2.11.0",
    triton="3.6.0",
    cuda="13.0",
    driver="580.1",
    python="3.12.1",
    plugin="0.1.0",
    platform="linux-x86_64",
    cpu_count=16,
)
CPU = msgspec.structs.replace(GPU, device_type="cpu", device_name="Some CPU")
SITE = BreakSite(
    file="/repo/models/mlp.py",
    line=41,
    function="forward",
    source="print(x.shape)",
    reason="Failed to trace builtin operator",
    id="GB0059",
    hint="move the call out of the compiled region",
    events=1,
    call=0,
)
RECOMPILE = Recompile(
    call=1,
    frame="forward",
    file="/repo/models/mlp.py",
    line=40,
    compile_id="0/1",
    guard="tensor 'x' size mismatch at index 0. expected 32, actual 48",
    subject="x.size(0)",
    before="32",
    after="48",
    kind="automatic_dynamic",
)
COMPILATION = CompileObservation(
    calls=3,
    graphs=1,
    ops=12,
    break_sites=(),
    break_events=0,
    recompiles=(),
    fallbacks=(),
    limit_hit=False,
    compile_time_s=12.34,
    kernels=2,
    cache_hits=0,
    cache_misses=1,
    error=None,
    error_remedy="",
    unreliable=(),
)
PARITY = ParityObservation(
    calls=3,
    calls_compared=3,
    leaves_compared=6,
    gradients_compared=0,
    mismatches=(),
    disputed=0,
    unchecked=(),
)


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
    plan = Plan(
        nodeid=nodeid,
        name="ToyModel",
        arguments=CompileArguments(),
        own_arguments=(),
        max_graph_breaks=0,
        max_recompiles=1,
        min_speedup=1.2,
        rtol=None,
        atol=None,
        warmup=10,
        max_time_s=1.0,
        noise_threshold=0.1,
        untimed=None,
        strict=False,
        update_baseline=False,
    )
    observation = Observation(compile=compilation, parity=parity, speed=speed or speed_of(1.3, 1.32))
    return judge(msgspec.structs.replace(plan, **changes), observation, environment, baseline)


RECORDED = Recorded(
    torch="2.11.0",
    python="3.12.1",
    plugin="0.1.0",
    device="NVIDIA H200",
    triton="3.6.0",
    cuda="13.0",
    driver="580.1",
    platform="linux-x86_64",
)
STORED = Baseline(
    facts=FactsEntry(
        graph_breaks=0,
        break_events=0,
        recompiles=0,
        graphs=3,
        ops=12,
        kernels=2,
        breaks=(),
        backend="inductor",
        mode=None,
        calls=3,
        recorded=RECORDED,
    ),
    facts_note="",
    timing=TimingEntry(
        speedup=2.0,
        speedup_low=1.99,
        speedup_high=2.01,
        eager_ms=0.3,
        compiled_ms=0.15,
        pairs=400,
        clock="wall",
        backend="inductor",
        mode=None,
        recorded=RECORDED,
    ),
    timing_note="",
)
BROKEN = compilation_with(SITE, recompiles=(RECOMPILE,))


def texts(verdicts: list[Verdict], *, width: int = 100, verbosity: int = 0) -> str:
    lines = summary_lines(verdicts, width=width, verbosity=verbosity, rootpath=ROOT)
    return "\n".join(line.text for line in lines)


def loaded(verdicts: list[Verdict], **options: Any) -> Any:
    return json.loads(document(verdicts, **options))


# --- the message of a failing test -----------------------------------------------------------

TWO_OF_FIVE = """\
test_mlp: 2 of 5 checks failed
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
test_mlp[cpu::1] (ToyModel): 1 of 5 checks failed
  parity         compiled differs from eager in 1 of 3 calls
    call 2, output: greatest difference 0.5 at (0, 1)
      if a difference of this size is sound, widen rtol= and atol= of the marker
passed: graph breaks 0 of 0, recompiles 0 of 1, speedup 1.31x [1.30, 1.32], limit 1.20x
not checked: baseline (none for NVIDIA H200, torch 2.11; \
record with --compileguard-update-baseline)

test_mlp[cpu::1] (other): 2 of 7 checks failed
  fallbacks      observed 1    limit 0
    ran eager, models/mlp.py:40 in forward, call 3: torch.compile is off
      check that the target computes with tensors, and that nothing turns torch.compile off: \
TORCH_COMPILE_DISABLE, torch.compiler.set_stance, torch.compiler.disable, a dispatch mode
  recompiles     can't be trusted: the counters disagree
passed: parity 3 of 3 calls
inconclusive: trace (graph breaks can't be trusted: the counters disagree), \
speedup (the samples don't count: a tracer)
not checked: isolation (argument 1 is a file), \
baseline (the numbers of the trace can't be trusted)"""


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
test_mlp: 3 of 8 checks failed
  graph breaks   observed 1        baseline 0        recorded with torch 2.11.0 on NVIDIA H200
    new: models/mlp.py:41 in forward    print(x.shape)
      Failed to trace builtin operator (GB0059): move the call out of the compiled region
      if this is wanted, record it: pytest tests/test_mlp.py::test_mlp \
--compileguard-update-baseline
  break events   observed 1        baseline 0        recorded with torch 2.11.0 on NVIDIA H200
    new: models/mlp.py:41 in forward    print(x.shape)
      Failed to trace builtin operator (GB0059): move the call out of the compiled region
      if this is wanted, record it: pytest tests/test_mlp.py::test_mlp \
--compileguard-update-baseline
  speedup        observed 1.31x    baseline 2.00x    [1.30, 1.32] at 99 %, wall clock
    beyond the noise threshold of 10 %
      if this is wanted, record it: pytest tests/test_mlp.py::test_mlp \
--compileguard-update-baseline
passed: graph breaks 1, no limit, recompiles 0 of 1, parity 3 of 3 calls, \
speedup 1.31x [1.30, 1.32], limit 1.20x, \
baseline graphs improved 3 -> 2; record with --compileguard-update-baseline"""


def test_a_regression_says_what_was_stored_and_how_to_accept_it() -> None:
    verdict = verdict_of(
        compilation=compilation_with(SITE), max_graph_breaks=None, baseline=STORED
    )
    assert failure_text([verdict], rootpath=ROOT) == WORSE


NOT_COMPILED = """\
test_mlp: 1 of 6 checks failed
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
        compilation=compilation_with(
            graphs=0, error=error, error_remedy="choose another backend"
        ),
        parity=failed,
        speed=failed,
    )
    assert failure_text([verdict], rootpath=ROOT) == NOT_COMPILED


STRICT = """\
test_mlp: 1 of 5 checks inconclusive, 1 not checked (strict)
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
    empty = msgspec.structs.replace(
        verdict_of(strict=True), findings=(), outcome="not_checked"
    )
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
    assert max(map(len, lines)) <= 240
    assert lines[0].startswith("test_mlp[zzz")
    assert lines[0].endswith("zzz]: 1 of 5 checks failed")
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


