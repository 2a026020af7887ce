"""The report as one page of HTML: it opens offline, and nothing in it can run but its script."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.findings.wording import counted
from pytest_compileguard.observation import Record
from pytest_compileguard.report import shown
from pytest_compileguard.report.contract import CheckReport, Report
from pytest_compileguard.report.labels import finding_label, status_label
from pytest_compileguard.report.plain_text import plain
from pytest_compileguard.report.plots import HEIGHT, WIDTH, plots
from pytest_compileguard.report.story import story

if TYPE_CHECKING:
    from markupsafe import Markup

_MISSING = "needs jinja2: pip install 'pytest-compileguard[html]'"
_FUSED = re.compile(r"^(?P<kind>triton_[a-z]+|cpp)_fused_(?P<ops>.+)_\d+$")
_MOST_OPEN = 20
"""So many failing checks are shown unfolded."""
_KINDS = {
    "triton_poi": "pointwise",
    "triton_per": "reduction kept in registers",
    "triton_red": "reduction in a loop",
    "triton_tem": "template",
    "cpp": "C++",
}


class Kernel(Record, frozen=True):
    """A generated kernel, and what its name tells."""

    name: str
    kind: str
    ops: str


def missing() -> str | None:
    """Say what a page needs and is not installed."""
    try:
        import jinja2  # noqa: F401, PLC0415  # an extra
    except ImportError:
        return _MISSING
    return None


def page(report: Report) -> str:
    """Make the page.

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
    environment.filters["highlighted"] = _highlighted
    environment.globals.update(
        shown=shown, story=story, plots=plots, kernels=_kernels, width=WIDTH, height=HEIGHT
    )
    environment.globals.update(
        finding_label=finding_label, status_label=status_label, counted=counted
    )
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


def _highlighted(source: str) -> Any:
    """Colour a line of Python, if pygments is there; it escapes what it is given."""
    text = plain(source)
    try:
        from pygments import highlight  # noqa: PLC0415  # comes with newer pytest
        from pygments.formatters import HtmlFormatter  # noqa: PLC0415
        from pygments.lexers import PythonLexer  # noqa: PLC0415
    except ImportError:
        return text
    formatter: Any = HtmlFormatter(nowrap=True, classprefix="py-")
    return _trusted(highlight(text, PythonLexer(stripnl=False), formatter).rstrip("\n"))


def _kernels(check: CheckReport) -> Sequence[Kernel]:
    names = check.inductor.kernel_names if check.inductor else ()
    return [_kernel(name) for name in names]


def _kernel(name: str) -> Kernel:
    found = _FUSED.match(name)
    if found is None:
        return Kernel(name=name, kind="", ops="")
    # Names of operators hold underscores too, so nothing tells where one ends.
    ops = " ".join(found["ops"].replace("_", " ").split())
    return Kernel(name=name, kind=_KINDS.get(found["kind"], found["kind"]), ops=ops)
