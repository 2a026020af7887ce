"""Size and load time of the report as a page, in a headless Chromium.

Loading is what the browser itself counts, from the start of the navigation to the end of
the load event. Absolute times only describe the machine.

    python -m tests.benchmarks.report_page --json tests/benchmarks/results/report_page.json
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from pytest_compileguard.report.page import page
from tests.browser import Page, opened
from tests.unit.test_page import many, report_of

_LOADS = 5
_LOADED_MS = "performance.getEntriesByType('navigation')[0].loadEventEnd"
_FILTER_MS = """
(() => {
  const search = document.getElementById("search");
  const start = performance.now();
  search.value = "_99";
  search.dispatchEvent(new Event("input"));
  document.body.offsetHeight;
  return performance.now() - start;
})()
"""


def measured(tab: Page, folder: Path, checks: int) -> dict[str, Any]:
    report = report_of(*many(checks))
    start_s = time.monotonic()
    text = page(report)
    made_s = time.monotonic() - start_s
    file = folder / f"{checks}.html"
    file.write_text(text, encoding="utf-8")
    loads_ms = []
    for _ in range(_LOADS):
        tab.load(file)
        while not (loaded_ms := tab.js(_LOADED_MS)):
            time.sleep(0.05)
        loads_ms.append(loaded_ms)
    return {
        "checks": checks,
        "bytes": file.stat().st_size,
        "made_s": round(made_s, 2),
        "load_ms": round(statistics.median(loads_ms)),
        "filter_ms": round(tab.js(_FILTER_MS)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    path = parser.parse_args().json
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "profile") as tab:
        browser = tab.command("Browser.getVersion")["product"]
        rows = [measured(tab, Path(folder), checks) for checks in (1, 100, 1000)]
    result = {"browser": browser, "python": platform.python_version(), "pages": rows}
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
