"""The marker: its forms, its levels, and what is refused before any test runs."""

from __future__ import annotations

import pytest

from pytest_compileguard.spec import NAMES
from tests.conftest import RunSuite

LEVELS = """
import pytest
from library import printing
from torch import ones

from pytest_compileguard import compile_check

pytestmark = compile_check(max_graph_breaks=0, backend="eager")


def test_module(compileguard):
    compileguard(printing)(ones(3))


@compile_check
def test_bare(compileguard):
    compileguard(printing)(ones(3))


@compile_check(max_recompiles=0)
def test_another_key(compileguard):
    compileguard(printing)(ones(3))


@compile_check(max_graph_breaks=1)
def test_nearest(compileguard):
    compileguard(printing)(ones(3))


@pytest.mark.compile_check(max_graph_breaks=1)
def test_plain_mark(compileguard):
    compileguard(printing)(ones(3))


@compile_check(max_graph_breaks=None)
def test_switched_off(compileguard):
    compileguard(printing)(ones(3))


@compile_check(max_graph_breaks=3)
@compile_check(max_graph_breaks=2)
def test_stacked(compileguard):
    compileguard(printing)(ones(3))


def test_override(compileguard):
    compileguard(printing, max_graph_breaks=1)(ones(3))


@compile_check(max_graph_breaks=1)
def test_stricter_override(compileguard):
    compileguard(printing, max_graph_breaks=0)(ones(3))


def test_override_off(compileguard):
    compileguard(printing, max_graph_breaks=None)(ones(3))


@compile_check(max_graph_breaks=2)
@pytest.mark.parametrize("n", [2, pytest.param(3, marks=compile_check(max_graph_breaks=0))])
def test_parameter(compileguard, n):
    compileguard(printing)(ones(n))


@compile_check(max_graph_breaks=1)
class TestClass:
    def test_class(self, compileguard):
        compileguard(printing)(ones(3))

    @compile_check(max_graph_breaks=0)
    def test_function_in_class(self, compileguard):
        compileguard(printing)(ones(3))
"""


def test_nearest_level_wins_key_by_key(run_suite: RunSuite) -> None:
    run = run_suite(LEVELS)

    told = {
        check["nodeid"].rpartition("::")[2]: (finding["status"], finding["limit"])
        for check in run.checks
        for finding in check["findings"]
        if finding["metric"] == "graph_breaks"
    }
    assert told == {
        "test_module": ("failed", 0),
        "test_bare": ("failed", 0),
        "test_another_key": ("failed", 0),
        "test_nearest": ("passed", 1),
        "test_plain_mark": ("passed", 1),
        "test_switched_off": ("passed", None),
        "test_stacked": ("passed", 2),
        "test_override": ("passed", 1),
        "test_stricter_override": ("failed", 0),
        "test_override_off": ("passed", None),
        "test_parameter[2]": ("passed", 2),
        "test_parameter[3]": ("failed", 0),
        "test_class": ("passed", 1),
        "test_function_in_class": ("failed", 0),
    }
    run.result.assert_outcomes(passed=8, failed=6)


BARE = """
from library import double_relu, printing
from torch import ones

from pytest_compileguard import compile_check


@compile_check
def test_marked(compileguard):
    compileguard(double_relu, backend="eager")(ones(3))


def test_without_marker(compileguard):
    compileguard(double_relu, backend="eager")(ones(3))


@compile_check()
def test_called(compileguard):
    compileguard(lambda x: x, backend="eager")(ones(3))


def test_compiles_nothing(compileguard):
    compileguard(lambda x: x, backend="eager")(ones(3))
"""


def test_without_limits_it_must_be_compiled_all_the_same(run_suite: RunSuite) -> None:
    run = run_suite(BARE)

    run.result.assert_outcomes(passed=2, failed=2)
    assert run.text.count("nothing was compiled: 0 graphs in 1 call") >= 2


