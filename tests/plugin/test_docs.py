"""The pages tell the truth: each block runs, and what they show is what is printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs_pages import PAGES, ROOT, Block, blocks, replaced
from tests.golden_text import UPDATE, masked

FOLDER = ROOT / ".github" / "docs"
_SHOWN = re.compile(
    r"^=+ FAILURES =+\n(.*?)(?=^=+ )|^=+ compileguard =+\n\n?(.*?)(?=^=+ )",
    re.MULTILINE | re.DOTALL,
)
# Below the two times of a speedup stands what the machine did meanwhile: never twice the same.
_TOLD_OF_TIMING = re.compile(r"^( {6}eager \S+ ms, compiled .*\n)(?: {6}.*\n)+", re.MULTILINE)
_CAPTURED = re.compile(r"^-+ Captured .*?(?=^[_=]{3,}|\Z)", re.MULTILINE | re.DOTALL)


def shown(output: str) -> str:
    """Take the part of a run that a page shows: its failures, or else the summary."""
    found = [match[1] or match[2] for match in _SHOWN.finditer(output)]
    return _CAPTURED.sub("", found[0]).rstrip("\n") + "\n"


@pytest.mark.parametrize("name", ("adopting", "shapes-and-modes"))
def test_a_page_can_be_followed(
    pytester: pytest.Pytester, compiler_loaded: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Files are written and commands run in the order of the page."""
    del compiler_loaded
    monkeypatch.setenv("COLUMNS", "80")
    pytester.syspathinsert()
    page = FOLDER / f"{name}.md"
    output = ""
    for number, block in enumerate(blocks(page)):
        if block.reason is not None:
            continue
        if block.kind == "sh":
            output = run(pytester, block.text)
        elif block.kind == "text":
            assert_shown(page, number, output)
        else:
            assert block.name is not None, block.text
            (pytester.path / block.name).write_text(block.text, encoding="utf-8")


def run(pytester: pytest.Pytester, text: str) -> str:
    program, *arguments = shlex.split(text)
    assert program == "pytest"
    options = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-W", "ignore")
    return str(pytester.runpytest_inprocess(*arguments, *options).stdout)


def assert_shown(page: Path, number: int, output: str) -> None:
    block = list(blocks(page))[number]
    if os.environ.get(UPDATE):
        replaced(page, block, shown(output))
        block = list(blocks(page))[number]
    # Numbers of a timing differ from run to run, and columns follow them.
    assert loose(shown(output)) == loose(block.text), f"if wanted: {UPDATE}=1 pytest"


def loose(text: str) -> str:
    without_device = re.sub(r"none for [^,\n]+, torch", "none for DEVICE, torch", masked(text))
    without_numbers = re.sub(r"\d+\.\d+|\d+ pairs", "N", without_device)
    return re.sub(r" +", " ", _TOLD_OF_TIMING.sub(r"\1", without_numbers))


def test_what_the_machine_did_is_not_held_against_a_page() -> None:
    told = "      some blocks of eager calls take much longer than most: by total time 0.04x\n"
    times = "      eager 0.012 ms, compiled 0.614 ms, 132 pairs\n"
    assert loose(f"{times}{told}{told}passed: 1\n") == loose(f"{times}passed: 1\n")
    assert loose(f"{times}passed: 1\n") != loose("passed: 1\n")


def test_the_page_shows_three_causes() -> None:
    """What the first run of the adopting page is for: a reader finds each cause in it."""
    (first, *_) = [block for block in blocks(FOLDER / "adopting.md") if block.kind == "text"]
    for cause in (
        'shapes.py:13 in forward    print("hidden", tuple(hidden.shape))',
        "dynamic=False specialises every size",
        "speedup        observed",
    ):
        assert cause in first.text


def test_counting_from_the_json_report(tmp_path: Path) -> None:
    (block,) = [b for b in blocks(FOLDER / "ci.md") if b.kind == "python"]
    check: dict[str, Any] = {"nodeid": "t.py::test_a", "fails": True}
    check["graph_breaks"] = [{"file": "a.py", "line": 3, "id": "GB0059"}]
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"checks": [check]}), encoding="utf-8")
    command = [sys.executable, "-", str(report)]
    done = subprocess.run(command, input=block.text, capture_output=True, text=True, check=True)
    assert done.stdout == "1 of 1 checks fail\nt.py::test_a a.py 3 GB0059\n"


def commands(block: Block) -> list[str]:
    if block.kind == "groovy":
        return re.findall(r"sh '([^']*)'", block.text)
    loaded = yaml.safe_load(block.text)
    return [line for job in loaded.values() for line in job["script"]]


@pytest.mark.parametrize("name", (".gitlab-ci.yml", "Jenkinsfile"))
def test_recipes_of_other_systems_run(tmp_path: Path, name: str) -> None:
    """Each command runs in a shell; installing is only told, pytest is the real one."""
    (block,) = [b for b in blocks(FOLDER / "ci.md") if b.name == name]
    (tmp_path / "test_a.py").write_text("def test_a(): pass\n", encoding="utf-8")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    real = f'exec "{sys.executable}" "$@"'
    python.write_text(
        f'#!/bin/bash\ncase "$*" in "-m pip "*|"-m venv "*) echo "$@" ;; *) {real} ;; esac\n',
        encoding="utf-8",
    )
    python.chmod(0o755)
    for link in ("python", "python3"):
        (tmp_path / link).symlink_to(python)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    found = commands(block)
    assert len(found) >= 2
    for line in found:
        subprocess.run(["bash", "-ec", line], cwd=tmp_path, env=environment, check=True)  # noqa: S607
    assert (tmp_path / "junit.xml").exists()
    assert (tmp_path / "compileguard.html").exists()


def test_every_block_is_looked_at() -> None:
    """A block of a kind that no test knows would be a promise that nobody holds."""
    for page in PAGES:
        for block in blocks(page):
            known = block.kind in ("sh", "text") or block.name is not None or block.reason
            assert known, (page.name, block.text)


def test_switches_of_torch_exist() -> None:
    from torch._logging._internal import log_registry  # noqa: PLC0415

    text = (FOLDER / "reading.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `TORCH_LOGS=")]
    names = [name for row in rows for name in re.findall(r"(?:TORCH_LOGS=|, `)(\w+)`", row)]
    assert len(names) >= 7
    for name in names:
        assert name in log_registry.log_alias_to_log_qnames or name in log_registry.artifact_names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target
