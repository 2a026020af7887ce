"""Words what was saved of a check, for a failure, a summary and a page."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pytest_compileguard.finding import Artifacts
from pytest_compileguard.findings.wording import counted

_NOUNS: dict[Literal["graph", "guards", "code"], tuple[str, str]] = {
    "graph": ("graph", "graphs"),
    "guards": ("set of guards", "sets of guards"),
    "code": ("generated module", "generated modules"),
}


def artifact_lines(saved: Artifacts | None) -> list[str]:
    """Say where it stands, and what could not be made."""
    if saved is None:
        return []
    lines = [f"artefacts: {saved.folder} ({contents(saved)})"] if saved.trace else []
    lines += [f"tlparse report: {saved.page}"] if saved.page else []
    return [*lines, *(f"artefacts: {problem}" for problem in saved.problems)]


def contents(saved: Artifacts) -> str:
    """Say what there is: ``trace, 2 graphs, 1 generated module``."""
    count = Counter(text.kind for text in saved.texts)
    found = [counted(count[kind], *nouns) for kind, nouns in _NOUNS.items() if count[kind]]
    return ", ".join(["trace", *found])
