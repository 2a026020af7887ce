"""The README tells the truth: its tables follow the code, its blocks run, its output is real."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.readme_tables import tables

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(tables()))
def test_tables_follow_the_code(name: str) -> None:
    found = re.search(rf"<!-- table: {name} -->\n(.*?)\n<!-- end -->", README, re.DOTALL)
    assert found is not None
    assert found[1] == tables()[name], f"README.md: make the table {name} anew"


def test_there_are_exactly_two_set_up_commands() -> None:
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv")]
    assert len(commands) == 2


def test_the_first_test_passes(pytester: pytest.Pytester) -> None:
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", README, re.DOTALL)
    assert [name for name, _ in blocks] == ["shop.py", "test_shop.py"]
    for name, code in blocks:
        (pytester.path / name).write_text(code, encoding="utf-8")
    options = (
        "--compileguard-backend",
        "aot_eager",
        "--compileguard-no-timing",
        "-p",
        "no:asyncio",
    )
    result = pytester.runpytest_subprocess(*options, "--compileguard-update-baseline")
    result.assert_outcomes(passed=1)
    assert (pytester.path / "__compileguard__" / "test_shop.json").exists()
