"""Which machine and versions this is: the keys under which results may be compared."""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

from pytest_compileguard import __version__
from pytest_compileguard.observation import Record


class Environment(Record):
    """Device and versions of a run. ``None``: not there, or not known."""

    device_type: str
    """``cuda`` or ``cpu``: the device that the target ran on."""
    device_name: str
    """Model of the GPU, or of the processor."""
    device_count: int
    torch: str
    triton: str | None
    cuda: str | None
    driver: str | None
    python: str
    plugin: str
    platform: str
    cpu_count: int

    @property
    def torch_minor(self) -> str:
        """Major and minor version of torch, for example ``2.13``: the key of stored facts."""
        return ".".join(self.torch.split(".")[:2])

    @property
    def device_slug(self) -> str:
        """A file name for this device model: the key of stored timings."""
        name = self.device_name
        if self.device_type == "cpu":
            name = f"cpu-{name}-{self.cpu_count}-cores"
        return slug(name)


def slug(text: str) -> str:
    """Reduce any text to lower-case letters, digits and single dashes, at most 80 characters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80].strip("-") or "unknown"


def make_environment(device: str) -> Environment:
    """Read versions and device. Imports torch; call it only once a check has run.

    Args:
        device: ``cpu``, or ``cuda`` with an index; without one, the current GPU.
    """
    import torch  # never at plugin load

    device_type = device.partition(":")[0]
    cuda = device_type == "cuda"
    return Environment(
        device_type=device_type,
        device_name=torch.cuda.get_device_name(device) if cuda else _processor(),
        device_count=torch.cuda.device_count() if cuda else 1,
        torch=str(torch.__version__),
        triton=_version("triton"),
        cuda=torch.version.cuda if cuda else None,
        driver=_driver() if cuda else None,
        python=platform.python_version(),
        plugin=__version__,
        platform=f"{sys.platform}-{platform.machine()}",
        cpu_count=os.cpu_count() or 1,
    )


@functools.cache
def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@functools.cache  # the file has some thousand lines on a large machine
def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


@functools.cache
def _driver() -> str | None:
    """Ask the driver's version through nvidia-ml-py, if the extra ``gpu`` is installed."""
    try:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        try:
            version = pynvml.nvmlSystemGetDriverVersion()
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None
    return version.decode() if isinstance(version, bytes) else str(version)
