"""What baselines cost at scale: loading, looking up and updating up to 10,000 entries.

Run from the root of a checkout, on a quiet machine:

    python tests/benchmarks/baseline_scale.py > tests/benchmarks/results/baseline_scale.json

Each check has two entries, facts and a timing. Each size runs in a process of its own, with a
hundred checks a module and all modules in one folder, so that all timings of the device are in
one file: the worst layout there is.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[2]
SIZES = (1_250, 2_500, 5_000, 10_000)
CHECKS_A_MODULE = 100
SETTLED_S = 2.1  # a file that was written just now is read each time


def seconds(call: Callable[[], object]) -> dict[str, float]:
    """Time one call, on the wall and on the processor, which other processes slow less."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"wall": round(wall, 3), "cpu": round(cpu, 3)}


def measure(size: int) -> dict[str, Any]:
    """Measure one size in this process."""
    from pytest_compileguard.baseline.look_up import look_up  # noqa: PLC0415  # after sys.path is set
    from pytest_compileguard.baseline.recording import Wish, record  # noqa: PLC0415
    from pytest_compileguard.baseline.store import Store  # noqa: PLC0415
    from tests.records import make_environment  # noqa: PLC0415
    from tests.stored import (  # noqa: PLC0415
        make_compilation,
        make_site,
        make_speed,
        make_verdict,
    )

    gpu = make_environment()
    sites = make_site(), make_site(line=50)

    def verdicts(breaks: int, speedup: float) -> list[Any]:
        seen, speed = make_compilation(*sites[:breaks]), make_speed(speedup)
        return [
            make_verdict(
                f"tests/test_{n // CHECKS_A_MODULE}.py::test_it[{n}]",
                seen=seen,
                speed=speed,
                environment=gpu,
            )
            for n in range(size // 2)
        ]

    first, second = verdicts(1, 1.3), verdicts(2, 3.0)
    one = second[:1]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "tests").mkdir()
        store = Store(root)
        found: dict[str, Any] = {"entries": size}
        found["record_new_s"] = seconds(lambda: record(store, first))
        found["record_equal_s"] = seconds(lambda: record(store, first))
        found["update_one_s"] = seconds(lambda: record(store, one, Wish()))
        found["update_all_s"] = seconds(lambda: record(store, second))
        time.sleep(SETTLED_S)
        modules = sorted({verdict.nodeid.partition("::")[0] for verdict in first})
        found["load_s"] = seconds(lambda: deque(map(store.verify, modules), maxlen=0))
        found["look_up_s"] = seconds(
            lambda: [look_up(store, nodeid=v.nodeid, name=v.name, environment=gpu) for v in first]
        )
        found["bytes_on_disk"] = sum(p.stat().st_size for p in root.rglob("*.json"))
    found["peak_memory_mb"] = _peak_memory_mb()
    return found


def _peak_memory_mb() -> int:
    import resource  # noqa: PLC0415  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    if len(sys.argv) > 1:
        sys.stdout.write(json.dumps(measure(int(sys.argv[1]))))
        return
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    sizes = [
        json.loads(
            subprocess.run(
                [sys.executable, __file__, str(size)],
                check=True,
                capture_output=True,
                env=environment,
            ).stdout
        )
        for size in SIZES
    ]
    result = {
        "command": "python tests/benchmarks/baseline_scale.py",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "processor": _processor(),
        "load_average": round(os.getloadavg()[0], 1),
        "versions": {
            "python": platform.python_version(),
            "msgspec": msgspec.__version__,
            "filelock": metadata.version("filelock"),
        },
        "sizes": sizes,
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


def _processor() -> str:
    from pytest_compileguard.environment import _processor as name  # noqa: PLC0415

    return name()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
