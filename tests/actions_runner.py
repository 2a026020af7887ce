"""Runs composite actions and the commands of workflows here, as a runner of GitHub would.

It knows the few expressions that this repository uses and refuses all others. Steps that
use another action are not run but told.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_TERM = re.compile(r"'(?P<text>[^']*)'|(?P<name>[\w.-]+)")
SHELL = (shutil.which("bash") or "/bin/bash", "--noprofile", "--norc", "-e", "-o", "pipefail")


def load(file: Path) -> dict[Any, Any]:
    """Read a workflow or an action; YAML takes the key ``on`` for true."""
    loaded: dict[Any, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return loaded


@dataclass
class Finished:
    """A finished action."""

    code: int
    output: str
    outputs: dict[str, str]
    used: list[tuple[str, dict[str, str]]]
    """Other actions that were called, with their inputs."""


@dataclass
class _Context:
    inputs: dict[str, str]
    steps: dict[str, dict[str, str]] = field(default_factory=dict)

    def value(self, name: str) -> str:
        match name.split("."):
            case ["inputs", key]:
                return self.inputs[key]
            case ["steps", step, "outputs", key]:
                return self.steps.get(step, {}).get(key, "")
        raise LookupError(f"this runner does not know {name!r}")

    def fill(self, text: str) -> str:
        return _EXPRESSION.sub(lambda found: self.value(found[1]), text)

    def holds(self, condition: str) -> bool:
        """Judge ``a == 'b' && c != ''``."""
        return all(self._compares(part) for part in condition.split("&&"))

    def _compares(self, comparison: str) -> bool:
        left, equal, right = re.split(r"\s*(==|!=)\s*", comparison.strip())
        return (self._term(left) == self._term(right)) == (equal == "==")

    def _term(self, text: str) -> str:
        found = _TERM.fullmatch(text)
        assert found is not None, text
        return self.value(found["name"]) if found["name"] else found["text"]


def run_action(folder: Path, inputs: Mapping[str, str], *, cwd: Path, temporary: Path) -> Finished:
    """Run a composite action to its end, or to the first step that fails."""
    action = load(folder / "action.yml")
    declared = {name: str(spec.get("default", "")) for name, spec in action["inputs"].items()}
    assert set(inputs) <= set(declared), set(inputs) - set(declared)
    context = _Context({**declared, **inputs})
    finished = Finished(code=0, output="", outputs={}, used=[])
    for step in action["runs"]["steps"]:
        if finished.code == 0 and context.holds(step.get("if", "'' == ''")):
            _step(step, context, finished, cwd=cwd, temporary=temporary)
    finished.outputs = {
        name: context.fill(spec["value"]) for name, spec in action["outputs"].items()
    }
    return finished


def _step(
    step: dict[str, Any], context: _Context, finished: Finished, *, cwd: Path, temporary: Path
) -> None:
    if "uses" in step:
        given = {name: context.fill(str(value)) for name, value in step["with"].items()}
        finished.used.append((step["uses"], given))
        return
    assert step["shell"] == "bash"
    variables = {name: context.fill(str(value)) for name, value in step.get("env", {}).items()}
    # As GitHub does: expressions in the script itself are filled in before it runs.
    done, written = run_script(
        context.fill(step["run"]), cwd=cwd, temporary=temporary, variables=variables
    )
    finished.code = done.returncode
    finished.output += done.stdout
    if "id" in step:
        context.steps[step["id"]] = written


def run_script(
    script: str, *, cwd: Path, temporary: Path, variables: Mapping[str, str]
) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Run one ``run:`` block; give what it printed, and the outputs that it set."""
    temporary.mkdir(exist_ok=True)
    file, outputs = temporary / "script.sh", temporary / "outputs"
    file.write_text(script, encoding="utf-8")
    outputs.write_text("", encoding="utf-8")
    done = subprocess.run(
        [*SHELL, str(file)],
        cwd=cwd,
        env={
            "GITHUB_STEP_SUMMARY": str(temporary / "summary.md"),
            **os.environ,
            "GITHUB_OUTPUT": str(outputs),
            "RUNNER_TEMP": str(temporary),
            **variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    pairs = (line.partition("=") for line in outputs.read_text(encoding="utf-8").splitlines())
    return done, {name: value for name, _, value in pairs}


def scripts(file: Path) -> Iterator[tuple[str, str]]:
    """Give each ``run:`` block of a workflow or an action, with its place."""
    loaded = load(file)
    jobs = {"action": loaded["runs"]} if "runs" in loaded else loaded["jobs"]
    for job, content in jobs.items():
        for number, step in enumerate(content["steps"]):
            if "run" in step:
                yield f"{file.stem}-{job}-{number}", step["run"]
