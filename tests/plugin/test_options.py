"""The options: where each may be said, which one wins, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_compileguard.option_list import OPTIONS
from pytest_compileguard.spec import NAMES
from tests.conftest import RunSuite

# Nothing of it is compiled, so that a run with the default backend takes no time.
BACKENDS = """
def test_says(compileguard):
    compileguard(lambda x: x, backend="aot_eager")(1)

def test_says_nothing(compileguard):
    compileguard(lambda x: x)(1)

def test_says_none(compileguard):
    compileguard(lambda x: x, backend=None)(1)
"""
TIMED = """
from library import double_relu
from torch import ones


def test_says(compileguard):
    guarded = compileguard(
        double_relu, backend="eager", min_speedup=0.001, warmup=900, max_time_s=2
    )
    guarded(ones(3))


def test_says_nothing(compileguard):
    compileguard(double_relu, backend="eager", min_speedup=0.001)(ones(3))
"""
SIMPLE = """
from library import double_relu
from torch import ones


def test_simple(compileguard):
    compileguard(double_relu, backend="eager")(ones(3))
"""
PLAIN = "def test_plain(): pass\n"


def by_test(checks: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {check["nodeid"].rpartition("::")[2]: check for check in checks}


@pytest.mark.parametrize(
    ("ini", "arguments", "expected"),
    (
        ("", (), "inductor"),
        ("compileguard_backend = eager", (), "eager"),
        ("", ("--compileguard-backend=eager",), "eager"),
        ("compileguard_backend = cudagraphs", ("--compileguard-backend=eager",), "eager"),
    ),
    ids=("default", "ini", "command line", "command line over ini"),
)
def test_backend_of_test_then_command_line_then_ini(
    run_suite: RunSuite,
    pytester: pytest.Pytester,
    ini: str,
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    pytester.makeini(f"[pytest]\n{ini}\n")

    run = run_suite(BACKENDS, *arguments)

    assert {name: check["backend"] for name, check in by_test(run.checks).items()} == {
        "test_says": "aot_eager",
        "test_says_nothing": expected,
        "test_says_none": expected,
    }


@pytest.mark.parametrize(
    ("ini", "arguments", "expected"),
    (
        ("compileguard_warmup = 300", (), 300),
        ("compileguard_warmup = 30", ("--compileguard-warmup=600",), 600),
    ),
    ids=("ini", "command line over ini"),
)
def test_numbers_of_test_then_command_line_then_ini(
    run_suite: RunSuite,
    pytester: pytest.Pytester,
    ini: str,
    arguments: tuple[str, ...],
    expected: int,
) -> None:
    pytester.makeini(f"[pytest]\n{ini}\n")

    checks = by_test(run_suite(TIMED, *arguments, timing=True).checks)

    assert checks["test_says"]["samples"]["warmup"] >= 900
    assert checks["test_says_nothing"]["samples"]["warmup"] >= expected


@pytest.mark.parametrize(
    ("ini", "arguments", "expected"),
    (
        ("compileguard_max_time_s = 0.03", (), "0.03"),
        ("compileguard_max_time_s = 20", ("--compileguard-max-time-s=0.04",), "0.04"),
    ),
    ids=("ini", "command line over ini"),
)
def test_longest_time_of_test_then_command_line_then_ini(
    run_suite: RunSuite,
    pytester: pytest.Pytester,
    ini: str,
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    """More warm-up calls are wanted than can fit, of which the samples keep a note."""
    pytester.makeini(f"[pytest]\n{ini}\n")
    suite = TIMED.replace("warmup=900, max_time_s=2", "max_time_s=0.05")

    run = run_suite(suite, "--compileguard-warmup=10000000", *arguments, timing=True)

    notes = {name: check["samples"]["notes"] for name, check in by_test(run.checks).items()}
    assert any(note.endswith("fitted in max_time_s=0.05") for note in notes["test_says"])
    fitted = f"of 10000000 warm-up calls fitted in max_time_s={expected}"
    assert any(note.endswith(fitted) for note in notes["test_says_nothing"])


def test_no_timing_is_said_where_a_speedup_was_promised(
    run_suite: RunSuite, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\ncompileguard_no_timing = true\n")

    run = run_suite(TIMED, timing=True)

    run.result.assert_outcomes(passed=2)
    assert {check["observed"]["speedup"] for check in run.checks} == {None}
    assert {(f["status"], f["limit"]) for f in run.findings("speedup")} == {("not_checked", 0.001)}
    run.result.stdout.fnmatch_lines(
        ["not checked: speedup in 2 checks: timing is off (--compileguard-no-timing)"]
    )


@pytest.mark.parametrize("where", ("command line", "ini"))
def test_strict_fails_what_could_not_be_checked(
    run_suite: RunSuite, pytester: pytest.Pytester, where: str
) -> None:
    pytester.makeini(f"[pytest]\ncompileguard_strict = {str(where == 'ini').lower()}\n")

    run = run_suite(SIMPLE, *(() if where == "ini" else ("--compileguard-strict",)))

    run.result.assert_outcomes(failed=1)
    assert run.check["fails"]
    assert run.status("baseline") == "not_checked"
    run.result.stdout.fnmatch_lines(
        [
            "test_simple: baseline not checked (1 of 4 checks not checked, strict)",
            "  baseline *record with --compileguard-update-baseline",
        ]
    )


DISABLED = """
import pytest
from library import printing
from torch import ones

