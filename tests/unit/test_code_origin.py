"""Whose code a file is, and under which names it is imported."""

from __future__ import annotations

import json.decoder
from pathlib import Path

import pytest

from pytest_compileguard.allowance import allowed_sites
from pytest_compileguard.code_origin import module_names
from tests.records import make_site


def test_a_module_has_the_name_that_it_is_imported_by() -> None:
    assert "json.decoder" in module_names(str(json.decoder.__file__))


def test_a_package_above_all_code_allows_nothing_by_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout in a folder called ``app`` holds more than the package ``app``."""
    root = tmp_path / "app"
    monkeypatch.syspath_prepend(root)
    site = make_site(file=str(root / "models" / "encoder.py"))

    for allowance, allows in (("app", False), ("models", True), ("models.encoder", True)):
        (marked,), unused = allowed_sites([site], [allowance])
        assert marked.allowed is allows
        assert unused == (() if allows else (allowance,))


def test_a_folder_called_as_torch_is_not_torch(tmp_path: Path) -> None:
    site = make_site(file=str(tmp_path / "torch" / "optim" / "mine.py"))
    assert not allowed_sites([site], [])[0][0].allowed
