"""The report as one page of HTML: it opens offline, and nothing in it can run but its script."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from importlib import resources
from typing import TYPE_CHECKING, Any

from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.findings.wording import counted
from pytest_compileguard.report import highlight, shown
from pytest_compileguard.report.artifact_text import contents
from pytest_compileguard.report.contract import Report
from pytest_compileguard.report.kernels import kernels
from pytest_compileguard.report.labels import finding_label, status_label
from pytest_compileguard.report.plain_text import plain
from pytest_compileguard.report.plots import HEIGHT, WIDTH, plots
from pytest_compileguard.report.saved_files import CURRENT_FOLDER, SavedFiles
from pytest_compileguard.report.story import story

if TYPE_CHECKING:
    from markupsafe import Markup

_MISSING = "needs jinja2: pip install 'pytest-compileguard[html]'"
_MOST_OPEN = 20
"""So many failing checks are shown unfolded."""


def missing() -> str | None:
    """Say what a page needs and is not installed."""
    try:
        import jinja2  # noqa: F401, PLC0415  # an extra
    except ImportError:
        return _MISSING
    return None


def page(report: Report, files: SavedFiles = CURRENT_FOLDER) -> str:
    """Make the page.

    Args:
        report: Of a run or from a file.
        files: Where what was saved is found.

    Raises:
        CompileGuardError: jinja2 is not installed.
    """
    if problem := missing():
        raise CompileGuardError(problem)
    import jinja2  # noqa: PLC0415  # an extra

    script, style = _asset("page.js"), _asset("page.css")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_plain,
    )
    environment.filters["highlighted"] = highlight.source_line
    environment.globals.update(
        shown=shown, story=story, plots=plots, kernels=kernels, width=WIDTH, height=HEIGHT
    )
    environment.globals.update(
        finding_label=finding_label, status_label=status_label, counted=counted
    )
    environment.globals.update(files=files, contents=contents, module=highlight.module)
    return environment.get_template("page.html.jinja").render(
        report=report,
        checks=shown.by_urgency(report.checks),
        counts=Counter(map(shown.verdict_word, report.checks)),
        opened=sum(check.fails for check in report.checks) <= _MOST_OPEN,
        script=_trusted(script),
        style=_trusted(style),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src '{_hash(script)}'",
    )


def _asset(name: str) -> str:
    return (resources.files(__package__) / "html" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """Give what the browser demands of the one script that it may run."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _trusted(text: str) -> Markup:
    from markupsafe import Markup  # noqa: PLC0415  # comes with jinja2

    return Markup(text)  # noqa: S704  # our own files


def _plain(value: Any) -> Any:
    """Drop what acts instead of showing, as direction overrides; escaping comes after."""
    if type(value) is str:
        return plain(value)
    return "" if value is None else value
