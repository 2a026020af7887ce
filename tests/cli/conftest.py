"""Trees of baselines for the command line, and the command itself."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_compileguard.baseline.recording import Wish, record
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.cli import main
from pytest_compileguard.environment import Environment
from tests.records import make_environment
from tests.stored import CPU, make_compilation, make_site, make_speed, make_verdict

H200 = make_environment()
H100 = make_environment(device_name="NVIDIA H100")
NEWER = msgspec.structs.replace(CPU, torch="2.14.0+cpu")


@dataclass(frozen=True)
class Done:
    """What one call of the command gave."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Done]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Call the command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Done:
        try:
            code = main(arguments)
        except SystemExit as stop:  # of argparse
            code = int(stop.code or 0)
        seen = capsys.readouterr()
        return Done(code, seen.out, seen.err)

    return call


def record_in(
    root: Path,
    *tests: str,
    breaks: int = 0,
    environment: Environment = CPU,
    speedup: float | None = None,
    commit: str | None = None,
    **changes: Any,
) -> None:
    """Record checks as an update run in ``root`` would, and let their modules exist."""
    sites = [make_site(line=line) for line in range(1, breaks + 1)]
    for test in tests or ("tests/test_x.py::test_it",):
        module = root / test.partition("::")[0]
        module.parent.mkdir(parents=True, exist_ok=True)
        module.touch()
        verdict = make_verdict(
            test,
            seen=make_compilation(*sites, **changes),
            speed=None if speedup is None else make_speed(speedup),
            environment=environment,
        )
        record(Store(root), [verdict], Wish(commit=commit))


def git(root: Path, *arguments: str, check: bool = True) -> str:
    """Call git in a repository of somebody."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    who = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
    done = subprocess.run(
        ["git", "-C", str(root), *who, *arguments],  # noqa: S607
        check=check,
        capture_output=True,
        text=True,
    )
    return done.stdout