from pytest_compileguard import compile_check


@compile_check(max_graph_breaks=0)
def test_calls(compileguard):
    assert compileguard(printing) is printing
    printing(ones(3))


@compile_check(max_graph_breaks=0)
def test_guards_nothing(compileguard):
    pass


def test_wrong_limit(compileguard):
    compileguard(printing, max_graph_break=0)
"""
SAID = "compileguard is disabled ({origin}): calls ran eager, nothing was checked"
INI_DISABLES = "ini key compileguard_disable"


@pytest.mark.parametrize("origin", ("--compileguard-disable", INI_DISABLES))
def test_disable_makes_plain_calls_and_says_so_once(
    run_suite: RunSuite, pytester: pytest.Pytester, origin: str
) -> None:
    in_ini = origin == INI_DISABLES
    pytester.makeini(f"[pytest]\ncompileguard_disable = {str(in_ini).lower()}\n")

    run = run_suite(DISABLED, *(() if in_ini else (origin,)))

    run.result.assert_outcomes(passed=2, failed=1)
    assert run.text.count("compileguard is disabled") == 1
    assert SAID.format(origin=origin) in run.text.splitlines()
    assert run.check["outcome"] == "not_checked"
    assert run.check["observed"]["graphs"] is None
    assert run.check["findings"][0]["message"] == f"checks are disabled ({origin})"


def test_disable_has_nothing_to_say_where_nothing_is_guarded(run_suite: RunSuite) -> None:
    run = run_suite(PLAIN, "--compileguard-disable")

    run.result.assert_outcomes(passed=1)
    assert "disabled" not in run.text


STRICT, DISABLE = "--compileguard-strict", "--compileguard-disable"


BOTH = (
    "ERROR: {} can't both be kept: nothing would be checked, and what is not checked must fail; "
    "choose one of the two, {}"
)


@pytest.mark.parametrize(
    ("ini", "arguments", "both", "way_out"),
    (
        (
            "",
            (STRICT, DISABLE),
            f"{STRICT} and {DISABLE}",
            f"without {STRICT} or without {DISABLE}",
        ),
        (
            "compileguard_disable = true",
            (STRICT,),
            f"{STRICT} and {INI_DISABLES}",
            f"without {STRICT} or -o compileguard_disable=false",
        ),
        (
            "compileguard_strict = true",
            (DISABLE,),
            f"ini key compileguard_strict and {DISABLE}",
            f"-o compileguard_strict=false or without {DISABLE}",
        ),
    ),
)
def test_strict_and_disabled_contradict(
    pytester: pytest.Pytester, ini: str, arguments: tuple[str, ...], both: str, way_out: str
) -> None:
    pytester.makeini(f"[pytest]\n{ini}\n")
    pytester.makepyfile(PLAIN)

    result = pytester.runpytest_inprocess(*arguments)

    assert error_line(f"{result.stdout}\n{result.stderr}") == BOTH.format(both, way_out)
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_an_ini_file_that_is_strict_can_be_disabled_by_hand(
    run_suite: RunSuite, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\ncompileguard_strict = true\n")
    run = run_suite(SIMPLE, DISABLE, "-o", "compileguard_strict=false")
    run.result.assert_outcomes(passed=1)


def test_disable_leaves_damaged_baselines_alone(
    run_suite: RunSuite, pytester: pytest.Pytester
) -> None:
    pytester.mkdir("__compileguard__").joinpath("test_suite.json").write_text("{", "utf-8")

    run = run_suite(SIMPLE, DISABLE)

    run.result.assert_outcomes(passed=1)


def test_disable_needs_no_torch(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\n\n"
        "def test_guarded(compileguard):\n"
        "    assert compileguard(len)('ab') == 2\n"
        "    assert 'torch' not in sys.modules\n"
    )

    result = pytester.runpytest_subprocess("--compileguard-disable", "-p", "no:cacheprovider")

    result.assert_outcomes(passed=1)


def test_nothing_can_be_recorded_while_disabled(run_suite: RunSuite) -> None:
    run = run_suite(SIMPLE, "--compileguard-disable", "--compileguard-update-baseline")

    assert error_line(run.text) == (
        "ERROR: --compileguard-update-baseline: nothing can be recorded while checks are disabled; "
        "leave out --compileguard-disable, or set compileguard_disable to false"
    )
    assert run.result.ret == pytest.ExitCode.USAGE_ERROR


def error_line(text: str) -> str:
    """Give the one line of an error, having seen that there is no traceback."""
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("ERROR: ")]
    return line


FINITE = "must be a finite number above 0"
WHOLE = "must be a whole number, 1 or more"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    (
        ("warmup", "0", WHOLE),
        ("warmup", "-1", WHOLE),
        ("warmup", "1.5", WHOLE),
        ("warmup", "many", WHOLE),
        ("max-time-s", "0", FINITE),
        ("max-time-s", "nan", FINITE),
        ("max-time-s", "inf", FINITE),
        ("max-time-s", "soon", FINITE),
        ("noise-threshold", "0", FINITE),
        ("noise-threshold", "10%", FINITE),
    ),
)
def test_a_bad_number_is_refused_in_one_line(
    run_suite: RunSuite, pytester: pytest.Pytester, name: str, value: str, said: str
) -> None:
    run = run_suite(PLAIN, f"--compileguard-{name}={value}")
    assert error_line(run.text) == f"ERROR: --compileguard-{name}: '{value}': {said}"
    assert run.result.ret == pytest.ExitCode.USAGE_ERROR

    key = f"compileguard_{name.replace('-', '_')}"
    pytester.makeini(f"[pytest]\n{key} = {value}\n")
    run = run_suite(PLAIN)
    assert error_line(run.text) == f"ERROR: ini key {key}: '{value}': {said}"
    assert run.result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize("name", ("backend", "baseline-dir", "json", "warmup"))
def test_an_empty_value_is_refused(run_suite: RunSuite, name: str) -> None:
    """It comes from a variable of CI that is not set; the default would not be what was meant."""
    run = run_suite(PLAIN, f"--compileguard-{name}=")

    assert error_line(run.text) == f"ERROR: --compileguard-{name}: '': must not be empty"
    assert run.result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_bad_flag_in_the_ini_file_is_refused(
    run_suite: RunSuite, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\ncompileguard_strict = perhaps\n")

    run = run_suite(PLAIN)

    assert error_line(run.text).startswith("ERROR: ini key compileguard_strict: ")
    assert "perhaps" in error_line(run.text)
    assert error_line(run.text).endswith("; must be true or false (or yes, no, on, off, 1, 0)")
    assert run.result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="needs the table [tool.pytest] of pytest 9")
def test_typed_values_of_a_toml_file(run_suite: RunSuite, pytester: pytest.Pytester) -> None:
    toml = "[tool.pytest]\ncompileguard_warmup = {}\ncompileguard_no_timing = true\n"
    pytester.makepyprojecttoml(toml.format('"5"'))
    run_suite(PLAIN, timing=True).result.assert_outcomes(passed=1)

    pytester.makepyprojecttoml(toml.format('"0"'))
    run = run_suite(PLAIN)
    assert error_line(run.text) == f"ERROR: ini key compileguard_warmup: '0': {WHOLE}"

    pytester.makepyprojecttoml(toml.format("5"))
    run = run_suite(PLAIN)
    assert error_line(run.text).startswith("ERROR: ini key compileguard_warmup: ")
    assert error_line(run.text).endswith("expects a string, got int: 5")


def test_help_shows_every_option_and_key(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--help")

    text = " ".join(str(result.stdout).split())
    for option in OPTIONS:
        assert option.flag in text
        assert option.help in text
        assert (f" {option.dest} (" in text) is option.ini


def test_markers_shows_every_limit(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--markers")

    (line,) = [text for text in result.outlines if text.startswith("@pytest.mark.compile_check(")]
    assert all(f"{name}=" in line for name in NAMES)


def test_json_is_written_below_the_folder_of_the_call(
    pytester: pytest.Pytester, compiler_loaded: None
) -> None:
    del compiler_loaded
    pytester.makepyfile(test_plain=PLAIN)

    result = pytester.runpytest_inprocess("--compileguard-json=new/deep/report.json")

    assert result.ret == pytest.ExitCode.OK
    report = json.loads(Path("new/deep/report.json").read_text(encoding="utf-8"))
    assert report == {"schema": 1, "environment": None, "checks": []}


def test_json_that_cannot_be_written_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_plain=PLAIN)
    pytester.mkdir("folder")

    result = pytester.runpytest_inprocess("--compileguard-json=folder")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["ERROR: compileguard: --compileguard-json: can't write folder: *"])
    assert not any(Path().glob(".folder.*"))


def test_baseline_dir_of_the_ini_file_is_relative_to_it(
    run_suite: RunSuite, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\ncompileguard_baseline_dir = kept/here\n")

    run_suite(SIMPLE, "--compileguard-update-baseline").result.assert_outcomes(passed=1)

    assert Path("kept/here/test_suite.json").exists()
    assert not Path("__compileguard__").exists()


UNKNOWN_BACKENDS = """
import pytest, torch
from library import double_relu

