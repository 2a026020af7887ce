"""Compares what a user sees with a file of a real run; what differs between runs is masked."""

from __future__ import annotations

import os
import re
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"
UPDATE = "COMPILEGUARD_UPDATE_GOLDEN"
_MASKS = (
    (re.compile(r"\b\d+\.\d+ s\b"), "N.N s"),
    (re.compile(r"\bin \d+\.\d+s\b"), "in N.NNs"),
    # Torch words its advice anew in each version; that there is some is what counts.
    (re.compile(r"(\(GB\d{4}\)): [^\n\"]*"), r"\1: ADVICE"),
    (re.compile(r"(?<=<code>)torch [^<]*"), "ENVIRONMENT"),
    (re.compile(r"torch \d+\.\d+"), "torch X.Y"),
    (re.compile(r"\d+\.\d+\.\d+\+?\w*"), "X.Y.Z"),
)


def masked(text: str) -> str:
    """Mask times, versions and torch's own advice, and the blanks that they leave."""
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def assert_golden(name: str, text: str) -> None:
    """Hold a text against its file; the variable of ``UPDATE`` writes the file anew."""
    file = FOLDER / name
    if os.environ.get(UPDATE):
        file.write_text(masked(text), encoding="utf-8")
    assert masked(text) == file.read_text(encoding="utf-8"), f"if wanted: {UPDATE}=1 pytest"
