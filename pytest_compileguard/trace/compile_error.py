"""Words an error of the compiled call: what, where in the user's code, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator

_NO_COMPILER = (
    "install a C++ compiler (the variable CXX names it), or check facts and parity with "
    'backend="aot_eager"'
)
_USER_FRAME = re.compile(r'^\s*File "(.+?)", line (\d+), in (\S+)$', re.MULTILINE)


def explain_error(error: BaseException) -> tuple[str, str]:
    """Word an error of the compiled call, and the remedy if one is known."""
    names = {type(link).__name__ for link in _chain(error)}
    text = _first_lines(str(error))
    if "InvalidCxxCompiler" in names or "InvalidCxxCompiler" in str(error):
        return "no working C++ compiler was found, inductor needs one", _NO_COMPILER
    if "OutOfMemoryError" in names:
        return f"out of device memory in the shadow call: {text}", "use smaller inputs in this test"
    place = _USER_FRAME.findall(str(error).partition("from user code:")[2])
    where = f"\nat {place[-1][0]}:{place[-1][1]} in {place[-1][2]}" if place else ""
    return f"{type(error).__name__}: {text}{where}", ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what caused it, each once."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _first_lines(text: str, count: int = 6) -> str:
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip()]
    return "\n".join(lines[:count])
