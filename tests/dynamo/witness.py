"""A plain script: runs call sequences under ``torch.compile``, and never imports the plugin.

Run as ``python -m tests.dynamo.witness OUT NAME...`` with ``TORCH_LOGS`` set. What torch logs
goes to standard error, a mark before each sequence; what a counting backend saw goes to OUT.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tests.dynamo.sequences import ROOT, sequences

MARK = "=== sequence"
_BREAK = re.compile(r"\[__graph_breaks\] Graph break.* in user code at (.+):(\d+)$", re.MULTILINE)
_RECOMPILE = re.compile(
    r"\[(\d+/\d+)\] \[__recompiles\] Recompiling function .+ in (.+):(\d+)\n"
    r".+triggered by the following guard failure\(s\):\n"
    r".+\[__recompiles\]     - \d+/\d+: (.+?)(?:\s{2,}# .*)?$",
    re.MULTILINE,
)


class Recompiled(NamedTuple):
    """One record of ``TORCH_LOGS=recompiles``."""

    compile_id: str
    file: str
    line: int
    guard: str


class Account(NamedTuple):
    """What was seen of one sequence without the plugin."""

    breaks: frozenset[tuple[str, int]]
    """File and line of all graph breaks."""
    recompiles: tuple[Recompiled, ...]
    graphs: int
    """Compiles for which the backend was given a graph."""
    eager: tuple[int, ...]
    """Calls, from 1 on, that ran no compiled graph."""


class Witness:
    """The script in a process of its own; it runs on while others do their part."""

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        self._names = names
        self._counted, self._log = folder / "counted.json", folder / "log.txt"
        with self._log.open("wb") as log, (folder / "output.txt").open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.dynamo.witness", str(self._counted), *names],
                env={**os.environ, "TORCH_LOGS": "graph_breaks,recompiles"},
                cwd=ROOT,
                stdout=output,
                stderr=log,
            )

    def accounts(self) -> dict[str, Account]:
        """Wait for it to be through, and read what it left."""
        code = self._process.wait(timeout=300)
        log = self._log.read_text(encoding="utf-8")
        assert code == 0, log[-4000:]
        counted = json.loads(self._counted.read_text(encoding="utf-8"))
        logs = dict(part.lstrip().split("\n", 1) for part in log.split(MARK)[1:])
        assert list(logs) == list(self._names)
        return {name: _read(logs[name], *counted[name]) for name in self._names}

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def _read(log: str, graphs: int, eager: list[int]) -> Account:
    recompiles = [
        Recompiled(compile_id, file, int(line), guard.strip())
        for compile_id, file, line, guard in _RECOMPILE.findall(log)
    ]
    assert len(recompiles) == log.count("Recompiling function"), log
    places = frozenset((file, int(line)) for file, line in _BREAK.findall(log))
    return Account(places, tuple(recompiles), graphs, tuple(eager))


class _Counting:
    """A backend that counts the compiles it is asked for, and notes when their code runs."""

    def __init__(self, backend: Any) -> None:
        known = isinstance(backend, str)
        self._compile = torch._dynamo.lookup_backend(backend) if known else backend
        self.compiles: set[str] = set()
        self.ran = False

    def __call__(self, graph: Any, inputs: Any) -> Any:
        # A compile that Dynamo starts anew asks again.
        self.compiles.add(str(torch._guards.CompileContext.current_compile_id()))
        compiled = self._compile(graph, inputs)

        def run(*arguments: Any) -> Any:
            self.ran = True
            return compiled(*arguments)

        return run


def _run(name: str) -> tuple[int, list[int]]:
    made = sequences()[name]()
    torch.compiler.reset()
    backend = _Counting(made.backend)
    compiled = torch.compile(made.target, backend=backend, **made.options)
    eager = []
    for index, arguments in enumerate(made.calls):
        made.before(index, made.target)
        backend.ran = False
        with made.around(index):
            compiled(*arguments)
        if not backend.ran:
            eager.append(index + 1)
    return len(backend.compiles), eager


def _main(out: str, *names: str) -> None:
    assert "pytest_compileguard" not in sys.modules
    counted = {}
    for name in names:
        sys.stderr.write(f"{MARK} {name}\n")
        counted[name] = _run(name)
    Path(out).write_text(json.dumps(counted), encoding="utf-8")


if __name__ == "__main__":
    _main(*sys.argv[1:])
