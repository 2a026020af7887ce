"""Gives each worker of pytest-xdist one GPU of those that the run was given.

``CUDA_VISIBLE_DEVICES`` is read once, by the driver, when CUDA is initialised. So it is set before
any conftest runs, and not at all where that is too late. Doing it twice changes nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import MutableMapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from pytest_compileguard.errors import OptionError
from pytest_compileguard.timing.gpu_state import GpuUnreadError, gpu_count

OPTION = "--compileguard-gpus=auto"
VISIBLE = "CUDA_VISIBLE_DEVICES"
_WORKER = "PYTEST_XDIST_WORKER"
_DRIVER = Path("/proc/driver/nvidia/gpus")
_OTHER_DRIVER = Path("/dev/dxg")
"""That of the Windows Subsystem for Linux, which lists nothing."""
_DEVICE = re.compile(r"\d+|(GPU|MIG)-\S+")


def pin(environ: MutableMapping[str, str]) -> None:
    """Let worker number N see the N-th GPU only, beginning anew where there are fewer GPUs.

    Args:
        environ: Of this process. Without a worker's name in it, nothing is done.

    Raises:
        OptionError: The GPUs or the worker can't be counted, or CUDA is initialised already.
    """
    worker = environ.get(_WORKER)
    if worker is None:
        return
    gpus = _listed(environ[VISIBLE]) if VISIBLE in environ else _counted()
    if not gpus:
        return
    chosen = gpus[_number(worker) % len(gpus)]
    if environ.get(VISIBLE) == chosen:
        return
    if _is_initialised():
        raise OptionError(
            f"{OPTION}: CUDA is initialised already in worker {worker}, so {VISIBLE} can't choose "
            "a GPU any more; let no plugin use CUDA while it is loaded"
        )
    environ[VISIBLE] = chosen


def _listed(value: str) -> list[str]:
    """Read the variable as the driver does: up to the first entry that is no device."""
    entries = (entry.strip() for entry in value.split(","))
    return list(takewhile(_DEVICE.fullmatch, entries))


def _counted() -> list[str]:
    try:
        return [str(index) for index in range(gpu_count())]
    except GpuUnreadError as error:
        reason = error
    if _DRIVER.is_dir():
        return [str(index) for index in range(len(list(_DRIVER.iterdir())))]
    if sys.platform == "linux" and not _OTHER_DRIVER.exists():
        return []  # without a driver there is no GPU either
    raise OptionError(
        f"{OPTION}: how many GPUs there are is not known ({reason}); name them by {VISIBLE}, "
        "empty if there is none"
    )


def _number(worker: str) -> int:
    if match := re.fullmatch(r"gw(\d+)", worker):
        return int(match[1])
    raise OptionError(
        f"{OPTION}: worker {worker!r} has no number; leave out id= where workers are started, "
        "or leave out this option"
    )


def _is_initialised() -> bool:
    """Whether torch holds a GPU in this process; it is not loaded to find out."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())
