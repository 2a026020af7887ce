"""A break in code of others names the line of the user's code that leads to it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import RunSuite
from tests.dynamo.torch_versions import BEFORE_2_11

VENDOR = """
def emit(x):
    print("half way", x.shape)
    return x

def repeated(x, *rest):
    for _ in range(2):
        x = emit(x + 1)
    return x
"""
LIBRARY = """
import time
import torch
import vendor

def inner(x):
    return vendor.emit(x.sin())

def outer(x):
    return inner(x + 1).cos()

def other(x):
    return vendor.emit(x * 2) + 1

def both(x):
    return other(outer(x))

@torch.compiler.disable
def disabled(x):
    return x * 2

class Disabled(torch.nn.Module):
    @torch.compiler.disable
    def forward(self, x):
        return x * 2

def looping(x):
    for _ in range(2):
        x = vendor.emit(x + 1)
    return x

def timed(x):
    return x + time.time()

def speak(x):
    y = x.sin()
    print("half way")
    return y.cos()

def middle(x):
    return speak(x + 1)

@torch._dynamo.disable(reason="slow")
def marked(x):
    return x + 1

def deep(x):
    return middle(x).cos()

def calls_marked(x):
    return marked(x.sin()).cos()

def calls_disabled(x):
    return disabled(x.sin()).cos()

wrapped = torch.compiler.disable(speak)

def calls_wrapped(x):
    return wrapped(x.sin()).cos()

def calls_repeated(x):
    return vendor.repeated(x, "a line so long that nothing of a place may be cut for it", "end")
"""
SUITE = """
import torch
import library

def test_it(compileguard):
    guarded = compileguard(
        library.{target}, backend="aot_eager", max_graph_breaks=0, allow_graph_breaks={allowed!r}
    )
    guarded(torch.ones(3))
