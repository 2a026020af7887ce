"""Whoever installs the plugin pays for torch only in runs that check something."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Runs pytest in a process of its own and tells, once it is over, whether torch came in.
PROBE = """
import sys
import pytest
code = pytest.main(sys.argv[1:])
print("plugin loaded:", "pytest_compileguard.plugin" in sys.modules)
print("torch loaded:", "torch" in sys.modules)
sys.exit(code)
"""

UNMARKED = "def test_plain(): assert 1 + 1 == 2\n"
MARKED = """
import pytest

@pytest.mark.compile_check(backend="eager")
def test_checked(compileguard):
    import torch
    compileguard(torch.sin)(torch.ones(3))
"""


def probe(folder: Path, *args: str) -> str:
    """Run pytest in ``folder``; give what it printed."""
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROBE, "-p", "no:cacheprovider", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "plugin loaded: True" in done.stdout
    return done.stdout


@pytest.mark.parametrize("option", ("--help", "--markers", "--fixtures"))
def test_asking_pytest_does_not_load_torch(tmp_path: Path, option: str) -> None:
    assert "torch loaded: False" in probe(tmp_path, option)


def test_suite_without_checks_does_not_load_torch(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(UNMARKED, encoding="utf-8")

    output = probe(tmp_path)

    assert "1 passed" in output
    assert "torch loaded: False" in output


def test_suite_with_a_check_loads_torch(tmp_path: Path) -> None:
    """Without this the tests above could not fail."""
    (tmp_path / "test_checked.py").write_text(MARKED, encoding="utf-8")

    assert "torch loaded: True" in probe(tmp_path)
