"""What a job on GitHub Actions shows: its summary, its annotations, and nothing of an attacker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from pytest_compileguard.finding import Verdict
from pytest_compileguard.report.annotations import MOST, annotation_commands
from pytest_compileguard.report.contract import Report, read_report
from pytest_compileguard.report.document import document
from pytest_compileguard.report.markdown import MARK, MOST_IN_SUMMARY, markdown
from tests.conftest import RunSuite
from tests.golden_text import assert_golden
from tests.plugin.test_terminal import SUITE
from tests.records import NODEID
from tests.unit import test_report as made
from tests.unit.test_page import hostile_report

COMMAND = re.compile(r"^::error file=(?P<file>[^,:]+),line=(?P<line>\d+),title=(?P<title>[^:]+)::")


class Job(NamedTuple):
    """The places that GitHub Actions gives to a job."""

    summary: Path


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester, tmp_path: Path) -> Job:
    summary = tmp_path / "summary.md"
    summary.touch()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path))
    monkeypatch.setenv("COLUMNS", "100")
    return Job(summary)


def commands(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("::error")]


ALONE = ("-p", "no:pytest_github_actions_annotate_failures")


def test_a_job_gets_a_summary_and_annotations(run_suite: RunSuite, job: Job) -> None:
    run = run_suite(SUITE, *ALONE)

    assert_golden("summary.md", job.summary.read_text(encoding="utf-8"))
    found = commands(str(run.result.stdout))
    assert_golden("annotations.txt", "\n".join(found).replace("%0A", "\n    ") + "\n")
    places = [COMMAND.match(line) for line in found]
    assert all(places)
    # The break that two tests meet is told once, at its own line.
    assert [(m["file"], m["line"]) for m in places if m] == [
        ("library.py", "8"),
        ("test_suite.py", "21"),
        ("library.py", "3"),
    ]


@pytest.mark.usefixtures("job")
def test_no_clash_with_the_plugin_that_annotates_failures(run_suite: RunSuite) -> None:
    """It points at failing tests, so we point at the causes only."""
    pytest.importorskip("pytest_github_actions_annotate_failures")
    run = run_suite(SUITE)

    ours = [line for line in commands(str(run.result.stdout)) if "compileguard" in line]
    assert [re.sub(",title.*", "", line) for line in ours] == [
        "::error file=library.py,line=8",
        "::error file=library.py,line=3",
    ]
    theirs = commands(str(run.result.stderr))
    assert len(theirs) == 3
    assert not {line.partition("::")[2].partition("::")[0] for line in theirs} & set(ours)


@pytest.mark.usefixtures("job")
def test_a_sub_folder_of_a_repository_is_named_from_its_root(
    run_suite: RunSuite, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path.parent))
    found = commands(run_suite(SUITE, "-k", "breaks", *ALONE).text)
    assert [line.startswith(f"::error file={pytester.path.name}/lib") for line in found] == [True]
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path / "elsewhere"))
    assert commands(run_suite(SUITE, "-k", "breaks", *ALONE).text) == []


@pytest.mark.parametrize(
    ("arguments", "ini"),
    (
        (("--compileguard-no-github",), ""),
        ((), "[pytest]\ncompileguard_no_github = true\n"),
    ),
)
def test_it_can_be_switched_off(
    run_suite: RunSuite,
    job: Job,
    pytester: pytest.Pytester,
    arguments: tuple[str, ...],
    ini: str,
) -> None:
    pytester.makeini(ini)
    run = run_suite(SUITE, "-k", "breaks", *arguments, *ALONE)
    assert job.summary.read_text(encoding="utf-8") == ""
    assert commands(run.text) == []


def test_nothing_is_written_elsewhere_or_without_checks(
    run_suite: RunSuite, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_suite("def test_plain(): pass\n", *ALONE)
    assert job.summary.read_text(encoding="utf-8") == ""
    monkeypatch.delenv("GITHUB_ACTIONS")
    run = run_suite(SUITE, "-k", "breaks", *ALONE)
    assert job.summary.read_text(encoding="utf-8") == ""
    assert commands(run.text) == []


def test_the_summary_of_other_programs_stays(run_suite: RunSuite, job: Job) -> None:
    job.summary.write_text("theirs\n", encoding="utf-8")
    run_suite(SUITE, "-k", "breaks", *ALONE)
    text = job.summary.read_text(encoding="utf-8")
    assert text.startswith(f"theirs\n\n{MARK}\n### compileguard: 1 of 1 check failed\n")

    job.summary.write_text("x" * (MOST_IN_SUMMARY - 100), encoding="utf-8")
    run = run_suite(SUITE, "-k", "breaks", *ALONE)
    assert job.summary.stat().st_size == MOST_IN_SUMMARY - 100
    assert "the summary of the job is full" in run.text


def test_a_summary_that_can_not_be_written_is_said_and_fails_nothing(
    run_suite: RunSuite, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(job.summary / "not" / "there"))
    run = run_suite(SUITE, "-k", "sizes1", *ALONE)
    assert run.result.ret == 0
    assert "can't write the summary of the job" in run.text


def test_with_workers_only_the_controller_writes(pytester: pytest.Pytester, job: Job) -> None:
    pytest.importorskip("xdist")
    tests = "\n".join(f"def test_{n}(compileguard):\n    compileguard(abs)(1)" for n in range(3))
    pytester.makepyfile(test_suite=tests)
    arguments = ("-n1", "-p", "no:cacheprovider", *ALONE, "--compileguard-disable")
    pytester.runpytest_subprocess(*arguments)
    text = job.summary.read_text(encoding="utf-8")
    assert text.count(MARK) == 1
    assert "3 checks, none failed" in text


# --- without a run ---------------------------------------------------------------------------


def report_of(*verdicts: Verdict) -> Report:
    return read_report(document(verdicts, rootpath=made.ROOT, lines={NODEID: 7}))


def annotated(report: Report, **options: bool) -> list[str]:
    return annotation_commands(report, rootpath=made.ROOT, workspace=made.ROOT, **options)


def test_no_more_annotations_than_github_shows() -> None:
    sites = [msgspec.structs.replace(made.SITE, line=line) for line in range(1, 30)]
    found = annotated(report_of(made.verdict_of(compilation=made.compilation_with(*sites))))
    assert len(found) == MOST
    assert found[-1] == ("::error title=compileguard::20 more causes: see the summary of this job")


def test_places_outside_of_the_repository_are_told_at_the_test() -> None:
    site = msgspec.structs.replace(made.SITE, file="/usr/lib/python3/site-packages/net.py")
    (found,) = annotated(report_of(made.verdict_of(compilation=made.compilation_with(site))))
    assert found.startswith("::error file=tests/test_mlp.py,line=7,title=compileguard%3A graph br")
    assert "/usr/lib/python3/site-packages/net.py:41" in found


def test_allowed_breaks_and_passing_checks_are_not_annotated() -> None:
    allowed = msgspec.structs.replace(made.SITE, allowed=True)
    assert annotated(report_of(made.verdict_of(compilation=made.compilation_with(allowed)))) == []
    strict = report_of(made.verdict_of(strict=True))
    assert [line.partition("::")[2].partition("::")[0] for line in annotated(strict)] == [
        "error file=tests/test_mlp.py,line=7,title=compileguard%3A baseline"
    ]


def test_hostile_text_is_harmless_in_annotations() -> None:
    found = annotated(hostile_report())
    assert found
    for line in found:
        assert "\n" not in line
        assert "\r" not in line
        assert line.isprintable()
        head = line.removeprefix("::error ").partition("::")[0]
        for part in re.split(r",(?=line=|title=)", head):
            assert not set(part.partition("=")[2]) & set(",:\r\n")


def test_hostile_text_is_harmless_in_markdown() -> None:
    text = markdown(hostile_report())
    assert "<script" not in re.sub(r"```+text.*?```+\n", "", text, flags=re.DOTALL)
    for line in text.splitlines():
        assert line.isprintable()
    outside = re.sub(r"(?s)(`{3,})text\n.*?\n\1\n", "", text)
    elements = {"code", "details", "summary"}
    assert set(re.findall(r"</?(\w+)", outside)) <= elements
    rows = [line for line in outside.splitlines() if line.startswith("| <code>")]
    assert rows
    assert all(row.count("|") == 7 for row in rows)


NAMES = r"a|b `a` ``` @everyone #123 <!-- [a](b) $x$ *a*_b_ &amp; \| ~~~ :x:"


@pytest.mark.parametrize("name", tuple(NAMES.split(" ")))
def test_names_are_shown_as_they_are(name: str) -> None:
    nodeid = f"tests/a.py::test_a[{name}]"
    text = markdown(report_of(made.verdict_of(nodeid, compilation=made.BROKEN)))
    cell = next(line for line in text.splitlines() if line.startswith("| <code>")).split(" | ")[0]
    inner = cell.removeprefix("| <code>").removesuffix("</code>")
    assert not set(re.sub(r"&#\d+;", "", inner)) & set("|`@#<[]()$*&\\!~")
    shown = re.sub(r"&#(\d+);", lambda found: chr(int(found[1])), inner)
    assert shown == nodeid


def test_evidence_can_not_close_its_block() -> None:
    site = msgspec.structs.replace(made.SITE, source="````` <b>", hint="")
    text = markdown(report_of(made.verdict_of(compilation=made.compilation_with(site))))
    assert "\n``````text\n" in text
    assert text.count("\n``````\n") == 1


@pytest.mark.parametrize("most_bytes", (2_000, 60_000))
def test_markdown_fits_and_says_what_is_left_out(most_bytes: int) -> None:
    verdicts = [
        made.verdict_of(f"tests/a.py::test_{at}[ä{'x' * 80}]", compilation=made.BROKEN)
        for at in range(400)
    ]
    text = markdown(report_of(*verdicts), most_bytes=most_bytes)
    assert len(text.encode()) <= most_bytes
    assert "### compileguard: 400 of 400 checks failed" in text
    assert re.search(r"\d+ parts of this report had no room here", text)
    assert text.count("<details>") == text.count("</details>")


@pytest.mark.parametrize(
    ("repository", "linked"), (("owner/a.repo-1", True), ("o/r](http://evil)[", False), ("", False))
)
def test_the_summary_links_the_artefacts_of_the_run(
    run_suite: RunSuite,
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    repository: str,
    linked: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", repository)
    monkeypatch.setenv("GITHUB_RUN_ID", "12")
    run_suite(SUITE, *ALONE, "-k", "breaks", "--compileguard-artifacts=saved")
    text = job.summary.read_text(encoding="utf-8")
    url = f"https://github.com/{repository}/actions/runs/12#artifacts"
    assert (f"[artefacts of this run]({url})" in text) is linked
    assert "artefacts of this run" in text
    assert "evil" not in text
