"""Where the report of a session goes besides the terminal: files, and the places of GitHub."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.observation import Record
from pytest_compileguard.options import Options
from pytest_compileguard.report.annotations import annotation_commands
from pytest_compileguard.report.contract import Report, read_report
from pytest_compileguard.report.markdown import MOST_IN_SUMMARY, markdown
from pytest_compileguard.report.page import page
from pytest_compileguard.report.saved_files import SavedFiles

_RUN = re.compile(r"https?://[\w.-]+(?::\d+)?/[\w.-]+/[\w.-]+/actions/runs/\d+")
ANNOTATING_PLUGIN = "annotate_errors"
"""Name under which pytest-github-actions-annotate-failures is active."""


class GitHub(Record, frozen=True):
    """The job of GitHub Actions that this session runs in."""

    summary: Path | None
    workspace: Path
    run_url: str | None = None
    """Page of the run, where its artefacts are found."""


def github(environ: Mapping[str, str]) -> GitHub | None:
    """Read from the variables of the process which job this is; ``None``: none."""
    if environ.get("GITHUB_ACTIONS") != "true":
        return None
    summary = environ.get("GITHUB_STEP_SUMMARY")
    # Runners that only resemble GitHub's may leave it out; they start in the checkout too.
    workspace = environ.get("GITHUB_WORKSPACE") or Path.cwd()
    return GitHub(
        summary=Path(summary) if summary else None,
        workspace=Path(workspace),
        run_url=_run_url(environ),
    )


def _run_url(environ: Mapping[str, str]) -> str | None:
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    server, repository, run = (environ.get(name, "") for name in names)
    url = f"{server}/{repository}/actions/runs/{run}"
    return url if _RUN.fullmatch(url) else None


class Outputs:
    """Writes one report to all its places, and keeps what went wrong."""

    def __init__(self, options: Options, job: GitHub | None) -> None:
        self._options = options
        self._job = None if options.no_github else job
        self.problems: list[str] = []
        """What was asked for and could not be written."""
        self.notes: list[str] = []
        """What nobody asked for and could not be written."""

    def write(self, document: bytes) -> None:
        """Write all that was asked for. ``document`` is the JSON report."""
        options = self._options
        if options.json is not None:
            self._put("json", options.json, lambda: document)
        if options.html is not None:
            files = SavedFiles(
                base=options.html.parent, rootpath=options.rootpath, below=options.artifacts
            )
            self._put("html", options.html, lambda: page(read_report(document), files).encode())
        if self._job is not None and self._job.summary is not None:
            self._append_summary(self._job, self._job.summary, read_report(document))

    def commands(self, document: bytes, *, at_tests: bool) -> list[str]:
        """Give the workflow commands that annotate the causes, for a job's log."""
        if self._job is None:
            return []
        return annotation_commands(
            read_report(document),
            rootpath=self._options.rootpath,
            workspace=self._job.workspace,
            at_tests=at_tests,
        )

    def _put(self, option: str, path: Path, content: Callable[[], bytes]) -> None:
        try:
            _write_atomically(path, content())
        except OSError as error:
            problem = f"can't write {path}: {error.strerror}"
            self.problems.append(f"--compileguard-{option}: {problem}")
        except CompileGuardError as error:
            self.problems.append(f"--compileguard-{option}: {error}")

    def _append_summary(self, job: GitHub, path: Path, report: Report) -> None:
        """Add to the summary of the step, which other programs may have begun."""
        if not report.checks:
            return
        try:
            taken = path.stat().st_size if path.exists() else 0
            gap = "\n" if taken else ""
            most_bytes = MOST_IN_SUMMARY - taken - len(gap)
            text = gap + markdown(report, most_bytes=most_bytes, run_url=job.run_url)
            if taken + len(text.encode()) > MOST_IN_SUMMARY:
                self.notes.append("the summary of the job is full: these checks are not in it")
                return
            with path.open("ab") as file:
                file.write(text.encode())
        except OSError as error:
            self.notes.append(f"can't write the summary of the job: {error.strerror}")


def _write_atomically(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
