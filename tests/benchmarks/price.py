"""What a check costs against a script written by hand for the same compiles, calls and pairs.

A session of small checks runs as users run it, in a process of its own: alone, and with four
workers. ``price_by_hand.py`` then does the same work for the same targets: as many compiles,
calls, warm-ups and interleaved pairs, read check by check from the report of the first session.
Every run begins with empty caches. Sessions alone stand before and after the script, so that a
machine that changes its pace meets both; their difference is what equal runs differ by.

    python -m tests.benchmarks.price --checks 50 --json out.json
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from pytest_compileguard.environment import make_environment
from tests.benchmarks.price_targets import SUITE, targets_text

HERE = Path(__file__).parent
Checks = dict[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one process and its children took."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, kw_only=True)
class Session:
    """One run of pytest."""

    cost: Cost
    checks: Checks
    phases_s: dict[str, float]


class Place:
    """A folder with the targets, and an environment in which all caches are empty."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self.options = options
        self._runs = 0
        (folder / "price_made.py").write_text(targets_text(options.checks), encoding="utf-8")
        (folder / "test_price.py").write_text(SUITE, encoding="utf-8")
        for name in ("price_by_hand.py", "price_phases.py"):
            shutil.copy(HERE / name, folder)

    def run(self, *command: str, **variables: str) -> tuple[Cost, str]:
        self._runs += 1
        caches = self.folder / f"caches-{self._runs}"
        paths = (str(self.folder), str(HERE.parents[1]), os.environ.get("PYTHONPATH", ""))
        environ = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "TRITON_CACHE_DIR": str(caches / "triton"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PRICE_DEVICE": self.options.device,
            "PRICE_CHECKS": str(self.options.checks),
            **variables,
        }
        before_s, begin_s = _children_s(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, *command],
            env=environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        cost = Cost(wall_s=time.perf_counter() - begin_s, cpu_s=_children_s() - before_s)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
        return cost, done.stdout

    def session(self, *arguments: str, phases: bool = False) -> Session:
        """Run the suite under guard."""
        report = self.folder / "report.json"
        told = self.folder / "phases.json"
        plugins = ["xdist", "pytest_benchmark.plugin", "pytest_compileguard.plugin"]
        plugins += ["price_phases"] if phases else []
        cost, _ = self.run(
            *("-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(self.folder)),
            *(part for plugin in plugins for part in ("-p", plugin)),
            *("-p", "no:cacheprovider", f"--compileguard-json={report}"),
            f"--compileguard-backend={self.options.backend}",
            f"--compileguard-max-time-s={self.options.max_time_s}",
            *arguments,
            "test_price.py",
            PRICE_PHASES=str(told),
        )
        checks = {c["nodeid"]: c for c in json.loads(report.read_bytes())["checks"]}
        bad = [name for name, c in checks.items() if c["outcome"] == "failed"]
        if bad or len(checks) != self.options.checks:
            raise SystemExit(f"{len(checks)} checks, failed: {bad}")
        return Session(
            cost=cost,
            checks=checks,
            phases_s=json.loads(told.read_bytes()) if phases else {},
        )

    def by_hand(self, checks: Checks) -> tuple[Cost, dict[str, Any]]:
        """Do the same work plainly."""
        work = self.folder / "work.json"
        work.write_text(json.dumps([_work(*item) for item in checks.items()]), encoding="utf-8")
        options = self.options
        cost, told = self.run("price_by_hand.py", str(work), options.device, options.backend)
        return cost, json.loads(told)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _work(nodeid: str, check: dict[str, Any]) -> dict[str, int]:
    """Say how much one check did."""
    samples = check["samples"] or {}
    return {
        "number": int(nodeid.rpartition("[")[2].rstrip("]")),
        "warmup": samples.get("warmup", 0),
        "calls": samples.get("calls_per_block", 1),
        "pairs": len(samples.get("eager_s", ())),
        "device_pairs": len(samples.get("device_eager_s", ())),
    }


def differences(one: Checks, other: Checks, number: str = "speedup") -> dict[str, float] | None:
    """Compare the speedups of two sessions, check by check: absolute logarithms of ratios."""
    logs = [
        abs(math.log(check["observed"][number] / other[name]["observed"][number]))
        for name, check in one.items()
        if check["observed"][number] and other[name]["observed"][number]
    ]
    if not logs:
        return None
    return {"median": statistics.median(logs), "worst": max(logs), "checks": len(logs)}


def measured(place: Place) -> dict[str, Any]:
    """Make all runs; what each took is told at once, as all take minutes."""
    first = place.session()
    _tell("alone", first.cost)
    script, told = place.by_hand(first.checks)
    _tell("by hand", script)
    second = place.session(phases=True)
    _tell("alone", second.cost)
    workers = place.session(f"-n{place.options.workers}")
    _tell("with workers", workers.cost)
    alone = [first.cost, second.cost]
    wall_s, cpu_s = (
        statistics.mean(getattr(c, name) for c in alone) for name in ("wall_s", "cpu_s")
    )
    runs = {"alone": alone, "by hand": [script], f"{place.options.workers} workers": [workers.cost]}
    clocks = ("speedup", "device_speedup")
    return {
        "runs": {name: [_rounded(cost) for cost in costs] for name, costs in runs.items()},
        "wall_ratio": wall_s / script.wall_s,
        "cpu_ratio": cpu_s / script.cpu_s,
        "workers_wall_ratio": workers.cost.wall_s / script.wall_s,
        "log_ratio_of_speedups": {
            "alone, alone": {c: differences(first.checks, second.checks, c) for c in clocks},
            "alone, workers": {c: differences(first.checks, workers.checks, c) for c in clocks},
        },
        "phases_s": second.phases_s,
        "by_hand_s": told["parts_s"],
        "pairs": sum(_work(*item)["pairs"] for item in first.checks.items()),
        "device_pairs": sum(_work(*item)["device_pairs"] for item in first.checks.items()),
    }


def _tell(name: str, cost: Cost) -> None:
    sys.stderr.write(f"{name}: {cost.wall_s:.1f} s, of processors {cost.cpu_s:.1f} s\n")


def _rounded(cost: Cost) -> dict[str, float]:
    return {"wall_s": round(cost.wall_s, 2), "cpu_s": round(cost.cpu_s, 2)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    found = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=found)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--checks", type=int, default=50)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--max-time-s", type=float, default=0.5, help="budget of timing a check")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    options = parse()
    # What else runs decides what the wall clock of these processes is worth.
    load_average = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        numbers = measured(Place(Path(folder), options))
    results = {
        "command": " ".join(["python -m tests.benchmarks.price", *sys.argv[1:]]),
        "environment": msgspec.to_builtins(make_environment(options.device)),
        "backend": options.backend,
        "checks": options.checks,
        "max_time_s": options.max_time_s,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "load_average": load_average,
        **numbers,
    }
    text = json.dumps(results, indent=1)
    sys.stdout.write(text + "\n")
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
