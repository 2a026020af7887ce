"""The public promise: what is not listed here may change in any release."""

from __future__ import annotations

import inspect
from importlib import metadata

import pytest_compileguard
from pytest_compileguard import spec

PUBLIC = ["CompileGuard", "GuardedCallable", "GuardedTraining", "compile_check"]


def test_names() -> None:
    assert sorted(pytest_compileguard.__all__) == PUBLIC


def test_every_name_exists_and_says_what_it_is() -> None:
    for name in PUBLIC:
        assert inspect.getdoc(getattr(pytest_compileguard, name)), name


def test_limits() -> None:
    assert spec.NAMES == (
        "allow_graph_breaks",
        "atol",
        "backend",
        "cache",
        "clock",
        "dynamic",
        "fullgraph",
        "max_compile_time_s",
        "max_cudagraph_skips",
        "max_graph_breaks",
        "max_kernels",
        "max_kernels_per_call",
        "max_peak_memory_ratio",
        "max_recompiles",
        "max_time_s",
        "min_speedup",
        "mode",
        "modes",
        "options",
        "rtol",
        "setup",
        "warmup",
    )


def test_version_is_the_installed_one() -> None:
    assert metadata.version("pytest-compileguard") == pytest_compileguard.__version__


def test_pytest_finds_the_plugin() -> None:
    (entry,) = metadata.entry_points(group="pytest11", name="compileguard")
    assert entry.value == "pytest_compileguard.plugin"