KNOWN = f"Known: {', '.join(NAMES)}"
NEAR_AUTOTUNE = "; did you mean 'max-autotune'?"
ONE_LIMIT = (
    "; it is one for all modes: {mode: limit} may be min_speedup, max_compile_time_s, "
    "max_peak_memory_ratio, max_kernels_per_call"
)
REFUSED = (
    ("max_graph_break=0", "unknown limit 'max_graph_break'; did you mean max_graph_breaks?", KNOWN),
    ("tolerance=0.1", "unknown limit 'tolerance'", KNOWN),
    ("max_recompiles=-1", "max_recompiles=-1: must be a whole number, 0 or more", ""),
    ("max_recompiles=True", "max_recompiles=True: must be a whole number, 0 or more", ""),
    ("max_graph_breaks='none'", "max_graph_breaks='none': must be a whole number, 0 or more", ""),
    ("min_speedup=0", "min_speedup=0: must be a finite number above 0", ""),
    ("min_speedup=float('nan')", "min_speedup=nan: must be a finite number above 0", ""),
    ("rtol=-1e-3", "rtol=-0.001: must be a finite number, 0 or more", ""),
    ("warmup=0", "warmup=0: must be a whole number, 1 or more", ""),
    ("max_time_s='1'", "max_time_s='1': must be a finite number above 0", ""),
    ("fullgraph=1", "fullgraph=1: must be True, False or None", ""),
    ("mode=3", "mode=3: must be one of default,", ""),
    ("mode='reduce_overhead'", "mode='reduce_overhead': must be one of default,", ""),
    ("mode='Max-Autotune'", "mode='Max-Autotune': must be one of default,", NEAR_AUTOTUNE),
    ("mode='fast'", "mode='fast': must be one of default,", ""),
    ("mode='fast', backend='eager'", "mode='fast': must be one of default,", ""),
    ("mode=''", "mode='': must be one of default,", ""),
    ("backend=''", "backend='': must be a name or a callable", ""),
    ("clock=''", "clock='': must be 'wall' or 'device'", ""),
    ("clock='Wall'", "clock='Wall': must be 'wall' or 'device'", "; did you mean 'wall'?"),
    ("cache='warn'", "cache='warn': must be 'warm' or 'cold'", "; did you mean 'warm'?"),
    ("cache=['warm']", "cache=['warm']: must be 'warm' or 'cold'", "'cold'"),
    ("modes=['defalt']", "modes=['defalt']: must be a list of", "; did you mean 'default'?"),
    ("modes=['']", "modes=['']: must be a list of some of default,", ""),
    ("allow_graph_breaks=['']", "allow_graph_breaks=['']: must be a list of ids (GB0059),", ""),
    ("max_recompiles={'defalt': 1}", "max_recompiles={'defalt': 1}: must be a whole", ONE_LIMIT),
    ("rtol={}", "rtol={}: must be a finite number, 0 or more", ONE_LIMIT),
    ("min_speedup={'': 1.2}", "min_speedup={'': 1.2}: names the mode '', but no modes=", ""),
    ("min_speedup={3: 1.2}", "min_speedup={3: 1.2}: names the mode 3, but no modes=", ""),
    ("backend=3", "backend=3: must be a name or a callable", ""),
    ("options='x'", "options='x': must be a mapping", ""),
    ("mode='default', options={}", "torch.compile takes either mode or options, not both", ""),
    ("0", "takes keyword arguments only", KNOWN),
    ("0, max_recompiles=0", "takes keyword arguments only", KNOWN),
)
REFUSED_SUITE = """
import pytest
from pytest_compileguard import compile_check

@{form}({arguments})
def test_marked(compileguard):
    raise AssertionError("this test must not run")
"""


def clean_errors(text: str) -> list[str]:
    """Give the lines of errors, having seen that there is no traceback."""
    assert "Traceback" not in text
    assert "spec.py" not in text
    assert "INTERNALERROR" not in text
    return [line for line in text.splitlines() if line.startswith("ERROR: ")]


@pytest.mark.parametrize("form", ("compile_check", "pytest.mark.compile_check"))
@pytest.mark.parametrize(("arguments", "said", "known"), REFUSED, ids=lambda value: value[:30])
def test_a_limit_that_cannot_be_kept_is_refused(
    run_suite: RunSuite, form: str, arguments: str, said: str, known: str
) -> None:
    run = run_suite(REFUSED_SUITE.format(form=form, arguments=arguments))

    (line,) = clean_errors(run.text)
    assert line.startswith(f"ERROR: test_suite.py::test_marked: compile_check: {said}")
    assert line.endswith(known)
    assert run.result.ret == pytest.ExitCode.USAGE_ERROR


MISTAKES = """
import pytest
from pytest_compileguard import compile_check

@compile_check(max_recompile=0)
def test_one(compileguard): pass

@compile_check(max_recompiles=0)
def test_two(): pass

@compile_check(max_recompiles=0)
class TestThree:
    def test_three(self): pass

@compile_check(max_recompile=0)
def test_four(compileguard): pass

def test_sound(): pass
"""
WITHOUT_FIXTURE = (
    "is marked compile_check but does not use the fixture compileguard, so nothing would be "
    "checked; request compileguard and guard a target, or move the mark"
)


