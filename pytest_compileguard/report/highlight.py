"""Colours code for the page, if pygments is there; all text of others is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from pytest_compileguard.report.plain_text import plain, visible

if TYPE_CHECKING:
    from markupsafe import Markup

Language = Literal["python", "cpp"]
_LANGUAGES: dict[str, Language] = {".py": "python", ".cpp": "cpp"}
_KERNEL = re.compile(r"async_compile\.(?P<maker>\w+)\([^\n]*?r?'''\n(?P<code>.*?)'''", re.DOTALL)
"""The source of a kernel within a generated module of Python."""


def source_line(source: str) -> Any:
    """Colour a line of Python."""
    return _coloured(plain(source), "python")


def module(source: str, *, suffix: str = ".py") -> Any:
    """Colour generated code: a module of Python with kernels in it, or C++ alone."""
    from markupsafe import Markup, escape  # noqa: PLC0415  # comes with jinja2

    text = visible(source)
    if suffix not in _LANGUAGES:
        return escape(text)
    if _LANGUAGES[suffix] == "cpp":
        return _coloured(text, "cpp")
    return Markup("").join(_coloured(part, language) for part, language in _parts(text))


def _parts(text: str) -> Iterator[tuple[str, Language]]:
    """Take kernels out of the module around them: to Python, they are strings."""
    done = 0
    for found in _KERNEL.finditer(text):
        start, end = found.span("code")
        yield text[done:start], "python"
        yield text[start:end], "cpp" if found["maker"].startswith("cpp") else "python"
        done = end
    yield text[done:], "python"


def _coloured(text: str, language: Language) -> Markup:
    from markupsafe import Markup, escape  # noqa: PLC0415  # comes with jinja2

    try:
        from pygments import highlight  # noqa: PLC0415  # comes with newer pytest
        from pygments.formatters import HtmlFormatter  # noqa: PLC0415
        from pygments.lexers import CppLexer, PythonLexer  # noqa: PLC0415
    except ImportError:
        return escape(text)
    lexer: Any = CppLexer if language == "cpp" else PythonLexer
    formatter: Any = HtmlFormatter(nowrap=True, classprefix="py-")
    options = {"stripnl": False, "ensurenl": False}
    coloured: str = highlight(text, lexer(**options), formatter)
    # The formatter ends the last line, which may go on in the next part.
    return Markup(coloured if text.endswith("\n") else coloured.removesuffix("\n"))  # noqa: S704  # it escapes