@pytest.mark.parametrize("limits", (
    {"backend": "inductr"},
    {"options": {"max_autotun": True}},
    {"options": {"max_autotune": "yes"}},
))
def test_own(compileguard, limits):
    compileguard(double_relu, **limits)(torch.ones(3))

def test_compiled(compileguard):
    compileguard(torch.compile(double_relu, backend="eager"))(torch.ones(3))

@pytest.mark.parametrize("n", (1, 2))
def test_given(compileguard, n):
    compileguard(double_relu)(torch.ones(3))
"""


def test_a_backend_or_an_option_that_torch_does_not_have_is_named(run_suite: RunSuite) -> None:
    run = run_suite(UNKNOWN_BACKENDS, "-k", "own")

    run.result.assert_outcomes(failed=3, deselected=3)
    told = (
        "backend='inductr': torch knows no such backend; did you mean 'inductor'? Known: aot_eager",
        "options={'max_autotun': True}: inductor has no option 'max_autotun'; did you mean 'max_",
        "options={'max_autotune': 'yes'}: Unexpected type of attr max_autotune, got str should be",
    )
    for number, said in enumerate(told):
        assert f"\ntest_suite.py::test_own[limits{number}]::double_relu: {said}" in run.text
    assert "Traceback" not in run.text


def test_a_backend_of_the_command_line_that_torch_does_not_have_ends_the_run(
    run_suite: RunSuite, pytester: pytest.Pytester
) -> None:
    chosen = ("-k", "given or compiled")
    run = run_suite(UNKNOWN_BACKENDS, *chosen, "--compileguard-backend=no_such")
    pytester.makeini("[pytest]\ncompileguard_backend = no_such\n")
    ini = run_suite(UNKNOWN_BACKENDS, *chosen)

    said = "'no_such': torch knows no such backend. Known: aot_eager, "
    for ended, origin in (
        (run, "--compileguard-backend"),
        (ini, "ini key compileguard_backend"),
    ):
        ended.result.assert_outcomes(failed=1, passed=1, deselected=3)
        assert f"\n{origin}: {said}" in ended.text
        assert "Traceback" not in ended.text


def test_options_reach_the_workers_of_xdist(pytester: pytest.Pytester) -> None:
    """Without torch, so that two workers start soon."""
    pytester.makepyfile(
        test_suite="def test_guarded(compileguard): assert compileguard(len) is len\n"
    )

    result = pytester.runpytest_subprocess(
        "-n2", "-p", "no:cacheprovider", "--compileguard-disable"
    )

    result.assert_outcomes(passed=1)
    assert str(result.stdout).count("compileguard is disabled") == 1


def test_without_the_terminal_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_plain=PLAIN)
    command = (sys.executable, "-m", "pytest", "-p", "no:terminal", "-p", "no:cacheprovider")

    done = subprocess.run(
        [*command, "--compileguard-json=out.json"], capture_output=True, check=False, timeout=60
    )

    assert done.returncode == 0
    assert Path("out.json").exists()