"""


@pytest.fixture(autouse=True)
def vendor(pytester: pytest.Pytester) -> None:
    """Install a package of somebody else."""
    folder = pytester.mkdir("site-packages")
    (folder / "vendor.py").write_text(VENDOR, encoding="utf-8")
    pytester.syspathinsert(folder)


def _suite(target: str, *allowed: str) -> str:
    return SUITE.format(target=target, allowed=list(allowed))


def _callers(check: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (line["role"], line["file"], line["line"], line["function"], line["source"])
        for site in check["graph_breaks"]
        for line in site["called_from"]
    ]


INNER = ("call", "library.py", 6, "inner", "return vendor.emit(x.sin())")
OTHER = ("call", "library.py", 12, "other", "return vendor.emit(x * 2) + 1")


def test_a_break_in_a_package_names_the_innermost_line_of_the_user(run_suite: RunSuite) -> None:
    run = run_suite(_suite("outer"), library=LIBRARY)
    run.result.assert_outcomes(failed=1)
    assert _callers(run.check) == [INNER]
    run.result.stdout.fnmatch_lines(
        [
            "*vendor.py:3 in emit    print(*third party*",
            "      called from library.py:6 in inner    return vendor.emit(x.sin())",
            "      which is called from library.py:9 in outer",
            "      Failed to trace builtin operator (GB0059)*",
        ]
    )
    (finding,) = run.findings("graph_breaks")
    assert (finding["file"], finding["line"]) == ("library.py", 6)


def test_a_break_in_the_users_own_helper_names_the_calls_that_lead_to_it(
    run_suite: RunSuite,
) -> None:
    run = run_suite(_suite("deep"), library=LIBRARY)
    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(
        [
            "*library.py:36 in speak    print(*",
            "      called from library.py:40 in middle <- library.py:47 in deep",
            "      Failed to trace builtin operator (GB0059)*",
        ]
    )
    (site,) = run.check["graph_breaks"]
    assert site["called_from"] == []
    assert [(line["line"], line["function"], line["source"]) for line in site["call_chain"]] == [
        (40, "middle", "return speak(x + 1)"),
        (47, "deep", "return middle(x).cos()"),
    ]


@pytest.mark.parametrize(
    ("target", "advice"),
    (
        ("calls_marked", "Remove `@torch._dynamo.disable` from `marked`"),
        ("calls_disabled", "Remove `@torch.compiler.disable` from `disabled`"),
        (
            "calls_wrapped",
            "Remove `torch.compiler.disable` (or `torch._dynamo.disable`) from `speak`",
        ),
    ),
)
def test_advice_names_what_is_disabled_as_the_source_spells_it(
    run_suite: RunSuite, target: str, advice: str
) -> None:
    run = run_suite(_suite(target), library=LIBRARY)
    run.result.assert_outcomes(failed=1)
    assert f"disable()`d function (GB0098): {advice}" in run.text


def test_a_break_at_a_disabled_helper_is_no_fallback(run_suite: RunSuite) -> None:
    run = run_suite(_suite("calls_marked").replace("max_graph_breaks=0, ", ""), library=LIBRARY)
    run.result.assert_outcomes(passed=1)
    assert (len(run.check["graph_breaks"]), run.check["fallbacks"]) == (1, [])


def test_a_break_in_the_target_itself_has_no_calls_that_lead_to_it(run_suite: RunSuite) -> None:
    run = run_suite(_suite("speak"), library=LIBRARY)
    run.result.assert_outcomes(failed=1)
    (site,) = run.check["graph_breaks"]
    assert (site["line"], site["call_chain"]) == (36, [])


def test_the_annotation_stands_at_the_line_of_the_user(
    run_suite: RunSuite, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path))
    run = run_suite(
        _suite("both"), "-p", "no:pytest_github_actions_annotate_failures", library=LIBRARY
    )
    commands = [text for text in run.text.splitlines() if text.startswith("::error")]
    places = [text.partition(",title=")[0] for text in commands]
    assert places == ["::error file=library.py,line=6", "::error file=library.py,line=12"]
    assert all("vendor.py%3A3" in text or "vendor.py:3" in text for text in commands)


@pytest.mark.parametrize("allowance", ("library.py:6", "library", "vendor", "GB0059"))
def test_a_break_is_allowed_by_the_line_that_leads_to_it(
    run_suite: RunSuite, allowance: str
) -> None:
    run = run_suite(_suite("outer", allowance), library=LIBRARY)
    run.result.assert_outcomes(passed=1)
    assert [site["allowed"] for site in run.check["graph_breaks"]] == [True]


def test_allowing_one_of_two_lines_that_lead_to_a_break_does_not_hide_the_other(
    run_suite: RunSuite,
) -> None:
    run = run_suite(_suite("both", "library.py:6"), library=LIBRARY)
    run.result.assert_outcomes(failed=1)
    assert _callers(run.check) == [INNER, OTHER]
    assert not run.findings("allow_graph_breaks")


@pytest.mark.parametrize(("target", "line"), (("disabled", 18), ("Disabled()", 23)))
def test_a_disabled_target_names_its_definition(
    run_suite: RunSuite, target: str, line: int
) -> None:
    run = run_suite(_suite(target), library=LIBRARY)
    run.result.assert_outcomes(failed=1)
    assert f"defined at library.py:{line} in " in run.text


def test_a_skipped_frame_names_the_function_that_ran_eager(run_suite: RunSuite) -> None:
    run = run_suite(_suite("looping"), library=LIBRARY)
    run.result.assert_outcomes(failed=1)
    (skipped,) = [f for f in run.check["fallbacks"] if f["kind"] == "frame_skipped"]
    assert skipped["frame"] == "looping"
    place = skipped["definition"] or skipped
    assert place["file"] == "library.py"
    if BEFORE_2_11:  # the line is that of the frame
        return
    # The line is that of the helper, which the frame inlined.
    assert (skipped["file"].endswith("vendor.py"), skipped["function"]) == (True, "emit")
    run.result.stdout.fnmatch_lines(
        [
            "*frame skipped, *vendor.py:3 in emit, inlined into looping, call 1: *",
            "      defined at library.py:26 in looping    def looping(x):",
        ]
    )


@pytest.mark.skipif(BEFORE_2_11, reason="before 2.11, torch names the frame only")
def test_a_frame_of_others_that_is_skipped_names_the_line_that_leads_to_it(
    run_suite: RunSuite,
) -> None:
    run = run_suite(_suite("calls_repeated"), library=LIBRARY)
    run.result.assert_outcomes(failed=1)
    (line,) = [
        number for number, text in enumerate(LIBRARY.splitlines()) if "vendor.repeated" in text
    ]
    run.result.stdout.fnmatch_lines(
        [
            "*frame skipped, *vendor.py:3 in emit, inlined into repeated, call 1: *",
            f"      called from library.py:{line} in calls_repeated    return vendor.repeated*end*",
        ]
    )


def test_a_hint_names_the_function_and_is_not_cut(run_suite: RunSuite) -> None:
    run = run_suite(_suite("timed"), library=LIBRARY)
    run.result.assert_outcomes(failed=1)
    (site,) = run.check["graph_breaks"]
    assert site["hints"], site
    assert site["hint"] == " ".join(site["hints"])
    lines = run.text.splitlines()
    (told,) = (line for line in lines if site["id"] in line)
    assert site["hints"][0] in told
    assert "`time.time`" in told
    run.result.stdout.fnmatch_lines(["      or call what can't be traced before the target*"])
