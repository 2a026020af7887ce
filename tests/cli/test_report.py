"""``compileguard report``: the forms of a report, made from its file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pytest_compileguard.cli import main
from pytest_compileguard.report.contract import read_report
from pytest_compileguard.report.document import document
from pytest_compileguard.report.markdown import markdown
from pytest_compileguard.report.page import page
from tests.unit import test_report as made
from tests.unit.test_page_code import report_with


@pytest.fixture
def report(tmp_path: Path) -> Path:
    file = tmp_path / "report.json"
    file.write_bytes(document(made.session(), rootpath=made.ROOT))
    return file


def test_it_is_what_a_run_would_write(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    html = report.with_suffix(".html")
    assert main(["report", str(report), "--format", "markdown", "--html", str(html)]) == 0
    assert capsys.readouterr().out == markdown(read_report(report.read_bytes()))
    assert html.read_text(encoding="utf-8") == page(read_report(report.read_bytes()))


def test_it_is_read_in_a_terminal_too(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(report)]) == 0
    said = capsys.readouterr().out
    assert "2 of 4 checks failed:" in said
    assert "    models/mlp.py:41 in forward    print(x.shape)" in said or "print(x.shape)" in said
    assert "not checked in 1 check: parity it was never called" in said


@pytest.mark.parametrize("content", ("", "{}", None))
def test_what_is_no_report_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    file = tmp_path / "no.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    assert main(["report", str(file)]) == 2
    assert "no.json" in capsys.readouterr().err


def test_what_was_saved_is_linked_and_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report may come from anywhere: what it names could be any file of this machine."""
    report = report_with(tmp_path / "saved", {"graph_0_0.txt": "a secret"})
    (tmp_path / "report.json").write_bytes(msgspec.json.encode(report))
    (tmp_path / "pages").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["report", "report.json", "--html", "pages/report.html"]) == 0
    text = Path("pages/report.html").read_text(encoding="utf-8")
    assert '<a href="../saved/graph_0_0.txt">' in text
    assert "a secret" not in text