def test_every_mistake_is_told_at_once(run_suite: RunSuite) -> None:
    run = run_suite(MISTAKES)

    one, two, three, four = clean_errors(run.text)
    assert one.startswith("ERROR: test_suite.py::test_one: compile_check: unknown limit")
    assert two == f"ERROR: test_suite.py::test_two: {WITHOUT_FIXTURE}"
    assert three == f"ERROR: test_suite.py::TestThree::test_three: {WITHOUT_FIXTURE}"
    assert four.startswith("ERROR: test_suite.py::test_four: compile_check: unknown limit")
    assert run.result.ret == pytest.ExitCode.USAGE_ERROR


NEAR = (
    *("compilecheck", "compile_checks", "compile_chek", "complie_check", "CompileCheck"),
    *("compileguard", "compile_guard", "compileguards"),
)
OTHERS = ("compile", "compiled", "compile_cache", "compile_time", "check", "slow", "guard")


@pytest.mark.parametrize("level", ("function", "module"))
def test_a_misspelt_mark_is_refused(run_suite: RunSuite, level: str) -> None:
    tests = [f"@pytest.mark.{name}\ndef test_{name}(compileguard): pass" for name in NEAR]
    if level == "module":
        tests = [f"pytestmark = pytest.mark.{NEAR[0]}(max_graph_breaks=0)\ndef test_it(): pass"]

    run = run_suite("import pytest\n" + "\n".join(tests))

    names = NEAR[:1] if level == "module" else NEAR
    lines = clean_errors(run.text)
    assert len(lines) == len(names)
    for line, name in zip(lines, names, strict=True):
        assert f"is marked {name!r}, which nothing knows; did you mean compile_check?" in line
    assert run.result.ret == pytest.ExitCode.USAGE_ERROR


def test_marks_of_others_are_their_own(run_suite: RunSuite, pytester: pytest.Pytester) -> None:
    """What is not near, or is declared, is nobody's mistake."""
    pytester.makeini("[pytest]\nmarkers =\n    compile_checks(n): ours\n    compile_guard: too\n")
    names = (*OTHERS, "compile_checks", "compile_guard")
    tests = [f"@pytest.mark.{name}\ndef test_{name}(): pass" for name in names]

    run = run_suite("import pytest\n" + "\n".join(tests))

    run.result.assert_outcomes(passed=len(names))


IDLE = """
import pytest
from library import double_relu
from torch import ones

@pytest.fixture
def guarded(compileguard):
    return compileguard(double_relu, backend="eager")

def test_guards(guarded):
    guarded(ones(3))

def test_idle(compileguard):
    pass

@pytest.mark.parametrize("n", [1, 2])
def test_idle_too(compileguard, n):
    pass

def test_skips(compileguard):
    pytest.skip("not here")

def test_plain():
    pass
"""


@pytest.mark.parametrize("workers", ((), ("-n2",)), ids=("serial", "xdist"))
def test_a_test_that_guards_nothing_is_told(run_suite: RunSuite, workers: tuple[str, ...]) -> None:
    run = run_suite(IDLE, *workers)

    run.result.assert_outcomes(passed=5, skipped=1)
    told = [line for line in run.text.splitlines() if "guarded nothing" in line]
    idle = ("test_idle", "test_idle_too[1]", "test_idle_too[2]")
    names = ", ".join(f"test_suite.py::{name}" for name in idle)
    assert told == [f"3 tests took compileguard and guarded nothing: {names}"]


@pytest.mark.parametrize("origin", ("--compileguard-strict", "ini key compileguard_strict"))
def test_a_test_that_guards_nothing_fails_if_strict(
    run_suite: RunSuite, pytester: pytest.Pytester, origin: str
) -> None:
    if origin.startswith("ini"):
        pytester.makeini("[pytest]\ncompileguard_strict = true\n")
    arguments = () if origin.startswith("ini") else (origin,)

    run = run_suite(IDLE, "-k", "idle or plain", *arguments)

    run.result.assert_outcomes(passed=1, failed=3)
    said = "the test takes compileguard, but it guards no target: call compileguard(target), or "
    assert run.text.count(f"{said}don't take it ({origin})") >= 3
    assert "guarded nothing" not in run.text


def test_a_test_that_is_not_selected_is_not_judged(run_suite: RunSuite) -> None:
    run = run_suite(MISTAKES, "-k", "sound")

    run.result.assert_outcomes(passed=1, deselected=4)


def test_xdist_tells_mistakes_as_cleanly(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_suite=MISTAKES)

    result = pytester.runpytest_subprocess("-n2", "-p", "no:cacheprovider")

    text = str(result.stdout) + str(result.stderr)
    one, two, three, four = clean_errors(text)
    assert one.startswith("ERROR: test_suite.py::test_one: compile_check: unknown limit")
    assert two == f"ERROR: test_suite.py::test_two: {WITHOUT_FIXTURE}"
    assert three == f"ERROR: test_suite.py::TestThree::test_three: {WITHOUT_FIXTURE}"
    assert four.startswith("ERROR: test_suite.py::test_four: compile_check: unknown limit")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "passed" not in text


@pytest.mark.parametrize(
    ("mark", "said"),
    (
        ("compile_check(max_recompile=0)", "compile_check: unknown limit 'max_recompile'"),
        ("[compile_check(0)]", "compile_check: takes keyword arguments only"),
    ),
)
def test_module_mark_is_refused_as_cleanly(run_suite: RunSuite, mark: str, said: str) -> None:
    run = run_suite(f"""
from pytest_compileguard import compile_check
pytestmark = {mark}
def test_marked(compileguard): pass
""")

    (line,) = clean_errors(run.text)
    assert line.startswith(f"ERROR: test_suite.py::test_marked: {said}")
    assert run.result.ret == pytest.ExitCode.USAGE_ERROR


NOTHING = """
from library import double_relu
from torch import ones

from pytest_compileguard import compile_check


@compile_check(max_graph_breaks=0)
def test_guards_nothing(compileguard):
    pass


@compile_check(max_graph_breaks=0)
def test_never_calls(compileguard):
    compileguard(double_relu, backend="eager")


@compile_check(max_graph_breaks=0)
def test_one_of_two_is_never_called(compileguard):
    compileguard(double_relu, backend="eager")(ones(3))
    compileguard(lambda x: x + 1, backend="eager")


def test_unmarked_never_calls(compileguard):
    compileguard(double_relu, backend="eager")


def test_unmarked_guards_nothing(compileguard):
    pass
"""


def test_a_test_that_checks_nothing_fails(run_suite: RunSuite) -> None:
    run = run_suite(NOTHING)

    run.result.assert_outcomes(failed=4, passed=1)
    run.result.stdout.fnmatch_lines(
        [
            "the test is marked compile_check, but it guards no target: call compileguard(target)",
            "  compiled *nothing was compiled: the test made no guarded call",
            "      call what compileguard(target) returned, not the target itself",
        ]
    )
    assert "Traceback" not in run.text


OVERRIDES = """
import pytest
from library import double_relu


@pytest.fixture
def in_fixture(compileguard):
    return compileguard(double_relu, max_recompile=0)


@pytest.mark.parametrize("limits", [{"max_recompile": 0}, {"rtol": "x"}, {"backend": 3}])
def test_limits(compileguard, limits):
    compileguard(double_relu, **limits)


def test_target(compileguard):
    compileguard([1, 2] * 1000)


def test_fixture(in_fixture):
    pass


def test_shows_mode_and_options(compileguard):
    compileguard(double_relu, mode="default", options={"x": 1})
"""


def test_a_wrong_override_fails_its_test_in_one_line(run_suite: RunSuite) -> None:
    run = run_suite(OVERRIDES, "-rfE")

    run.result.assert_outcomes(failed=5, errors=1)
    name = "test_suite.py::test_limits[[]limits0]: compileguard(double_relu)"
    run.result.stdout.fnmatch_lines(
        [
            "*ERROR at setup of test_fixture*",
            "*test_fixture: compileguard(double_relu): unknown limit 'max_recompile'; did you*",
            f"{name}: unknown limit 'max_recompile'; did you mean max_recompiles?*",
            "*: compileguard(double_relu): rtol='x': must be a finite number, 0 or more",
            "*: compileguard(double_relu): backend=3: must be a name or a callable",
            "*::test_target: compileguard(...): the target must be callable, not a list",
            "*: compileguard(double_relu): torch.compile takes either mode or options, not both",
        ]
    )
    assert "Traceback" not in run.text
    assert "During handling" not in run.text
    assert "guard.py" not in run.text
